"""Stores of the audit trail behave alike, and the database refuses to change an entry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest
from asyncpg.exceptions import InsufficientPrivilegeError

from dagmaster.ports.audit_trail import AuditEntry, AuditFilter
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.store.memory.audit_trail import MemoryAuditTrail
from dagmaster.store.postgres.audit_trail import PostgresAuditTrail
from tests.conformance.server import dsn_of, release_database, shared_server, take_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.ports.audit_trail import AuditTrail


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with shared_server() as server:
        name = asyncio.run(take_database(server))
        yield dsn_of(server, name)
        asyncio.run(release_database(server, name))


def entry(actor: str, action: str, object_id: str) -> AuditEntry:
    return AuditEntry(
        actor=actor,
        action=action,
        object_kind=action.partition(".")[0],
        object_id=object_id,
        request_id="r1" if actor == "ada" else None,
        details={"node_id": "a"},
    )


@pytest.mark.parametrize("kind", ["postgres", "memory"])
def test_entries_are_listed_newest_first_page_by_page_and_filtered(kind, request):
    trail: AuditTrail = (
        MemoryAuditTrail()
        if kind == "memory"
        else PostgresAuditTrail(DatabaseConfig(dsn=request.getfixturevalue("dsn")))
    )

    async def main() -> None:
        entries = [entry("ada", "job.cancel", "7"), entry("bob", "key.create", "k"), entry("ada", "job.retry", "8")]
        await trail.append(entries)
        stored = await trail.entries(AuditFilter())
        assert [record.entry for record in stored] == entries[::-1]
        assert [record.entry_id for record in stored] == sorted((record.entry_id for record in stored), reverse=True)
        rest = await trail.entries(AuditFilter(), after=(stored[0].entry_id,), limit=1)
        assert [record.entry for record in rest] == [entries[1]]
        for audit_filter, expected in (
            (AuditFilter(actor="ada"), ["8", "7"]),
            (AuditFilter(action="key.create"), ["k"]),
            (AuditFilter(object_kind="job", object_id="7"), ["7"]),
            (AuditFilter(actor="bob", object_kind="job"), []),
        ):
            assert [record.entry.object_id for record in await trail.entries(audit_filter)] == expected
        if isinstance(trail, PostgresAuditTrail):
            await trail.close()

    asyncio.run(main())


@pytest.mark.parametrize("role", [None, "dagmaster_orchestrator"])
def test_an_entry_cannot_be_changed_or_removed_even_by_the_owner_of_the_table(role, dsn):
    async def main() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            if role is not None:
                await connection.execute(f"SET ROLE {role}")
            await connection.execute(
                "INSERT INTO dagapp.dag_audit (actor, action, object_kind, object_id) VALUES ('a', 'b.c', 'b', '1')"
            )
            for statement in (
                "UPDATE dagapp.dag_audit SET actor = 'x'",
                "DELETE FROM dagapp.dag_audit",
                "TRUNCATE dagapp.dag_audit",
            ):
                with pytest.raises(InsufficientPrivilegeError):
                    await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(main())

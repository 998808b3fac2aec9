"""Contracts of handlers on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.ports.handler_contracts import CallerUsage
from dagmaster.store.postgres.audit_trail import APPEND, entry_columns
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.handler_contracts import HandlerOffer
    from dagmaster.store.postgres.named_queries import Query
    from dagmaster.store.postgres.tenant_session import Session

_SQL = queries("handlers")


class PostgresHandlerContracts:
    """Contracts, on a connection that others also use."""

    def __init__(self, connection: Session) -> None:
        self._connection = connection

    async def offer(self, offer: HandlerOffer) -> frozenset[str]:
        rows = sorted((one.name, one.version, one.document, one.content_hash) for one in offer.definitions)
        caller = {"actor": offer.actor, "named": list(offer.named)}
        names = [name for name, *_ in rows]
        columns = {
            "names": names,
            "versions": [version for _, version, *_ in rows],
            "definitions": [document for *_, document, _ in rows],
            "hashes": [content_hash for *_, content_hash in rows],
            "reserved": sorted(offer.reserved.intersection(names)),
        }
        admitted = await self._connection.execute_in_transaction(
            [
                (_SQL["lock_offers"], {}),
                (_SQL["offer_handlers"], {**caller, **columns}),
                (_SQL["admitted_handlers"], {**caller, "names": names}),
            ]
        )
        return frozenset(row["name"] for row in admitted)

    async def usage(self, key_id: str, actor: str) -> CallerUsage:
        row = await self._connection.row(_SQL["usage"], {"key_id": key_id, "actor": actor})
        if row is None:
            return CallerUsage(0, frozenset(), frozenset())
        return CallerUsage(row["workers"], frozenset(row["queues"]), frozenset(row["handlers"]))

    async def trust(self, name: str, actor: str, *, by: str, audit: Sequence[AuditEntry] = ()) -> None:
        what = {"name": name, "actor": actor}
        # In this order: the trust is that in a caller who does not own the contract yet.
        statements: list[tuple[Query, Mapping[str, Any]]] = [
            (_SQL["lock_offers"], {}),
            (_SQL["accept_changes"], what),
            (_SQL["drop_alias_changes"], what),
            (_SQL["trust_contract"], what),
            (_SQL["trust_caller"], {**what, "trusted_by": by}),
            (APPEND, entry_columns(audit)),
        ]
        await self._connection.execute_in_transaction(statements)

    async def distrust(self, name: str, actor: str, *, audit: Sequence[AuditEntry] = ()) -> None:
        what = {"name": name, "actor": actor}
        statements: list[tuple[Query, Mapping[str, Any]]] = [
            (_SQL["distrust"], what),
            (_SQL["drop_alias_changes"], what),
            (APPEND, entry_columns(audit)),
        ]
        await self._connection.execute_in_transaction(statements)

    async def collect(self, older_than_seconds: float, limit: int = 100) -> int:
        row = await self._connection.row(_SQL["collect"], {"seconds": older_than_seconds, "limit": limit})
        return 0 if row is None else int(row["removed"])

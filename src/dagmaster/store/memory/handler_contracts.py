"""Contracts of handlers in memory. They behave like those on PostgreSQL."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.ports.handler_contracts import CallerUsage
from dagmaster.records.handlers import INSTALLATION, aliases_of
from dagmaster.store.memory.database import StoredHandler

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.handler_contracts import HandlerOffer
    from dagmaster.ports.handler_definitions import HandlerDefinition
    from dagmaster.store.memory.database import MemoryDatabase


class MemoryHandlerContracts:
    """Contracts of a `MemoryDatabase`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def offer(self, offer: HandlerOffer) -> frozenset[str]:
        for definition in offer.definitions:
            name = definition.name
            is_alias = bool(self._names_of_alias(name))
            owners = self._owners(name)
            is_nobodys = name not in offer.reserved or name in offer.named
            if not is_alias and (owners <= {offer.actor} if owners else is_nobodys):
                self._publish(definition, offer.actor)
            elif not (
                (is_alias or self._is_same(definition)) and self.may_have(name, offer.actor, offer.named)
            ):
                self._propose(definition, offer.actor)
        names = {definition.name for definition in offer.definitions}
        return frozenset(name for name in names if self.may_have(name, offer.actor, offer.named))

    async def usage(self, key_id: str, actor: str) -> CallerUsage:
        database = self._database
        mine = [
            worker
            for worker in database.workers.values()
            if worker.remote is not None
            and worker.remote.registered_by == key_id
            and worker.stopped_at is None
        ]
        published = {name for (name, _), stored in database.handlers.items() if stored.owner == actor}
        proposed = {name for name, by, _ in database.handler_changes if by == actor}
        queues = frozenset(queue for worker in mine for queue in worker.queues)
        return CallerUsage(len(mine), queues, frozenset(published | proposed))

    async def trust(self, name: str, actor: str, *, by: str, audit: Sequence[AuditEntry] = ()) -> None:
        database = self._database
        now = database.clock.now()
        owner = INSTALLATION if INSTALLATION in self._owners(name) else actor
        for key in [key for key in database.handler_changes if key[:2] == (name, actor)]:
            definition = database.handler_changes.pop(key).definition
            before = database.handlers.get((name, definition.version))
            database.handlers[name, definition.version] = StoredHandler(
                definition, now, owner, now, *_replace(before, actor)
            )
        self._drop_alias_changes(name, actor)
        if actor in self._owners(name):
            for stored in self._contracts(name):
                if stored.owner != INSTALLATION:
                    stored.by, stored.replaced = _replace(stored, actor)
                    stored.owner, stored.trusted_at = actor, stored.trusted_at or now
        if self._owners(name) - {actor}:
            database.handler_trust[name, actor] = by
        database.audit_trail.add(audit)

    async def distrust(self, name: str, actor: str, *, audit: Sequence[AuditEntry] = ()) -> None:
        database = self._database
        database.handler_trust.pop((name, actor), None)
        for change in [key for key in database.handler_changes if key[:2] == (name, actor)]:
            del database.handler_changes[change]
        self._drop_alias_changes(name, actor)
        for key, stored in [(key, one) for key, one in database.handlers.items() if key[0] == name]:
            if stored.by == actor and stored.replaced is not None:
                database.handlers[key] = replace(stored.replaced, by=None, replaced=None)
            elif stored.by == actor or stored.owner == actor != INSTALLATION:
                del database.handlers[key]
            elif stored.replaced is not None and stored.replaced.owner == actor:
                stored.replaced = None
        database.audit_trail.add(audit)

    async def collect(self, older_than_seconds: float, limit: int = 100) -> int:
        database, live = self._database, self._offered_names()
        before = database.clock.now() - older_than_seconds
        graphs = [database.graphs[stored.content_hash] for stored in database.workflows.values()]
        unused = sorted(
            key
            for key, stored in database.handlers.items()
            if _is_strangers(stored) and stored.published_at < before
            if self._names_of_alias(key[0])
            or (key[0] not in live and not any(f'"{key[0]}"' in graph for graph in graphs))
        )[:limit]
        proposed = sorted(
            key
            for key, stored in database.handler_changes.items()
            if stored.published_at < before and key[0] not in live
        )[:limit]
        for handler in unused:
            del database.handlers[handler]
        for change in proposed:
            del database.handler_changes[change]
        return len(unused) + len(proposed)

    def may_have(self, name: str, actor: str, named: Collection[str]) -> bool:
        """Return whether workers of a caller may have a handler, as `dag_may_have_handler` does."""
        contracts = self._contracts(name)
        is_own = bool(contracts) and all(
            stored.owner == actor and (stored.trusted_at is not None or "." not in name)
            for stored in contracts
        )
        aliased = self._names_of_alias(name)
        is_trusted = any((one, actor) in self._database.handler_trust for one in (name, *aliased))
        return name in named or is_trusted or (is_own and not aliased)

    def _names_of_alias(self, alias: str) -> set[str]:
        """Return the installation's handlers that have an alias, as `dag_names_of_alias` does."""
        if INSTALLATION in self._owners(alias):
            return set()
        return {
            name
            for (name, _), stored in self._database.handlers.items()
            if stored.owner == INSTALLATION and alias in aliases_of(json.loads(stored.definition.document))
        }

    def _drop_alias_changes(self, name: str, actor: str) -> None:
        """Remove what a caller proposed of the aliases of a handler: an alias has no contract."""
        changes = self._database.handler_changes
        for key in [key for key in changes if key[1] == actor and name in self._names_of_alias(key[0])]:
            del changes[key]

    def _offered_names(self) -> set[str]:
        """Return the handlers that live workers offer over HTTP."""
        live = [worker.remote for worker in self._database.workers.values() if worker.stopped_at is None]
        return {name for remote in live if remote is not None for name in remote.offered}

    def _contracts(self, name: str) -> list[StoredHandler]:
        return [stored for (of, _), stored in self._database.handlers.items() if of == name]

    def _owners(self, name: str) -> set[str]:
        return {stored.owner for stored in self._contracts(name)}

    def _is_same(self, definition: HandlerDefinition) -> bool:
        stored = self._database.handlers.get((definition.name, definition.version))
        return stored is not None and stored.definition.content_hash == definition.content_hash

    def _publish(self, definition: HandlerDefinition, actor: str) -> None:
        if not self._is_same(definition):
            key, now = (definition.name, definition.version), self._database.clock.now()
            before = self._database.handlers.get(key)
            kept = (None, None) if before is None else (before.by, before.replaced)
            self._database.handlers[key] = StoredHandler(definition, now, actor, None, *kept)

    def _propose(self, definition: HandlerDefinition, actor: str) -> None:
        key = definition.name, actor, definition.version
        stored = self._database.handler_changes.get(key)
        if stored is None or stored.definition.content_hash != definition.content_hash:
            self._database.handler_changes[key] = StoredHandler(definition, self._database.clock.now(), actor)


def _replace(stored: StoredHandler | None, actor: str) -> tuple[str | None, StoredHandler | None]:
    """Return by whom a contract is, and what it replaced, once a caller's takes its place."""
    if stored is None:
        return actor, None
    if actor in (stored.owner, stored.by):
        return stored.by, stored.replaced
    return actor, replace(stored)


def _is_strangers(stored: StoredHandler) -> bool:
    """Return whether a contract is a caller's, and no administrator trusts it."""
    return stored.owner != INSTALLATION and stored.trusted_at is None

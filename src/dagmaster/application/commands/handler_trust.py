"""Decide about contracts of handlers that belong to callers, and about changes that they proposed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.application.queries.handlers import find_handler
from dagmaster.application.views.handlers import HandlerTrustView
from dagmaster.errors import HandlerTrustRejected
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.records.handlers import INSTALLATION
from dagmaster.text_format import format_list

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.records.handlers import HandlerRecord


async def trust_handler(app: Application, name: str, *, caller: str | None = None) -> HandlerTrustView:
    """Accept what a caller published of a handler: its workers get tasks of it, its default queue counts.

    `caller`: whose; by default the only one that waits, else the owner. Raise `HandlerTrustRejected` if it is
    not clear whose, or if there is nothing to trust.
    """
    record = await find_handler(app, name)
    chosen = _choose(record, caller)
    origin = _origin(app)
    details = {"caller": chosen, "owner": record.owner}
    entry = origin.entry("handler.trust", "handler", record.name, details)
    await app.client.contracts.trust(record.name, chosen, by=origin.actor, audit=[entry])
    owner = (await find_handler(app, record.name)).owner
    return HandlerTrustView(handler=record.name, caller=chosen, is_trusted=True, owner=owner)


async def distrust_handler(app: Application, name: str, *, caller: str | None = None) -> HandlerTrustView:
    """Remove what a caller has of a handler: trust, changes that wait, and the contract if it is the owner.

    Raise `HandlerTrustRejected` if it is not clear whose.
    """
    record = await find_handler(app, name)
    # The trust in a caller that has nothing to wait for is not listed: it is named.
    chosen = caller or _choose(record, None)
    if chosen == INSTALLATION:
        raise HandlerTrustRejected(f"the contract of {record.name} is the installation's: it is not removed")
    origin = _origin(app)
    entry = origin.entry("handler.distrust", "handler", record.name, {"caller": chosen})
    await app.client.contracts.distrust(record.name, chosen, audit=[entry])
    owner = None if chosen == record.owner else record.owner
    return HandlerTrustView(handler=record.name, caller=chosen, is_trusted=False, owner=owner)


def _choose(record: HandlerRecord, actor: str | None) -> str:
    proposers = sorted({change.actor for change in record.changes})
    known = [*proposers, *([] if record.owner == INSTALLATION else [record.owner])]
    if actor is not None:
        if actor not in known:
            have = f"these have: {format_list(known)}" if known else "nobody has"
            raise HandlerTrustRejected(f"{actor} has published nothing of {record.name}; {have}")
        return actor
    if len(proposers) > 1:
        raise HandlerTrustRejected(f"{record.name} has changes of {format_list(proposers)}: name the caller")
    if not known:
        raise HandlerTrustRejected(f"the contract of {record.name} is the installation's, and nothing waits")
    return known[0]


def _origin(app: Application) -> ChangeOrigin:
    return app.origin or ChangeOrigin(actor=INSTALLATION)

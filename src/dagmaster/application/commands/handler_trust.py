"""Decide about contracts of handlers that belong to callers, and about changes that they proposed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dagmaster.application.queries.handlers import find_handler
from dagmaster.application.views.handlers import HandlerTrustView
from dagmaster.errors import HandlerNotFound, HandlerTrustRejected
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
    record, chosen = await _find_trusted(app, name, caller)
    origin = _origin(app)
    details = {"caller": chosen, "owner": record.owner}
    entry = origin.entry("handler.trust", "handler", record.name, details)
    await app.client.contracts.trust(record.name, chosen, by=origin.actor, audit=[entry])
    owner = (await find_handler(app, record.name)).owner
    return HandlerTrustView(handler=record.name, caller=chosen, is_trusted=True, owner=owner)


async def distrust_handler(app: Application, name: str, *, caller: str | None = None) -> HandlerTrustView:
    """Remove what a caller has of a handler: trust, changes that wait, and the contract if it is the owner.

    What this replaced when it was trusted comes back. Raise `HandlerTrustRejected` if it is not clear whose.
    """
    record = await find_handler(app, name)
    # The trust in a caller that has nothing to wait for is not listed: it is named.
    chosen = caller or choose_caller(record, None)
    if chosen == INSTALLATION:
        raise HandlerTrustRejected(f"the contract of {record.name} is the installation's: it is not removed")
    origin = _origin(app)
    entry = origin.entry("handler.distrust", "handler", record.name, {"caller": chosen})
    await app.client.contracts.distrust(record.name, chosen, audit=[entry])
    owner = None
    with contextlib.suppress(HandlerNotFound):
        owner = (await find_handler(app, record.name)).owner
    return HandlerTrustView(handler=record.name, caller=chosen, is_trusted=False, owner=owner)


def choose_caller(record: HandlerRecord, actor: str | None) -> str:
    """Return whose changes are decided about; raise `HandlerTrustRejected` if that is not clear."""
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


async def _find_trusted(app: Application, name: str, caller: str | None) -> tuple[HandlerRecord, str]:
    """Return the handler that `trust_handler` is about, with its changes, and the caller that is trusted."""
    try:
        record = await find_handler(app, name)
    except HandlerNotFound as error:
        raise HandlerNotFound(
            f"{error}. A name that ships with dagmaster has a contract once a worker of the installation has"
            " published it; a key that is narrowed to the handler needs no trust"
        ) from error
    return record, choose_caller(record, caller)


def _origin(app: Application) -> ChangeOrigin:
    return app.origin or ChangeOrigin(actor=INSTALLATION)

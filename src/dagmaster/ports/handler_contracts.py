"""Whose a handler's contract is: the installation's, or that of the caller that published it first.

A contract is what is published of a handler: its params, output and default queue. One that another caller
publishes waits for an administrator, and no worker of that caller gets tasks of the handler until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.handler_definitions import HandlerDefinition


class HandlerOffer(NamedTuple):
    """The handlers of a worker that a caller registers.

    `named`: those that it may have: an administrator has narrowed its key to them, or it is one. `reserved`:
    names of the installation, also before it has published them; who is not `named` does not own one by being
    first.
    """

    actor: str
    definitions: Sequence[HandlerDefinition] = ()
    named: tuple[str, ...] = ()
    reserved: frozenset[str] = frozenset()


class CallerUsage(NamedTuple):
    """What a caller has now: live workers, their queues, and handlers that it published or proposed."""

    workers: int
    queues: frozenset[str]
    handlers: frozenset[str]


class HandlerContracts(Protocol):
    """Stores contracts of callers. `audit` is stored in the transaction of the change."""

    async def offer(self, offer: HandlerOffer) -> frozenset[str]:
        """Publish what is the caller's, propose the rest; return the handlers that its workers may have."""

    async def usage(self, key_id: str, actor: str) -> CallerUsage:
        """Return what a caller has now, for its quota."""

    async def trust(self, name: str, actor: str, *, by: str, audit: Sequence[AuditEntry] = ()) -> None:
        """Let a caller's workers have a handler, and make the changes that it proposed the contract."""

    async def distrust(self, name: str, actor: str, *, audit: Sequence[AuditEntry] = ()) -> None:
        """Remove the trust in a caller, its proposed changes, and the contract if it owns that.

        What its contract or its changes replaced when they were trusted comes back.
        """

    async def collect(self, older_than_seconds: float, limit: int = 100) -> int:
        """Remove contracts of callers whose workers are gone; return how many.

        What an administrator trusts, or a published workflow refers to, stays.
        """

"""The client's port to the store: submit jobs and send commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.ports.command_kinds import CommandKind
    from dagmaster.ports.job_records import Accepted, NewJob


class ClientStore(Protocol):
    """What submitting and asking needs."""

    async def put_graph(self, content_hash: str, definition: str) -> None:
        """Keep a graph, if it is not there yet."""

    async def submit(self, jobs: Sequence[NewJob]) -> list[Accepted]:
        """Store jobs, in order. A job whose key is taken is not stored again."""

    async def find_duplicates(self, jobs: Sequence[NewJob]) -> list[Accepted]:
        """What a submit would say of those whose key is taken already."""

    async def send(self, job_id: str, kind: CommandKind, body: Mapping[str, Any], sent_by: str) -> bool:
        """Put a command into a job's inbox. False if there is no such job."""

"""What is left of a job for the one that was resumed from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dagmaster.ports.json_text import JsonText


class SourceNode(NamedTuple):
    """A completed node of a job that another was resumed from."""

    node_id: str
    fingerprint: bytes
    handler_version: str | None
    attempt: int


@dataclass(slots=True)
class SourceJob:
    """What is left of a job for the one that was resumed from it."""

    job_id: str
    nodes: Sequence[SourceNode] = ()


@dataclass(slots=True)
class KnownHandlers:
    """What handlers are at a moment, as their workers say. It is old as soon as somebody deploys."""

    versions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of each handler: its versions on live workers; of one that no live worker has, the last that was seen."""

    served: frozenset[str] = frozenset()
    """The handlers that live workers have."""

    def is_current(self, handler: str, version: str | None) -> bool:
        """Whether a result of this version is what the handler would give now, as far as anybody knows."""
        known = self.versions.get(handler)
        return known is None or known == {version}


class ReusableResults(Protocol):
    """Where the results of jobs that others were resumed from are read."""

    async def load_source_job(self, job_id: str) -> SourceJob:
        """The completed nodes of a job."""

    async def known_handlers(self) -> KnownHandlers:
        """What handlers are now."""

    async def unfinished_children(self, nodes: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
        """The last child job of each of these nodes (job, node), where it did not work out."""

    async def load_source_outputs(self, job_id: str, nodes: Collection[SourceNode]) -> Mapping[str, JsonText]:
        """The outputs of those of these nodes that are still what they were, version and attempt included."""

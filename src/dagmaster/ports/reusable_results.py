"""Reads of resumed jobs: the results that a new run or a new job can reuse."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dagmaster.ports.added_nodes import JobNodes
from dagmaster.ports.tenants import DEFAULT_TENANT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.job_records import ClaimedJob, StoredWorkflow
    from dagmaster.ports.json_text import JsonText


class SourceNode(NamedTuple):
    """A completed node of a job that another one resumes."""

    node_id: str
    fingerprint: bytes
    handler_version: str | None
    attempt: int


@dataclass(slots=True)
class SourceJob:
    """The completed nodes of a job that another one resumes."""

    job_id: str
    nodes: Sequence[SourceNode] = ()


@dataclass(slots=True)
class KnownHandlers:
    """The handlers of the registered workers when it was read. A deployment makes it outdated."""

    versions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The versions of each handler on live workers; if no live worker has it, the last known version."""

    served: frozenset[str] = frozenset()
    """The handlers that live workers have."""

    def is_current(self, handler: str, version: str | None) -> bool:
        known = self.versions.get(handler)
        return known is None or known == {version}


class ReusableResults(JobNodes, Protocol):
    """Reads of jobs that are resumed: what is stored of them, and what a new run or job can reuse.

    Orchestrators use it in turns; `application` uses it for dry runs. It claims and writes nothing.
    """

    def for_tenant(self, tenant: str) -> ReusableResults:
        """Return what a tenant sees, over the same connection."""

    async def load_job(self, job_id: str) -> ClaimedJob | None:
        """Return a job as its owner would load it, without claiming it."""

    async def load_source_job(self, job_id: str) -> SourceJob:
        """Return the completed nodes of a job."""

    async def known_handlers(self) -> KnownHandlers:
        """Return the handlers of live workers and their versions."""

    async def unfinished_children(self, nodes: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
        """Return the last child job of each of these nodes (job, node), where it failed or was cancelled."""

    async def load_source_outputs(self, job_id: str, nodes: Collection[SourceNode]) -> Mapping[str, JsonText]:
        """Return the outputs of those nodes that are unchanged, including version and attempt."""

    async def resolve_value(self, value: JsonText) -> JsonValue:
        """Return a value from its text or from its blob."""

    async def definition(self, content_hash: str) -> Mapping[str, JsonValue] | None:
        """Return a stored graph."""

    async def find_workflow(
        self, workflow_id: str, version: int | None, tenant: str = DEFAULT_TENANT
    ) -> StoredWorkflow | None:
        """Return a published workflow of a tenant, else of the installation: this version, or the active."""

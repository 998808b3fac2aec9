"""Fingerprints of the nodes of a job, and the reusable results of the job that it was resumed from.

A result is looked up when its node is about to start, with the params it would get: nothing is reused on a
guess.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dagmaster.engine.events import ResultReused, ReusedFrom
from dagmaster.engine.fingerprints import SIZE, digest, of_engine_node, upstream_digest
from dagmaster.engine.graph import TaskSpec
from dagmaster.engine.resume_plan import with_descendants
from dagmaster.ports.secret_vault import identity_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dagmaster.engine.graph import ApprovalSpec
    from dagmaster.engine.model import Job, Node
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.reusable_results import KnownHandlers, ReusableResults, SourceJob, SourceNode


class ResultReuse:
    """The fingerprints of one job, and the job that it was resumed from, if any."""

    __slots__ = ("_candidates", "_inputs", "_job", "_prefixes", "_redo", "_reusable", "_source")

    def __init__(
        self,
        job: Job,
        inputs: Mapping[str, JsonValue],
        *,
        source: SourceJob | None = None,
        reusable: ReusableResults | None = None,
        redo: Collection[str] = (),
    ) -> None:
        self._job = job
        self._inputs = inputs
        self._source = source
        self._reusable = reusable
        self._redo = with_descendants(job.graph, redo) if redo else frozenset[str]()
        self._prefixes: dict[tuple[str, str], Any] = {}
        # Ids of children change with their list: a result is looked up by its node of the graph.
        self._candidates: dict[tuple[str, bytes], SourceNode] = {}
        if source is not None:
            self._candidates = {
                (node.node_id.partition("__")[0], node.fingerprint): node for node in source.nodes
            }

    # ── Fingerprints ──

    def task_fingerprint(
        self,
        node: Node,
        spec: TaskSpec,
        params: str,
        places: Sequence[JsonValue],
        secret_inputs: Mapping[str, Any] = MappingProxyType({}),
    ) -> bytes:
        """Return the fingerprint of a task. Secrets are included by name, secret inputs by their print."""
        # All children of a fan-out share this, and all tasks of a handler that wait for nothing: 1 µs instead
        # of 4.
        top = node.top.id
        key = (top if self._job.leaves(top) else "", spec.handler)
        prefix = self._prefixes.get(key)
        if prefix is None:
            start = digest(spec.kind, spec.handler, upstream_digest(self._job, node))
            prefix = self._prefixes[key] = blake2b(start, digest_size=SIZE)
        hasher = prefix.copy()
        hasher.update(params.encode())
        if places:
            hasher.update(json.dumps(places).encode())
        if secret_inputs:
            used = {name: identity_of(stored) for name, stored in secret_inputs.items()}
            hasher.update(json.dumps(used, sort_keys=True).encode())
        fingerprint: bytes = hasher.digest()
        return fingerprint

    def child_job_fingerprint(self, node: Node, content_hash: str, inputs: str) -> bytes:
        """Return the fingerprint of a child job. `inputs`: with the prints of secret ones."""
        return digest(node.spec.kind, upstream_digest(self._job, node), content_hash, inputs)

    def approval_fingerprint(self, node: Node, spec: ApprovalSpec, message: str) -> bytes:
        """Return the fingerprint of an approval: its message, its approvers, and all inputs of the job."""
        inputs = {name: identity_of(value) for name, value in self._inputs.items()}
        request = json.dumps([message, spec.approvers, inputs], sort_keys=True)
        return digest(node.spec.kind, upstream_digest(self._job, node), request)

    def engine_fingerprint(self, node: Node) -> bytes:
        """Return the fingerprint of a node that the engine completed itself."""
        return of_engine_node(self._job, node)

    def clear(self) -> None:
        self._prefixes.clear()

    # ── Reusable results ──

    def find(self, node: Node) -> SourceNode | None:
        """Return the reusable result of a node, if there is one. `fetch` confirms it."""
        if not self._candidates or self._job.run > 1 or node.fingerprint is None or node.top.id in self._redo:
            return None
        return self._candidates.get((node.top.id, node.fingerprint))

    def source_node(self, node: Node) -> tuple[str, str] | None:
        """Return the job and node that this node was resumed from, unless it is to be redone."""
        if self._source is None or self._job.run > 1 or node.top.id in self._redo:
            return None
        return self._source.job_id, node.id

    async def fetch(self, candidates: Mapping[str, SourceNode]) -> list[ResultReused]:
        """Return the reusable results of these nodes, unless they are gone or their handler has changed."""
        if self._source is None or self._reusable is None or not candidates:
            return []
        # Read each time: the versions may have changed since the job was claimed.
        handlers = await self._reusable.known_handlers()
        candidates = {
            node: source for node, source in candidates.items() if self._is_current(node, source, handlers)
        }
        if not candidates:
            return []
        job_id = self._source.job_id
        outputs = await self._reusable.load_source_outputs(
            job_id, list({candidate.node_id: candidate for candidate in candidates.values()}.values())
        )
        return [
            ResultReused(
                node,
                outputs[source.node_id],
                ReusedFrom(job_id, source.node_id, source.attempt, source.handler_version),
            )
            for node, source in candidates.items()
            if source.node_id in outputs
        ]

    def _is_current(self, node_id: str, source: SourceNode, handlers: KnownHandlers) -> bool:
        spec = self._job.nodes[node_id].spec
        return not isinstance(spec, TaskSpec) or handlers.is_current(spec.handler, source.handler_version)

"""Fingerprints of what a job starts; and, for a job that was resumed from another, the results that still fit.

Nothing is reused on a guess: a result is looked for when its node is about to start, with the params it would get.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from dagmaster.engine.events import ResultReused, ReusedFrom
from dagmaster.engine.fingerprints import SIZE, digest, of_engine_node, upstream_digest
from dagmaster.engine.graph import TaskSpec
from dagmaster.engine.resume_plan import with_followers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dagmaster.engine.graph import ApprovalSpec
    from dagmaster.engine.model import Job, Node
    from dagmaster.ports.reusable_results import KnownHandlers, ReusableResults, SourceJob, SourceNode


class ResultReuse:
    """The fingerprints of one job, and its past if it has one."""

    __slots__ = ("_found", "_inputs", "_job", "_past", "_pasts", "_prefixes", "_redo")

    def __init__(
        self,
        job: Job,
        inputs: Mapping[str, Any],
        *,
        past: SourceJob | None = None,
        pasts: ReusableResults | None = None,
        redo: Iterable[str] = (),
    ) -> None:
        self._job = job
        self._inputs = inputs
        self._past = past
        self._pasts = pasts
        self._redo = with_followers(job.graph, redo)
        self._prefixes: dict[tuple[str, str], Any] = {}
        # Ids of children change with the list they come from: a result is looked for below its node of the graph.
        self._found: dict[tuple[str, bytes], SourceNode] = {}
        if past is not None:
            self._found = {(each.node_id.partition("__")[0], each.fingerprint): each for each in past.nodes}

    # ── Fingerprints ──

    def of_task(self, node: Node, spec: TaskSpec, params: str, places: Sequence[Any]) -> bytes:
        """Of a task. Secrets are in it by their names."""
        key = (node.top.id, spec.handler)
        prefix = self._prefixes.get(key)
        if prefix is None:
            # All children of a fan-out begin alike: 1 µs each, in place of 4.
            start = digest(spec.kind, spec.handler, upstream_digest(self._job, node))
            prefix = self._prefixes[key] = blake2b(start, digest_size=SIZE)
        made = prefix.copy()
        made.update(params.encode())
        if places:
            made.update(json.dumps(places).encode())
        found: bytes = made.digest()
        return found

    def of_child_job(self, node: Node, content_hash: str, inputs: str) -> bytes:
        """Of a child job: the graph it has by now, and its inputs."""
        return digest(node.spec.kind, upstream_digest(self._job, node), content_hash, inputs)

    def of_approval(self, node: Node, spec: ApprovalSpec, message: str) -> bytes:
        """Of an answer: what was asked, of whom, and all that the job was then. Other inputs are another question."""
        asked = json.dumps([message, spec.approvers, self._inputs], sort_keys=True)
        return digest(node.spec.kind, upstream_digest(self._job, node), asked)

    def of_completed(self, node: Node) -> bytes:
        """Of what the engine completed itself."""
        return of_engine_node(self._job, node)

    def forget(self) -> None:
        """Drop what belongs to one turn."""
        self._prefixes.clear()

    # ── The past ──

    def find(self, node: Node) -> SourceNode | None:
        """The result that this node would have again, if it was there and is to be used. `fetch` has the last word."""
        if not self._found or self._job.run > 1 or node.fingerprint is None or node.top.id in self._redo:
            return None
        return self._found.get((node.top.id, node.fingerprint))

    def place_before(self, node: Node) -> tuple[str, str] | None:
        """Where this node was in the job that this one was resumed from, unless it is to be made anew."""
        if self._past is None or self._job.run > 1 or node.top.id in self._redo:
            return None
        return self._past.job_id, node.id

    async def fetch(self, wanted: Mapping[str, SourceNode]) -> list[ResultReused]:
        """The results of the past for these nodes, less what is gone and what a handler would make otherwise now."""
        if self._past is None or self._pasts is None or not wanted:
            return []
        # Asked each time: what was so when the job was claimed depends on who claimed it, and when.
        handlers = await self._pasts.known_handlers()
        wanted = {node: each for node, each in wanted.items() if self._is_current(node, each, handlers)}
        if not wanted:
            return []
        job_id = self._past.job_id
        outputs = await self._pasts.load_source_outputs(
            job_id, list({each.node_id: each for each in wanted.values()}.values())
        )
        return [
            ResultReused(
                node, outputs[each.node_id], ReusedFrom(job_id, each.node_id, each.attempt, each.handler_version)
            )
            for node, each in wanted.items()
            if each.node_id in outputs
        ]

    def _is_current(self, node_id: str, found: SourceNode, handlers: KnownHandlers) -> bool:
        spec = self._job.nodes[node_id].spec
        return not isinstance(spec, TaskSpec) or handlers.is_current(spec.handler, found.handler_version)

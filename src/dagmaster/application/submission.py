"""The one way in for jobs: whoever submits, by whatever way, this checks, makes the job, and stores it once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.inputs import accept_inputs
from dagmaster.errors import SubmissionRejected
from dagmaster.ports.job_records import NewJob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.engine.graph import Graph
    from dagmaster.ports.client_store import ClientStore
    from dagmaster.ports.ids import Ids
    from dagmaster.ports.job_records import Accepted

MAX_KEY: Final = 128
MAX_SUBMITTER: Final = 64
MAX_NAME: Final = 128
PRIORITIES: Final = range(11)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job that somebody wants."""

    graph: Graph
    inputs: Mapping[str, Any]
    name: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    priority: int = 5
    idempotency_key: str | None = None
    submitted_by: str = ""
    correlation_id: str | None = None
    callback_url: str | None = None
    queue: str | None = None
    workflows: Mapping[str, str] = field(default_factory=dict)
    resumed_from: str | None = None
    redo: tuple[str, ...] = ()


class JobSubmitter:
    """Accepts jobs. What it accepts is stored for good, once for each key."""

    def __init__(self, store: ClientStore, ids: Ids) -> None:
        self._store = store
        self._ids = ids
        self._stored: set[str] = set()

    async def submit(self, submissions: Sequence[Submission]) -> list[Accepted]:
        """Accept jobs, all or none. `InputsInvalid` and `SubmissionRejected` say what does not fit."""
        jobs = [self.job(each) for each in submissions]
        if len(jobs) > 1:
            _refuse_others(await self._store.find_duplicates(jobs))
        for each in submissions:
            await self.keep(each.graph)
        accepted = await self._store.submit(jobs)
        _refuse_others(accepted)
        return accepted

    async def keep(self, graph: Graph) -> None:
        """Store a graph, if this intake has not done so."""
        if graph.content_hash not in self._stored:
            await self._store.put_graph(graph.content_hash, json.dumps(graph.definition))
            self._stored.add(graph.content_hash)

    def job(self, wanted: Submission) -> NewJob:
        """Check what is wanted, and make the job."""
        if wanted.priority not in PRIORITIES:
            raise SubmissionRejected(f"a priority is between 0 and 10, 10 the most urgent, not {wanted.priority}")
        key = wanted.idempotency_key
        if key is not None and not (1 <= len(key) <= MAX_KEY and key.isprintable()):
            raise SubmissionRejected(
                f"an idempotency key has 1 to {MAX_KEY} characters that can be printed, not {key[:40]!r}"
            )
        if len(wanted.submitted_by) > MAX_SUBMITTER:
            raise SubmissionRejected(f"the name of a submitter has at most {MAX_SUBMITTER} characters")
        if len(wanted.name) > MAX_NAME or not wanted.name.isprintable():
            raise SubmissionRejected(f"a job name has at most {MAX_NAME} printable characters")
        graph = wanted.graph
        inputs = json.dumps(accept_inputs(graph, wanted.inputs))
        past = [] if wanted.resumed_from is None else [wanted.resumed_from, graph.content_hash, *sorted(wanted.redo)]
        body = json.dumps([graph.workflow_id, json.loads(inputs), *past], sort_keys=True)
        return NewJob(
            id=self._ids.new(),
            workflow_id=graph.workflow_id,
            version=graph.version,
            content_hash=graph.content_hash,
            inputs=inputs,
            name=wanted.name,
            env=json.dumps(dict(wanted.env)),
            priority=wanted.priority,
            idempotency_key=key,
            body_hash=None if key is None else hashlib.sha256(body.encode()).hexdigest(),
            submitted_by=wanted.submitted_by,
            correlation_id=wanted.correlation_id,
            callback_url=wanted.callback_url,
            queue=wanted.queue,
            workflows=json.dumps(dict(wanted.workflows)),
            resumed_from=wanted.resumed_from,
            redo=tuple(wanted.redo),
        )


def _refuse_others(answers: Sequence[Accepted]) -> None:
    for answer in answers:
        if not answer.same:
            raise SubmissionRejected(
                f"this idempotency key was used for another job, {answer.job_id}, with other inputs or another workflow"
                ": use a new key for a new job"
            )

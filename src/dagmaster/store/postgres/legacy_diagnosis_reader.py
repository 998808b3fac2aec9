"""What an explanation of a job is made of: the job itself, as its owner would load it, and what surrounds it.

It reads; `engine.why` decides. The questions are asked one after the other: what a worker reports in between is seen
as reported, or as taken up by the owner, which is what it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.diagnosis.context import (
    AdvanceFailure,
    ChildJob,
    DiagnosisContext,
    FinishedAttempt,
    InFlightTask,
    QueueState,
    Service,
)
from dagmaster.engine.diagnosis.explain import Why, nodes_to_quote
from dagmaster.engine.graph import ApprovalSpec
from dagmaster.engine.model import Job
from dagmaster.store.postgres.job_rows import job_row, node_row
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from asyncpg import Record

    from dagmaster.engine.graph import Graph
    from dagmaster.store.postgres.legacy_read_store import LegacyReadStore

_SQL = queries("legacy_diagnosis")
# A worker says which tasks it has begun as it sends its heartbeat; one that it took just then is not among them.
_JUST_TAKEN_SECONDS: Final = 1.0
_LATE_SECONDS: Final = 10.0
_RUN: Final = "run:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A job and its explanation. Times are the database's; `started_at` is of its last run."""

    job_id: str
    workflow_id: str
    version: int
    deadline_at: float | None
    started_at: float | None
    why: Why


class Explaining:
    """Explains jobs. `hide` takes secrets out of values; `graph_of` compiles a stored definition."""

    def __init__(
        self,
        store: LegacyReadStore,
        graph_of: Callable[[dict[str, Any]], Graph],
        hide: Callable[[Any, Collection[str]], Any],
    ) -> None:
        self._store = store
        self._session = store.session
        self._leases = store.leases
        self._graph_of = graph_of
        self._hide = hide

    async def explain(self, job_id: str) -> Explained | None:
        """Return why a job and its nodes stand where they stand; None if there is no such job."""
        number = int(job_id)
        head = await self._session.row(_SQL["job"], {"job_id": number, **self._leases})
        if head is None:
            return None
        graph = self._graph_of(await self._store.definition(head["content_hash"]) or {})
        rows = await self._session.fetch(_SQL["nodes"], {"job_id": number})
        job, stumbled = _rebuilt(graph, head, rows)
        rows = [row for row in rows if row["node_id"] in job.nodes]
        why = Why(job, await self._surroundings(head, job, rows, stumbled))
        return Explained(
            job_id=job_id,
            workflow_id=head["workflow_id"],
            version=head["version"],
            deadline_at=head["deadline_at"],
            started_at=head["started_at"] if head["resumed_at"] is None else head["resumed_at"],
            why=why,
        )

    async def _surroundings(self, head: Record, job: Job, rows: list[Record], stumbled: str | None) -> DiagnosisContext:
        number = head["id"]
        out = [row for row in rows if row["task_id"] is not None]
        about: dict[str, Any] = {"job_id": number}
        workers = await self._workers({row["worker_id"] for row in out if row["worker_id"] is not None})
        waiting = sorted({row["queue"] for row in out if row["worker_id"] is None})
        places, queues = await self._queues(number, waiting, workers)
        pauses = [
            node.id for node in job.nodes.values() if isinstance(node.spec, ApprovalSpec) and not node.is_terminal
        ]
        questions = await self._store.questions(str(number), pauses)
        children = await self._store.child_jobs(str(number))
        cancel = await self._session.row(_SQL["cancel"], about) if head["cancel_requested"] else None
        inputs = json.loads(head["inputs"])
        secrets = [
            str(inputs[name]) for name, each in job.graph.inputs.items() if each.get("secret") and name in inputs
        ]
        given = {**about, "node_ids": list(nodes_to_quote(job))}
        outputs = await self._session.fetch(_SQL["outputs"], given) if given["node_ids"] else []
        return DiagnosisContext(
            now=head["now"],
            created_at=head["created_at"],
            finished_at=head["finished_at"],
            error=None if head["error"] is None else json.loads(head["error"]),
            owner=self._owner(head),
            orchestrators=head["orchestrators"],
            advance_failure=_trouble(head, stumbled),
            is_local_run=head["queue"] is not None,
            cancelled_by=None if cancel is None else cancel["by"],
            cancelled_at=head["cancelled_at"],
            tasks={row["node_id"]: self._task(row, workers, places) for row in out},
            reports=_attempts(await self._session.fetch(_SQL["reports"], about)),
            attempts=_attempts(await self._session.fetch(_SQL["attempts"], about)),
            child_jobs={node_id: ChildJob(id=child, status=status) for node_id, (child, status) in children.items()},
            approval_messages={node_id: question.message for node_id, question in questions.items()},
            queues=queues,
            inputs=self._hide(inputs, secrets),
            outputs={row["node_id"]: self._hide(json.loads(row["output"]), secrets) for row in outputs},
        )

    def _owner(self, head: Record) -> Service | None:
        if head["owner_id"] is None:
            return None
        is_known = head["host"] is not None
        return Service(
            id=str(head["owner_id"]),
            where=f"{head['host']}:{head['pid']}" if is_known else "of old",
            silent_seconds=head["silent_seconds"] if is_known else 0.0,
            lease_seconds=self._leases["lease_seconds"],
            is_over=bool(head["owner_is_over"]) or not is_known,
        )

    async def _workers(self, holding: set[int]) -> dict[int, dict[str, Any]]:
        given = {"worker_ids": sorted(holding), **self._leases}
        found = [dict(row) for row in await self._session.fetch(_SQL["workers"], given)]
        for each in found:
            each["begun"] = None if each["begun"] is None else json.loads(each["begun"])
        return {each["worker_id"]: each for each in found}

    async def _queues(
        self, job_id: int, names: list[str], workers: Mapping[int, dict[str, Any]]
    ) -> tuple[dict[int, int], dict[str, QueueState]]:
        """Return the places of the job's tasks, and how the queues stand."""
        if not names:
            return {}, {}
        rows = await self._session.fetch(_SQL["places"], {"queues": names, "job_id": job_id})
        lease = self._leases["worker_lease_seconds"]
        alive = [row for row in workers.values() if not row["is_over"] and row["silent_seconds"] < lease]
        states: dict[str, QueueState] = {}
        for name in names:
            serving = [row for row in alive if serves(row["queues"], name)]
            # The queue of a `run` is taken over by those who serve all, once its own worker is dead.
            serving = serving or [row for row in alive if not row["queues"]]
            states[name] = QueueState(
                workers=len(serving),
                slots=sum(row["concurrency"] for row in serving),
                busy=sum(min(row["running"] or 0, row["concurrency"]) for row in serving),
                processes=sum(row["processes"] or 0 for row in serving),
                processes_busy=sum(row["processes_busy"] or 0 for row in serving),
            )
        return {row["task_id"]: row["queue_position"] for row in rows}, states

    def _task(self, row: Record, workers: Mapping[int, dict[str, Any]], places: Mapping[int, int]) -> InFlightTask:
        held_by = None if row["worker_id"] is None else workers.get(row["worker_id"])
        return InFlightTask(
            queue=row["queue"],
            dispatched_at=row["dispatched_at"],
            worker=None if row["worker_id"] is None else self._worker(row["worker_id"], held_by),
            claimed_at=row["claimed_at"],
            has_begun=None if held_by is None else _has_begun(row, held_by),
            begun_at=None if held_by is None else _begun_at(row, held_by),
            stop_requested_at=row["stop_requested_at"],
            progress=None if row["progress"] is None else json.loads(row["progress"]),
            queue_position=places.get(row["task_id"]),
        )

    def _worker(self, worker_id: int, row: dict[str, Any] | None) -> Service:
        return Service(
            id=str(worker_id),
            where="of old" if row is None else f"{row['host']}:{row['pid']}",
            silent_seconds=0.0 if row is None else row["silent_seconds"],
            lease_seconds=self._leases["worker_lease_seconds"],
            is_over=row is None or row["is_over"],
        )


def serves(queues: Collection[str], queue: str) -> bool:
    """Return whether a worker takes tasks of a queue. One without queues serves all, but no `run`'s own."""
    return queue in queues or (not queues and not queue.startswith(_RUN))


def _rebuilt(graph: Graph, head: Record, rows: list[Record]) -> tuple[Job, str | None]:
    """Return the job, and the error if its rows cannot be rebuilt."""
    try:
        return Job.rebuild(graph, job_row(head), map(node_row, rows)), None
    except Exception as error:  # noqa: BLE001 - the job that cannot be read is the one that is asked about
        return Job.rebuild(graph, job_row(head), ()), type(error).__name__


def _trouble(head: Record, stumbled: str | None) -> AdvanceFailure | None:
    if head["trouble"] is None:
        return None if stumbled is None else AdvanceFailure(error=stumbled, retry_in_seconds=0.0)
    until, error = json.loads(head["trouble"])
    left = until - head["now"]
    # The owner says it with its next heartbeat when it is over.
    return AdvanceFailure(error=error, retry_in_seconds=left) if left > -_LATE_SECONDS else None


def _has_begun(task: Record, worker: dict[str, Any]) -> bool | None:
    if task["progress"] is not None:
        return True
    if worker["begun"] is None:
        return None
    if str(task["task_id"]) in worker["begun"]:
        return True
    return False if task["claimed_at"] < worker["heartbeat_at"] - _JUST_TAKEN_SECONDS else None


def _begun_at(task: Record, worker: dict[str, Any]) -> float | None:
    """Return when its handler began: the worker says since how many seconds, as it sends its heartbeat."""
    seconds = (worker["begun"] or {}).get(str(task["task_id"]))
    return None if seconds is None else float(worker["heartbeat_at"] - seconds)


def _attempts(rows: Iterable[Record]) -> dict[str, FinishedAttempt]:
    return {
        row["node_id"]: FinishedAttempt(
            attempt=row["attempt"], status=row["status"], at=row["at"], seconds=row["seconds"], where=row["where"]
        )
        for row in rows
    }

"""The oracle: an independent model of what a correct store may do.

It observes the operations of the database and keeps its own state: owners and claims, heartbeats, dispatched
tasks, accepted reports. It relies on no check of the store, so that it notices a missing one. At the end it
checks every row. It knows statuses by their names, and nothing of the engine.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from dagmaster.simulation.final_state import TERMINAL, check_finished_job, violate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagmaster.ports.job_records import Accepted, ClaimedJob, NewJob
    from dagmaster.ports.task_ledger import TaskReport
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.ports.turn_records import TurnCommit
    from dagmaster.store.memory.database import MemoryDatabase, StoredJob

STATE: Final = (
    "_owners", "_epochs", "_heartbeats", "_stopped", "_draining", "_dispatched", "_attempts", "_claims",
    "_finished", "_terminal", "_keys", "_failures", "_cancelled",
)  # fmt: skip

JOURNAL: Final = frozenset({"append_logs", "checkpoint", "mark_started", "progress"})
"""The operations of the task journal."""


class Oracle:
    """The oracle of one simulation."""

    def __init__(
        self, database: MemoryDatabase, *, lease_seconds: float, worker_lease_seconds: float
    ) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._worker_lease_seconds = worker_lease_seconds
        self._owners: dict[str, tuple[str, int]] = {}
        self._epochs: dict[str, int] = {}
        self._heartbeats: dict[str, float] = {}
        self._stopped: set[str] = set()
        self._draining: set[str] = set()
        self._dispatched: dict[str, tuple[str, str, int]] = {}
        self._attempts: dict[tuple[str, str, int], str] = {}
        self._claims: dict[str, tuple[str, int]] = {}
        self._finished: dict[str, str] = {}
        self._terminal: dict[tuple[str, str], tuple[int, str, Any]] = {}
        self._keys: dict[tuple[str, str], str] = {}
        # The run in which a cancel of a node was requested last.
        self._cancelled: dict[tuple[str, str], int] = {}
        self._failures: Counter[tuple[str, str]] = Counter()
        self._before: dict[tuple[str, str], Any] = {}
        self.accepted: set[str] = set()
        self._checks: dict[str, Callable[[Any, tuple[Any, ...], Any], None]] = {
            "register": self._registered,
            "heartbeat": self._heartbeat,
            "claim": self._claimed,
            "claim_exclusive": self._exclusive_claimed,
            "load_owned": self._loaded,
            "reclaim": self._reclaimed,
            "deregister": self._deregistered,
            "release_jobs": self._jobs_released,
            "drain": self._drain_requested,
            "undrain": self._drain_withdrawn,
            "commit_turns": self._committed,
            "report": self._reported,
            "release": self._released,
            "mark_lost_tasks": self._marked_lost,
            "release_stopped": self._released_stopped,
            "checkpoint": self._journal_written,
            "progress": self._journal_written,
            "mark_started": self._journal_written,
            "append_logs": self._journal_written,
            "submit": self._submitted,
        }

    def state(self) -> list[Any]:
        return [getattr(self, name) for name in STATE]

    def restore(self, state: list[Any]) -> None:
        for name, value in zip(STATE, state, strict=True):
            setattr(self, name, value)

    def failures(self, job_id: str, node_id: str) -> int:
        return self._failures[job_id, node_id]

    def before(self, name: str, args: tuple[Any, ...]) -> None:
        if name in JOURNAL:
            self._before = self._journal_of_others(name, args[0])

    def after(self, name: str, store: Any, args: tuple[Any, ...], value: Any) -> None:
        """Check an executed operation, whether or not its response arrives."""
        check = self._checks.get(name)
        if check is not None:
            check(store, args, value)

    # ── Leases ──

    def _registered(self, store: Any, _args: tuple[Any, ...], _value: Any) -> None:
        self._heartbeats[_name(store)] = self._now()

    def _heartbeat(self, store: Any, _args: tuple[Any, ...], value: Any) -> None:
        if hasattr(store, "owner_id") or value is not None:
            self._heartbeats[_name(store)] = self._now()
        self._find_removed_tasks(by_expiry=False)

    def _deregistered(self, store: Any, _args: tuple[Any, ...], _value: Any) -> None:
        self._stopped.add(_name(store))
        self._jobs_released(store, (), None)
        self._find_removed_tasks(by_expiry=False)

    # ── Drains ──

    def _drain_requested(self, _store: Any, args: tuple[Any, ...], value: bool) -> None:  # noqa: FBT001 - out
        if value:
            self._draining.add(args[0])

    def _drain_withdrawn(self, _store: Any, args: tuple[Any, ...], _value: Any) -> None:
        self._draining.discard(args[0])

    def _jobs_released(self, store: Any, _args: tuple[Any, ...], _value: Any) -> None:
        for job_id, (owner, _) in list(self._owners.items()):
            if owner == _name(store):
                del self._owners[job_id]

    def _now(self) -> float:
        return self._database.clock.now()

    def _may_be_dead(self, service: str, lease_seconds: float) -> bool:
        return service in self._stopped or self._now() - self._heartbeats.get(service, 0.0) >= lease_seconds

    # ── Ownership ──

    def _claimed(self, store: Any, _args: tuple[Any, ...], value: list[Any]) -> None:
        if value and _name(store).split()[-1] in self._draining:
            violate(f"{_name(store)} claimed something although it was asked to drain")
        if hasattr(store, "owner_id"):
            self._jobs_claimed(store, value)
        else:
            self._tasks_claimed(store, value)

    def _jobs_claimed(self, store: Any, claimed: list[ClaimedJob]) -> None:
        for job in claimed:
            job_id = job.row.id
            if job_id in self._owners:
                owner, epoch = self._owners[job_id]
                violate(f"job {job_id} was claimed by {_name(store)} while {owner} owns it (epoch {epoch})")
            self._own(store, job)

    def _loaded(self, store: Any, _args: tuple[Any, ...], loaded: list[ClaimedJob]) -> None:
        for job in loaded:
            owner = self._owners.get(job.row.id, ("no orchestrator", 0))[0]
            if owner != _name(store):
                violate(f"job {job.row.id} was loaded by {_name(store)}, and {owner} owns it")
            self._own(store, job)

    def _own(self, store: Any, claimed: ClaimedJob) -> None:
        job_id = claimed.row.id
        if claimed.epoch <= self._epochs.get(job_id, 0):
            violate(
                f"job {job_id} was claimed twice with epoch {claimed.epoch}: stale writes cannot be"
                " distinguished"
            )
        self._epochs[job_id] = claimed.epoch
        self._owners[job_id] = (_name(store), claimed.epoch)

    def _reclaimed(self, store: Any, _args: tuple[Any, ...], _value: Any) -> None:
        for job_id, (owner, _) in list(self._owners.items()):
            if self._database.jobs[job_id].owner_id is None:
                if not self._may_be_dead(owner, self._lease_seconds):
                    violate(f"{owner} was expired by {_name(store)} within its lease")
                del self._owners[job_id]

    # ── Turns ──

    def _committed(self, store: Any, args: tuple[Any, ...], written: set[str]) -> None:
        for turn in args[0]:
            if turn.job.id in written:
                self._turn_committed(store, turn)

    def _turn_committed(self, store: Any, turn: TurnCommit) -> None:
        job_id = turn.job.id
        if self._owners.get(job_id) != (_name(store), turn.epoch):
            violate(
                f"a stale write was accepted: job {job_id} by {_name(store)}, epoch {turn.epoch}; it is owned"
                " by "
                f"{self._owners.get(job_id)}"
            )
        job = self._database.jobs[job_id]
        for task in turn.tasks:
            self._is_dispatched(job, task.task_id, task.node_id, task.attempt)
        self._nodes_cancelled(turn)
        self._check_terminal(job)
        self._find_removed_tasks(by_expiry=False)
        if job.row.stopping:
            self._check_stops(job_id)
        if job.owner_id is None:
            del self._owners[job_id]

    def _is_dispatched(self, job: StoredJob, task_id: str, node_id: str, attempt: int) -> None:
        job_id = job.new.id
        terminal = self._terminal.get((job_id, node_id))
        if terminal is not None and terminal[0] == job.row.run and terminal[1] == "COMPLETED":
            violate(f"node {node_id} of job {job_id} completed, and is dispatched again in the same run")
        for name in _with_fan_outs(node_id):
            if self._cancelled.get((job_id, name)) == job.row.run:
                violate(
                    f"node {name} of job {job_id} was cancelled, and {node_id} is dispatched in the same run"
                )
        if (job_id, node_id, attempt) in self._attempts:
            violate(f"attempt {attempt} at node {node_id} of job {job_id} was dispatched twice")
        self._attempts[job_id, node_id, attempt] = task_id
        self._dispatched[task_id] = (job_id, node_id, attempt)

    def _nodes_cancelled(self, turn: TurnCommit) -> None:
        """Record the nodes whose cancel a turn accepted. What it dispatched itself came before."""
        run = turn.job.run
        for event in reversed(turn.events):
            if event.type == "JobResumed":
                run -= 1
            elif event.type == "NodeCancelRequested":
                names = json.loads(event.data or "{}")["nodes"]
                self._cancelled |= {(turn.job.id, name): run for name in names}

    def _check_stops(self, job_id: str) -> None:
        """Check that every task of a stopped job was asked to stop: nothing else would end it soon."""
        for task in self._database.queue.values():
            if task.job_id == job_id and task.stop_requested_at is None:
                violate(
                    f"job {job_id} is stopping, and its task {task.task_id} ({task.node_id}) was not asked to"
                    " stop"
                )

    def _check_terminal(self, job: StoredJob) -> None:
        """Check that a terminal status never changes within a run.

        Superseded children may run again: ADR 0005.
        """
        run = job.row.run
        for node_id, node in job.nodes.items():
            status, reason = node.row.status.value, node.row.skip_reason
            if reason is not None and reason.value == "superseded":
                self._terminal.pop((job.new.id, node_id), None)
                continue
            key = (job.new.id, node_id)
            before = self._terminal.get(key)
            if before is not None and before[0] == run and before[1:] != (status, _text(node.output)):
                violate(
                    f"node {node_id} of job {job.new.id} was {before[1]}, and is {status} in the same run"
                    f" {run}"
                )
            if status in TERMINAL:
                self._terminal[key] = (run, status, _text(node.output))
            else:
                self._terminal.pop(key, None)

    # ── Tasks ──

    def _exclusive_claimed(self, store: Any, _args: tuple[Any, ...], task: ClaimedTask | None) -> None:
        self._tasks_claimed(store, [] if task is None else [task])

    def _tasks_claimed(self, store: Any, claimed: list[ClaimedTask]) -> None:
        for task in claimed:
            name = f"task {task.task_id} ({task.node_id}, attempt {task.attempt})"
            if task.task_id not in self._dispatched:
                violate(f"{name} was claimed, and no accepted turn dispatched it")
            if task.task_id in self._finished:
                violate(f"{name} was claimed, and has finished: {self._finished[task.task_id]}")
            if task.task_id in self._claims:
                violate(f"{name} was claimed by {_name(store)} while {self._claims[task.task_id][0]} has it")
            self._claims[task.task_id] = (_name(store), task.token)

    def _reported(self, store: Any, args: tuple[Any, ...], accepted: set[str]) -> None:
        reports: list[TaskReport] = args[0]
        for report in reports:
            if report.task_id not in accepted:
                continue
            holder = self._claims.pop(report.task_id, None)
            if holder != (_name(store), report.token):
                violate(
                    f"a stale report was accepted: task {report.task_id} by {_name(store)}, claimed by"
                    f" {holder}"
                )
            if report.task_id in self._database.queue:
                violate(f"task {report.task_id} was reported, and is still in its queue")
            self._finish(report.task_id, report.status)

    def _released(self, store: Any, args: tuple[Any, ...], released: set[str]) -> None:
        for report in args[0]:
            if report.task_id in released:
                holder = self._claims.pop(report.task_id, None)
                if holder != (_name(store), report.token):
                    violate(
                        f"task {report.task_id} was released by {_name(store)}, and is claimed by {holder}"
                    )

    def _finish(self, task_id: str, status: str) -> None:
        if task_id in self._finished:
            violate(f"task {task_id} was reported twice: {self._finished[task_id]}, and {status}")
        self._finished[task_id] = status
        job_id, node_id, _ = self._dispatched[task_id]
        self._failures[job_id, node_id] += status == "FAILED"

    def _marked_lost(self, _store: Any, _args: tuple[Any, ...], _value: Any) -> None:
        self._find_removed_tasks(by_expiry=True)

    def _released_stopped(self, _store: Any, _args: tuple[Any, ...], _value: Any) -> None:
        self._find_removed_tasks(by_expiry=False)

    def _find_removed_tasks(self, *, by_expiry: bool) -> None:
        """Finish the tasks that left their queue without a report of their worker."""
        queue = self._database.queue
        held = Counter(worker for worker, _ in self._claims.values())
        for task_id in [
            each for each in self._dispatched if each not in self._finished and each not in queue
        ]:
            holder = self._claims.pop(task_id, None)
            if holder is not None and by_expiry:
                self._check_charge(task_id, holder[0], held[holder[0]])
            if (
                holder is not None
                and by_expiry
                and not self._may_be_dead(holder[0], self._worker_lease_seconds)
            ):
                violate(f"{holder[0]} was expired within its lease: task {task_id} was lost")
            self._finish(task_id, "LOST" if by_expiry else "RELEASED")

    def _check_charge(self, task_id: str, worker: str, held: int) -> None:
        """Check that a lost task was charged exactly if its worker held no other."""
        results = (stored for stored in self._database.results.values() if stored.task.task_id == task_id)
        is_charged = any(json.loads(stored.result.error or "{}").get("alone") for stored in results)
        if is_charged != (held == 1):
            violate(
                f"task {task_id} was {'' if is_charged else 'not '}charged: {worker} died with {held} tasks"
            )

    def _journal_written(self, store: Any, args: tuple[Any, ...], _value: Any) -> None:
        before, self._before = self._before, {}
        if before != {key: self._journal_entry(*key) for key in before}:
            written = "the start, logs, progress or a checkpoint"
            violate(f"{_name(store)} wrote {written} of a task that it has not claimed: {args[0]}")

    def _journal_of_others(self, name: str, entries: Any) -> dict[tuple[str, str], Any]:
        """Return the journal entries of tasks claimed with another token: this call must not change them."""
        tokens = (
            [(task_id, token) for task_id, (token, _) in entries.items()]
            if isinstance(entries, dict)
            else [(entry.task_id, entry.token) for entry in entries]
        )
        # By token alone: an expired worker that registered again may still send earlier entries.
        claimed = {task_id for task_id, token in tokens if self._claims.get(task_id, ("", 0))[1] == token}
        # Two attempts at a node share its checkpoint, which the claimed one may write.
        written = {self._dispatched[task_id][:2] for task_id in claimed} if name == "checkpoint" else set()
        return {
            (name, task_id): self._journal_entry(name, task_id)
            for task_id, _ in tokens
            if task_id not in claimed and self._dispatched.get(task_id, ("", "", 0))[:2] not in written
        }

    def _journal_entry(self, name: str, task_id: str) -> Any:
        database = self._database
        if name == "append_logs":
            return sum(1 for key in database.logs if key[0] == task_id)
        if name in ("mark_started", "progress"):
            task = database.queue.get(task_id)
            return None if task is None else (task.started_at, task.progress)
        dispatched = self._dispatched.get(task_id)
        return None if dispatched is None else database.checkpoints.get(dispatched[:2])

    # ── Submissions ──

    def _submitted(self, _store: Any, args: tuple[Any, ...], accepted: list[Accepted]) -> None:
        jobs: list[NewJob] = args[0]
        for job, result in zip(jobs, accepted, strict=True):
            if job.idempotency_key is not None:
                first = self._keys.setdefault((job.submitted_by, job.idempotency_key), result.job_id)
                if first != result.job_id:
                    violate(f"key {job.idempotency_key!r} made two jobs: {first} and {result.job_id}")

    # ── Final state ──

    def check_final_state(self) -> None:
        """Check that all jobs have finished, in their rows and in the audit log."""
        database = self._database
        for job_id in self.accepted:
            if job_id not in database.jobs:
                violate(f"job {job_id} was accepted, and is lost")
        for kind, rows in (
            ("a task", database.queue),
            ("a result", database.results),
            ("a command", database.inbox),
        ):
            for row in rows.values():
                violate(f"{kind} is left behind: {row}")
        for job in database.jobs.values():
            self._check_terminal(job)
            check_finished_job(job, database, self._outcome_of)

    def _outcome_of(self, job_id: str, node_id: str, attempt: int) -> str | None:
        """Return how a dispatched attempt ended, by its report; None if it was not dispatched."""
        task_id = self._attempts.get((job_id, node_id, attempt))
        return None if task_id is None else self._finished.get(task_id, "not reported")


def _with_fan_outs(node_id: str) -> Iterator[str]:
    """Yield a node and the fan-outs that it is a child of: a__0__3, a__0, a."""
    yield node_id
    fan_out, separator, index = node_id.rpartition("__")
    if separator and index.isdecimal():
        yield from _with_fan_outs(fan_out)


def _name(store: Any) -> str:
    if hasattr(store, "owner_id"):
        return f"orchestrator {store.owner_id}"
    return f"worker {store.worker_id}" if hasattr(store, "worker_id") else "client"


def _text(output: Any) -> Any:
    return None if output is None else (output.text, output.ref)

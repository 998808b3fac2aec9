"""The oracle: what is true, seen from outside.

It sits where operations are carried out and keeps books of its own: who claimed what, who was heard of when, what was
dispatched, what was reported by whom. It asks no guard of the store; so it notices when one is missing. At the end it
looks at every row that is left. It knows statuses by their names, and nothing of the engine.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.ports.job_records import Accepted, ClaimedJob, NewJob
    from dagmaster.ports.task_ledger import TaskReport
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.ports.turn_records import TurnCommit
    from dagmaster.store.memory.database import MemoryDatabase, StoredJob

OVER: Final = ("COMPLETED", "FAILED", "CANCELLED")
SETTLED: Final = (*OVER, "SKIPPED")


BOOKS: Final = (
    "_owners", "_epochs", "_heard", "_left", "_dispatched", "_attempts", "_holders", "_over", "_settled", "_keys",
    "_failures",
)  # fmt: skip


class Violation(AssertionError):
    """A promise was broken."""


class Oracle:
    """The books of one simulation."""

    def __init__(self, database: MemoryDatabase, *, lease_seconds: float, worker_lease_seconds: float) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._worker_lease_seconds = worker_lease_seconds
        self._owners: dict[str, tuple[str, int]] = {}
        self._epochs: dict[str, int] = {}
        self._heard: dict[str, float] = {}
        self._left: set[str] = set()
        self._dispatched: dict[str, tuple[str, str, int]] = {}
        self._attempts: dict[tuple[str, str, int], str] = {}
        self._holders: dict[str, tuple[str, int]] = {}
        self._over: dict[str, str] = {}
        self._settled: dict[tuple[str, str], tuple[int, str, Any]] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._failures: Counter[tuple[str, str]] = Counter()
        self._before: dict[tuple[str, str], Any] = {}
        self.accepted: set[str] = set()
        self._watch: dict[str, Callable[[Any, tuple[Any, ...], Any], None]] = {
            "register": self._registered,
            "heartbeat": self._beaten,
            "claim": self._claimed,
            "load_owned": self._loaded,
            "reclaim": self._reclaimed,
            "deregister": self._has_left,
            "commit_turns": self._written,
            "report": self._reported,
            "release": self._released,
            "mark_lost_tasks": self._lost,
            "release_stopped": self._swept,
            "checkpoint": self._noted,
            "progress": self._noted,
            "append_logs": self._noted,
            "submit": self._submitted,
        }

    def books(self) -> list[Any]:
        """Return what is known so far."""
        return [getattr(self, name) for name in BOOKS]

    def open_books(self, books: list[Any]) -> None:
        """Know this instead."""
        for name, book in zip(BOOKS, books, strict=True):
            setattr(self, name, book)

    def failures(self, job_id: str, node_id: str) -> int:
        """Return how often a node failed by its own fault."""
        return self._failures[job_id, node_id]

    def before(self, name: str, args: tuple[Any, ...]) -> None:
        """Record that an operation is about to be carried out."""
        if name in ("checkpoint", "progress", "append_logs"):
            self._before = self._notes(name, args[0])

    def after(self, name: str, store: Any, args: tuple[Any, ...], value: Any) -> None:
        """Check an operation that was carried out, whether or not its answer arrives."""
        watch = self._watch.get(name)
        if watch is not None:
            watch(store, args, value)

    # ── Who is alive ──

    def _registered(self, store: Any, _args: tuple[Any, ...], _value: Any) -> None:
        self._heard[_name(store)] = self._now()

    def _beaten(self, store: Any, _args: tuple[Any, ...], value: Any) -> None:
        if hasattr(store, "owner_id") or value is not None:
            self._heard[_name(store)] = self._now()
        self._look_for_lost_tasks(by_burial=False)

    def _has_left(self, store: Any, _args: tuple[Any, ...], _value: Any) -> None:
        self._left.add(_name(store))
        for job_id, (owner, _) in list(self._owners.items()):
            if owner == _name(store):
                del self._owners[job_id]
        self._look_for_lost_tasks(by_burial=False)

    def _now(self) -> float:
        return self._database.clock.now()

    def _may_be_dead(self, who: str, lease_seconds: float) -> bool:
        return who in self._left or self._now() - self._heard.get(who, 0.0) >= lease_seconds

    # ── Who owns what ──

    def _claimed(self, store: Any, _args: tuple[Any, ...], value: list[Any]) -> None:
        if hasattr(store, "owner_id"):
            self._jobs_claimed(store, value)
        else:
            self._tasks_claimed(store, value)

    def _jobs_claimed(self, store: Any, claimed: list[ClaimedJob]) -> None:
        for each in claimed:
            job_id = each.row.id
            if job_id in self._owners:
                owner, epoch = self._owners[job_id]
                _broken(f"job {job_id} was claimed by {_name(store)} while {owner} owns it (epoch {epoch})")
            self._own(store, each)

    def _loaded(self, store: Any, _args: tuple[Any, ...], loaded: list[ClaimedJob]) -> None:
        for each in loaded:
            owner = self._owners.get(each.row.id, ("nobody", 0))[0]
            if owner != _name(store):
                _broken(f"job {each.row.id} was loaded by {_name(store)}, and {owner} owns it")
            self._own(store, each)

    def _own(self, store: Any, claimed: ClaimedJob) -> None:
        job_id = claimed.row.id
        if claimed.epoch <= self._epochs.get(job_id, 0):
            _broken(f"job {job_id} was claimed twice with epoch {claimed.epoch}: stale writes cannot be told apart")
        self._epochs[job_id] = claimed.epoch
        self._owners[job_id] = (_name(store), claimed.epoch)

    def _reclaimed(self, store: Any, _args: tuple[Any, ...], _value: Any) -> None:
        for job_id, (owner, _) in list(self._owners.items()):
            if self._database.jobs[job_id].owner_id is None:
                if not self._may_be_dead(owner, self._lease_seconds):
                    _broken(f"{owner} was declared dead by {_name(store)}, and was heard of within its lease")
                del self._owners[job_id]

    # ── Turns ──

    def _written(self, store: Any, args: tuple[Any, ...], written: set[str]) -> None:
        for turn in args[0]:
            if turn.job.id in written:
                self._turn_written(store, turn)

    def _turn_written(self, store: Any, turn: TurnCommit) -> None:
        job_id = turn.job.id
        if self._owners.get(job_id) != (_name(store), turn.epoch):
            _broken(
                f"a stale write was accepted: job {job_id} by {_name(store)}, epoch {turn.epoch}; it is held by "
                f"{self._owners.get(job_id)}"
            )
        job = self._database.jobs[job_id]
        for task in turn.tasks:
            self._is_dispatched(job, task.task_id, task.node_id, task.attempt)
        self._look_at(job)
        self._look_for_lost_tasks(by_burial=False)
        if job.owner_id is None:
            del self._owners[job_id]

    def _is_dispatched(self, job: StoredJob, task_id: str, node_id: str, attempt: int) -> None:
        job_id = job.new.id
        settled = self._settled.get((job_id, node_id))
        if settled is not None and settled[0] == job.row.run and settled[1] == "COMPLETED":
            _broken(f"node {node_id} of job {job_id} completed, and is dispatched again in the same run")
        if (job_id, node_id, attempt) in self._attempts:
            _broken(f"attempt {attempt} at node {node_id} of job {job_id} was dispatched twice")
        self._attempts[job_id, node_id, attempt] = task_id
        self._dispatched[task_id] = (job_id, node_id, attempt)

    def _look_at(self, job: StoredJob) -> None:
        """Check that a terminal state which was seen is never taken back."""
        run = job.row.run
        for node_id, node in job.nodes.items():
            status = node.row.status.value
            key = (job.new.id, node_id)
            seen = self._settled.get(key)
            if seen is not None and seen[0] == run and seen[1:] != (status, _text(node.output)):
                _broken(f"node {node_id} of job {job.new.id} was {seen[1]}, and is {status} in the same run {run}")
            if status in SETTLED:
                self._settled[key] = (run, status, _text(node.output))
            else:
                self._settled.pop(key, None)

    # ── Tasks ──

    def _tasks_claimed(self, store: Any, claimed: list[ClaimedTask]) -> None:
        for task in claimed:
            what = f"task {task.task_id} ({task.node_id}, attempt {task.attempt})"
            if task.task_id not in self._dispatched:
                _broken(f"{what} was claimed, and no turn that was accepted dispatched it")
            if task.task_id in self._over:
                _broken(f"{what} was claimed, and it is over: {self._over[task.task_id]}")
            if task.task_id in self._holders:
                _broken(f"{what} was claimed by {_name(store)} while {self._holders[task.task_id][0]} holds it")
            self._holders[task.task_id] = (_name(store), task.token)

    def _reported(self, store: Any, args: tuple[Any, ...], accepted: set[str]) -> None:
        reports: list[TaskReport] = args[0]
        for report in reports:
            if report.task_id not in accepted:
                continue
            holder = self._holders.pop(report.task_id, None)
            if holder != (_name(store), report.token):
                _broken(f"a stale report was accepted: task {report.task_id} by {_name(store)}, held by {holder}")
            if report.task_id in self._database.queue:
                _broken(f"task {report.task_id} was reported, and is still in its queue")
            self._is_over(report.task_id, report.status)

    def _released(self, store: Any, args: tuple[Any, ...], free: set[str]) -> None:
        for report in args[0]:
            if report.task_id in free:
                holder = self._holders.pop(report.task_id, None)
                if holder != (_name(store), report.token):
                    _broken(f"task {report.task_id} was let go by {_name(store)}, and is held by {holder}")

    def _is_over(self, task_id: str, how: str) -> None:
        if task_id in self._over:
            _broken(f"task {task_id} was reported twice: {self._over[task_id]}, and {how}")
        self._over[task_id] = how
        job_id, node_id, _ = self._dispatched[task_id]
        self._failures[job_id, node_id] += how == "FAILED"

    def _lost(self, _store: Any, _args: tuple[Any, ...], _value: Any) -> None:
        self._look_for_lost_tasks(by_burial=True)

    def _swept(self, _store: Any, _args: tuple[Any, ...], _value: Any) -> None:
        self._look_for_lost_tasks(by_burial=False)

    def _look_for_lost_tasks(self, *, by_burial: bool) -> None:
        """Tasks that are out of their queue, and were not reported by who held them."""
        queue = self._database.queue
        for task_id in [each for each in self._dispatched if each not in self._over and each not in queue]:
            holder = self._holders.pop(task_id, None)
            if holder is not None and by_burial and not self._may_be_dead(holder[0], self._worker_lease_seconds):
                _broken(f"{holder[0]} was declared dead, and was heard of within its lease: task {task_id} was lost")
            self._is_over(task_id, "LOST" if by_burial else "RELEASED")

    def _noted(self, store: Any, args: tuple[Any, ...], _value: Any) -> None:
        before, self._before = self._before, {}
        if before != {key: self._note(*key) for key in before}:
            _broken(f"{_name(store)} wrote a note of a task that it does not hold: {args[0]}")

    def _notes(self, name: str, said: Any) -> dict[tuple[str, str], Any]:
        """Return the notes that this call must leave as they are: those of tasks that are not held by this token."""
        tokens = (
            [(task_id, token) for task_id, (token, _) in said.items()]
            if isinstance(said, dict)
            else [(each.task_id, each.token) for each in said]
        )
        # By its token alone: who was given up and has another name by now may still say what it said.
        held = {task_id for task_id, token in tokens if self._holders.get(task_id, ("", 0))[1] == token}
        # Two attempts at a node share its checkpoint, which the one that is held may write.
        written = {self._dispatched[task_id][:2] for task_id in held} if name == "checkpoint" else set()
        return {
            (name, task_id): self._note(name, task_id)
            for task_id, _ in tokens
            if task_id not in held and self._dispatched.get(task_id, ("", "", 0))[:2] not in written
        }

    def _note(self, name: str, task_id: str) -> Any:
        database = self._database
        if name == "append_logs":
            return sum(1 for key in database.logs if key[0] == task_id)
        if name == "progress":
            task = database.queue.get(task_id)
            return None if task is None else task.progress
        found = self._dispatched.get(task_id)
        return None if found is None else database.checkpoints.get(found[:2])

    # ── Jobs that come in ──

    def _submitted(self, _store: Any, args: tuple[Any, ...], answers: list[Accepted]) -> None:
        jobs: list[NewJob] = args[0]
        for job, answer in zip(jobs, answers, strict=True):
            if job.idempotency_key is not None:
                first = self._keys.setdefault((job.submitted_by, job.idempotency_key), answer.job_id)
                if first != answer.job_id:
                    _broken(f"key {job.idempotency_key!r} made two jobs: {first} and {answer.job_id}")

    # ── At the end ──

    def look_at_everything(self) -> None:
        """Check that all jobs have finished, in their rows and in the audit log."""
        database = self._database
        for job_id in self.accepted:
            if job_id not in database.jobs:
                _broken(f"job {job_id} was accepted, and is lost")
        for what, rows in (("a task", database.queue), ("a result", database.results), ("a command", database.inbox)):
            for row in rows.values():
                _broken(f"{what} is left behind: {row}")
        for job in database.jobs.values():
            self._look_at_job(job)

    def _look_at_job(self, job: StoredJob) -> None:
        job_id = job.new.id
        if job.row.status.value not in OVER:
            _broken(f"job {job_id} is {job.row.status.value} at the end")
        self._look_at(job)
        if [event.seq for event in job.events] != list(range(1, len(job.events) + 1)):
            _broken(f"the trail of job {job_id} has gaps: {[event.seq for event in job.events]}")
        kinds = Counter(event.type for event in job.events)
        if kinds["JobStarted"] != 1 or not 1 <= kinds["JobFinished"] <= job.row.run:
            _broken(f"the trail of job {job_id} does not tell one life: {dict(kinds)}")
        epochs = [event.data["epoch"] for event in job.events if event.type == "JobClaimed"]
        if epochs != sorted(set(epochs)):
            _broken(f"the epochs of job {job_id} do not grow: {epochs}")
        run, completed = 1, set[tuple[str | None, int]]()
        for event in job.events:
            run += event.type == "JobResumed"
            if event.type == "NodeCompleted":
                if (event.node, run) in completed:
                    _broken(f"node {event.node} of job {job_id} completed twice in run {run}")
                completed.add((event.node, run))
        self._look_at_nodes(job)

    def _look_at_nodes(self, job: StoredJob) -> None:
        job_id = job.new.id
        children: dict[str, list[int]] = {}
        for node_id, node in job.nodes.items():
            row = node.row
            if row.status.value not in SETTLED:
                _broken(f"job {job_id} is over, and its node {node_id} is {row.status.value}")
            if row.parent is not None and row.fan_out_index is not None:
                children.setdefault(row.parent, []).append(row.fan_out_index)
            if node.output is not None and node.task_id is not None:
                made = json.loads(node.output.text or "{}").get("attempt", row.attempt)
                if made != row.attempt:
                    _broken(f"job {job_id}: the output of {node_id} is of attempt {made}, and it is at {row.attempt}")
            told = [event.type for event in job.events if event.node == node_id]
            if not told:
                _broken(f"job {job_id}: no event tells of node {node_id}, which is {row.status.value}")
            attempts = sorted(key[2] for key in self._database.attempts if key[:2] == (job_id, node_id))
            if attempts != list(range(1, len(attempts) + 1)):
                _broken(f"job {job_id}: the attempts at {node_id} are {attempts}")
        for fan_id, numbers in children.items():
            if sorted(numbers) != list(range(len(numbers))):
                _broken(f"job {job_id}: the children of {fan_id} are {sorted(numbers)}")


def _broken(sentence: str) -> None:
    raise Violation(sentence)


def _name(store: Any) -> str:
    if hasattr(store, "owner_id"):
        return f"orchestrator {store.owner_id}"
    return f"worker {store.worker_id}" if hasattr(store, "worker_id") else "client"


def _text(output: Any) -> Any:
    return None if output is None else (output.text, output.ref)

"""Watching a job as lines, its rates, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.application.job_watch import pause_after, watch_job
from dagmaster.application.queries.events_and_logs import event_view
from dagmaster.application.queries.job_detail import snapshot_view
from dagmaster.application.secret_inputs import JobRedactor
from dagmaster.cli.commands.jobs_watch import PlainLines, Rates, WatchScreen, grouped_sentences
from dagmaster.client.system import LocalSystem
from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.audit_events import StoredEvent
from dagmaster.ports.read_records import PendingCommand
from dagmaster.records.nodes import ChildCounts
from tests.unit.application.world import (
    DONE,
    TILES,
    FakeReadStore,
    a_record,
    a_snapshot,
    an_application,
    an_event,
    run,
)

if TYPE_CHECKING:
    from dagmaster.records.jobs import JobRecord


def test_a_rate_is_that_of_the_last_seconds():
    rates = Rates()
    assert rates.per_second("x") is None
    for second in range(20):
        rates.add("x", float(second), 0 if second < 10 else (second - 10) * 100)
    assert rates.per_second("x") == 100.0


def test_the_pause_after_a_long_read_is_bounded():
    """It may have waited for a database that was away."""
    assert [pause_after(seconds) for seconds in (0.0, 0.5, 10.0)] == [0.25, 2.0, 3.0]


def test_many_attempts_that_were_lost_with_a_worker_are_one_line():
    lost = [
        event_view(
            "7",
            StoredEvent(
                seq=n,
                type="AttemptLost",
                at=float(n),
                by="o",
                node_id=f"tiles__{n}",
                attempt=1,
                data={"worker": "h:7"},
            ),
            JobRedactor({}, {}),
        )
        for n in range(93)
    ]
    assert [sentence for _, sentence in grouped_sentences(lost)] == [
        "worker h:7 died with 93 attempts: tiles__0, tiles__1, tiles__2 and 90 more"
    ]
    assert len(list(grouped_sentences(lost[:2]))) == 2


def a_stop(seq: int, **details: object) -> StoredEvent:
    error = {"kind": "cancelled", "message": "the task was asked to stop", **details}
    return an_event(seq, "AttemptFailed", "fetch", error=error)


def test_children_that_are_stopped_by_a_cancel_are_one_line_that_counts_the_killed(capsys):
    events = [an_event(1, "CancelRequested"), *(a_stop(seq) for seq in range(2, 8))]
    store = FakeReadStore([a_record()], stored_events=events)
    lines = PlainLines(LocalSystem(an_application(store)))

    async def work() -> None:
        await lines.print(snapshot_view(a_snapshot(DONE, event_seq=20)))
        # The others are killed later.
        store.stored_events += [a_stop(seq, signal="SIGKILL") for seq in range(8, 11)]
        await lines.print(snapshot_view(a_snapshot(DONE, event_seq=20)))
        store.stored_events.append(an_event(11, "NodeCancelled", "fetch"))
        await lines.print(snapshot_view(a_snapshot(DONE, event_seq=20)))

    run(work())
    printed = [line.split("s  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert printed == [
        "ada requested cancellation",
        "9 attempts ended: 6 stopped on request, 3 did not stop on request: killed",
        "fetch was cancelled",
    ]


def test_lines_are_printed_once_and_progress_at_each_tenth(capsys):
    store = FakeReadStore(
        [a_record()], stored_events=[an_event(1, "JobStarted"), an_event(2, "NodeFailed", "fetch")]
    )
    lines = PlainLines(LocalSystem(an_application(store)))

    async def work() -> None:
        for done in (1, 1, 4, 10):
            children = {"tiles": ChildCounts({NodeStatus.COMPLETED: done})}
            await lines.print(snapshot_view(a_snapshot(DONE, TILES, around={"children": children})))

    run(work())
    printed = [line.split("s  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert printed == [
        "the job starts",
        "fetch failed: no reason is known",
        "tiles: 1 of 10 children finished",
        "tiles: 4 of 10 children finished",
    ]


def test_nothing_is_printed_about_children_after_the_end_of_a_job(capsys):
    events = [an_event(1, "JobStarted"), an_event(2, "NodeCancelled", "tiles")]
    lines = PlainLines(LocalSystem(an_application(FakeReadStore([a_record()], stored_events=events))))
    children = {"tiles": ChildCounts({NodeStatus.COMPLETED: 3, NodeStatus.CANCELLED: 7})}
    ended: dict[str, Any] = {"status": JobStatus.CANCELLED, "finished_at": 109.0}
    run(lines.print(snapshot_view(a_snapshot(DONE, TILES, around={"children": children}, **ended))))
    printed = [line.split("s  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert printed == ["the job starts", "tiles was cancelled"]


def test_events_of_earlier_runs_are_not_printed_again(capsys):
    events = [an_event(1, "NodeFailed", "fetch"), an_event(2, "JobResumed", run=2, count=1)]
    lines = PlainLines(LocalSystem(an_application(FakeReadStore([a_record()], stored_events=events))))
    run(lines.print(snapshot_view(a_snapshot(DONE))))
    assert "fetch failed" not in capsys.readouterr().err


class Flaky(FakeReadStore):
    """A job that finishes with the third read, from a database that is away at the second."""

    count = 0

    async def job(self, job_id: str) -> JobRecord | None:
        self.count += 1
        if self.count == 3:
            raise DatabaseUnavailable("away")
        return (
            a_record()
            if self.count < 5
            else a_record(status=JobStatus.COMPLETED, finished_at=110.0, result={"a": 1})
        )


def test_a_watch_waits_out_an_outage_and_ends_with_the_result():
    store = Flaky([a_record()])
    watched = WatchScreen()
    job = run(watched.follow(LocalSystem(an_application(store)), "7"))
    assert (job.status, job.result) == (JobStatus.COMPLETED, {"a": 1})


def test_a_watch_yields_a_view_only_if_there_is_something_new():
    store = Flaky([a_record()])

    async def work() -> list[JobStatus]:
        return [job.status async for job in watch_job(an_application(store), "7")]

    assert run(work()) == [JobStatus.RUNNING, JobStatus.COMPLETED]


class Resumed(FakeReadStore):
    """A failed job whose resume an orchestrator processes with the fourth read; then the job completes."""

    count = 0

    async def job(self, job_id: str) -> JobRecord | None:
        self.count += 1
        if self.count < 4:
            return a_record(status=JobStatus.FAILED, finished_at=110.0)
        self.commands = []
        return a_record(status=JobStatus.COMPLETED, finished_at=120.0, result={"a": 1})


def test_a_watch_of_a_finished_job_waits_for_its_resume():
    store = Resumed([a_record()], commands=[PendingCommand("1", "resume", "ada", 1.0)])
    job = run(WatchScreen().follow(LocalSystem(an_application(store)), "7"))
    assert (job.status, job.result) == (JobStatus.COMPLETED, {"a": 1})


def test_a_watch_of_a_finished_job_ends_with_a_command_that_does_not_run_it_again():
    store = FakeReadStore(
        [a_record(status=JobStatus.FAILED, finished_at=110.0)],
        commands=[PendingCommand("1", "cancel", "ada", 1.0)],
    )
    assert run(WatchScreen().follow(LocalSystem(an_application(store)), "7")).status is JobStatus.FAILED

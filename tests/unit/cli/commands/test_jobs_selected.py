"""`jobs cancel` and `jobs resume` with filters: they print what they would change, and change it with --yes."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from dagmaster.application.commands import job_selection
from dagmaster.application.commands.job_selection import JobAction
from dagmaster.application.views.results import JobOutcomeView, JobSelectionView, SelectionResult
from dagmaster.cli.commands import jobs_selected
from dagmaster.cli.commands.jobs_control import cancel
from dagmaster.cli.commands.jobs_resume import resume
from dagmaster.engine.status import JobStatus
from tests.unit.application.world import a_record, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.ports.job_filter import JobFilter


class FakeSystem:
    """Answers with two pages of jobs; keeps what was asked and changed."""

    def __init__(self, rejected: int = 0) -> None:
        self.filters: list[tuple[JobAction, JobFilter]] = []
        self.changes: list[tuple[str, str]] = []
        self._rejected = rejected

    def run(self, work: Any) -> Any:
        return run(work(self))

    async def call(self, operation: Any, *args: Any, **kwargs: Any) -> Any:
        if operation is job_selection.select_jobs:
            action, job_filter = args
            self.filters.append((action, job_filter))
            number, following = ("8", "next") if kwargs["cursor"] is None else ("7", None)
            return JobSelectionView(
                action=action,
                jobs=(a_record(job_id=number),),
                token=f"{action}.{number}",
                next_cursor=following,
            )
        assert operation is job_selection.change_selected_jobs
        (token,) = args
        self.changes.append((token, kwargs["comment"]))
        error = {"code": "job_finished", "category": "conflict", "message": "job 7 has finished"}
        is_accepted = not (self._rejected and token.endswith("7"))
        outcome = JobOutcomeView(
            job_id=token[-1],
            accepted=is_accepted,
            sentence="stored" if is_accepted else error["message"],
            error=None if is_accepted else dict(error),
        )
        counts = {"accepted_count": int(is_accepted), "rejected_count": int(not is_accepted)}
        return SelectionResult(action=token.partition(".")[0], outcomes=(outcome,), **counts)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> FakeSystem:
    fake = FakeSystem()
    use(monkeypatch, fake)
    return fake


def use(monkeypatch: pytest.MonkeyPatch, fake: FakeSystem) -> None:
    @contextlib.contextmanager
    def opened(_data_dir: Any) -> Iterator[FakeSystem]:
        yield fake

    monkeypatch.setattr(jobs_selected, "open_session", opened)


def ask(command: Any, *arguments: str, is_standalone: bool = True) -> Result:
    return CliRunner().invoke(command, list(arguments), standalone_mode=is_standalone)


def test_without_yes_the_jobs_are_printed_and_nothing_is_changed(system: FakeSystem):
    done = ask(cancel, "--workflow", "flow", "--status", "waiting")
    assert done.exit_code == 0, done.output
    assert "nothing was changed: to cancel 1 job or more, add --yes" in done.stderr
    assert "8" in done.stdout
    ((action, job_filter),) = system.filters
    assert (action, job_filter.workflow_id) == (JobAction.CANCEL, "flow")
    assert job_filter.statuses == frozenset({JobStatus.WAITING})
    assert system.changes == []


def test_with_yes_every_page_is_changed(system: FakeSystem):
    done = ask(cancel, "--workflow", "flow", "--yes", "--comment", "wrong year")
    assert done.exit_code == 0, done.output
    assert system.changes == [("cancel.8", "wrong year"), ("cancel.7", "wrong year")]
    assert "cancel: 2 jobs accepted" in done.stdout
    done = ask(resume, "--status", "failed", "--yes", "--json")
    assert [one["job_id"] for one in json.loads(done.stdout)] == ["8", "7"]


def test_a_job_that_is_rejected_is_named_and_the_exit_code_says_so(monkeypatch: pytest.MonkeyPatch):
    use(monkeypatch, FakeSystem(rejected=1))
    done = ask(resume, "--status", "failed", "--yes", is_standalone=False)
    assert done.return_value == 2
    assert "7: job 7 has finished" in done.stderr
    assert "resume: 1 job accepted; 1 job not" in done.stdout


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (cancel, [], "name a JOB"),
        (resume, [], "name a JOB"),
        (cancel, ["7", "--status", "running"], "not both"),
        (cancel, ["7", "--yes"], "--yes goes with filters"),
        (cancel, ["--status", "running", "--wait"], "--wait waits for the end of one job"),
        (resume, ["--status", "failed", "--from", "a"], "only add --yes"),
        (resume, ["--status", "failed", "--dry-run"], "only add --yes"),
    ],
)
def test_what_does_not_go_together_is_refused(system: FakeSystem, command, arguments, words):
    done = ask(command, *arguments)
    assert done.exit_code == 2
    assert words in done.output
    assert system.filters == []

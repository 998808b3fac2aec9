"""One task from its message to its outcome, and what it says on the way."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.errors import PermanentError
from dagmaster.ports.handler_reports import Checkpoint, HandlerResult, Progress
from dagmaster.ports.task_messages import Failed, Outcome, Succeeded, TaskMessage
from dagmaster.sdk.handler_registry import CheckpointableHandler
from tests.unit.worker.executor_fixtures import RecordedReports, a_task, failure, forever, run, with_executor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

    from dagmaster.sdk.handler_context import HandlerContext
    from dagmaster.worker.executor import Executor

# ── success ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_async_function_runs_on_the_loop():
    async def function(number: int) -> dict[str, Any]:
        return {"number": number, "thread": threading.get_ident()}

    assert run(function, a_task(params={"number": 3})) == Succeeded(
        {"number": 3, "thread": threading.get_ident()}
    )


def test_a_plain_function_runs_on_a_daemon_thread():
    def function(number: int) -> dict[str, Any]:
        return {"number": number, "daemon": threading.current_thread().daemon}

    assert run(function, a_task(params={"number": 3})) == Succeeded({"number": 3, "daemon": True})


def test_a_handler_learns_about_its_task():
    async def function(ctx: HandlerContext) -> dict[str, Any]:
        return {"ids": [ctx.task_id, ctx.job_id, ctx.node_id, ctx.attempt], "params": ctx.params}

    outcome = run(function, a_task("9", attempt=4, params={"a": 1}))
    assert outcome == Succeeded({"ids": ["9", "7", "node", 4], "params": {"a": 1}})


def test_a_handler_that_changes_its_params_changes_no_others():
    async def function(ctx: HandlerContext) -> None:
        ctx.params["list"].append(2)

    message = a_task(params={"list": [1]})
    run(function, message)
    assert message.params == {"list": [1]}


def test_an_output_that_is_changed_later_was_reported_as_it_was():
    kept: dict[str, Any] = {"list": [1]}

    async def function() -> dict[str, Any]:
        return kept

    outcome = run(function)
    kept["list"].append(2)
    assert outcome == Succeeded({"list": [1]})


def test_the_logger_carries_the_task(caplog):
    async def function(ctx: HandlerContext) -> None:
        ctx.logger.info("working", extra={"tile": 3})

    with caplog.at_level(logging.INFO, logger="dagmaster.task"):
        run(function, a_task("9", attempt=2))
    message = vars(caplog.records[0])
    assert (
        message["task_id"],
        message["job_id"],
        message["node_id"],
        message["attempt"],
        message["tile"],
    ) == (
        "9",
        "7",
        "node",
        2,
        3,
    )


# ── generators ──────────────────────────────────────────────────────────────────────────────────────────────────────

ENTRIES = [("1", Progress(1, 2, "half")), ("1", Checkpoint("half", {"n": 1}, ("a.tif",)))]


def test_an_async_generator_reports_and_ends_with_its_last_result():
    async def function() -> AsyncIterator[Any]:
        yield {"result": "too early"}
        yield Progress(1, 2, "half")
        yield Checkpoint("half", {"n": 1}, ["a.tif"])
        yield None
        yield {"result": "last"}

    reports = RecordedReports()
    assert run(function, reports=reports) == Succeeded({"result": "last"})
    assert reports.entries == ENTRIES


def test_the_dict_forms_mean_the_same():
    class Steps(CheckpointableHandler):
        async def execute(self, params: Any, checkpoint: dict[str, Any] | None = None) -> AsyncIterator[Any]:
            yield {"type": "progress", "current": 1, "total": 2, "message": "half"}
            yield {"type": "checkpoint", "phase": "half", "data": {"n": 1}, "artifacts": ["a.tif"]}
            yield {"type": "result", "output": {"params": params, "from": checkpoint}}

    reports = RecordedReports()
    resumed = Checkpoint("third", {}, earlier=(Checkpoint("quarter"),))
    outcome = run(Steps, a_task(params={"a": 1}, checkpoint=resumed), reports)
    saved = {"phase": "third", "data": {}, "artifacts": []}
    assert outcome == Succeeded({"params": {"a": 1}, "from": saved})
    half = Checkpoint("half", {"n": 1}, ("a.tif",), earlier=(Checkpoint("third"),))
    assert reports.entries == [ENTRIES[0], ("1", half)]


def test_a_plain_generator_reports_from_its_thread_and_may_return_its_result():
    def function(ctx: HandlerContext) -> Generator[Any, None, Any]:
        yield Progress(1, 2, "half")
        ctx.checkpoint("half", {"n": 1}, ["a.tif"])
        return {"last": ctx.checkpoint_data}

    reports = RecordedReports()
    assert run(function, reports=reports) == Succeeded({"last": {"n": 1}})
    assert reports.entries == ENTRIES
    assert reports.threads == {threading.get_ident()}


def test_a_generator_without_a_result_has_an_empty_output():
    async def function() -> AsyncIterator[Progress]:
        yield Progress(1)

    assert run(function) == Succeeded({})


def test_an_async_generator_is_closed_before_its_outcome_is_reported():
    closed = []

    async def function() -> AsyncIterator[Any]:
        try:
            yield 3
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    async def main(executor: Executor) -> Outcome:
        outcome = await executor.execute(a_task())
        assert closed == [True]
        return outcome

    assert failure(with_executor(function, main))["kind"] == "invalid_output"


def test_a_generator_that_fails_is_closed():
    closed = []

    def function() -> Iterator[Any]:
        try:
            yield 3
        finally:
            closed.append(True)

    error = failure(run(function))
    assert (error["kind"], closed) == ("invalid_output", [True])
    assert "yielded a value of type int" in error["message"]


# ── reports ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_last_checkpoint_of_an_earlier_attempt_is_there():
    async def function(ctx: HandlerContext) -> dict[str, Any]:
        before = ctx.checkpoint_data
        ctx.checkpoint("second")
        return {"before": before, "after": ctx.checkpoint_data}

    assert run(function, a_task(checkpoint=Checkpoint("first", {"n": 1}))) == Succeeded(
        {"before": {"n": 1}, "after": {}}
    )


def test_a_checkpoint_is_saved_as_it_was_when_it_was_made():
    async def function(ctx: HandlerContext) -> None:
        data = {"done": [1]}
        ctx.checkpoint("one", data)
        data["done"].append(2)

    reports = RecordedReports()
    run(function, reports=reports)
    assert reports.entries == [("1", Checkpoint("one", {"done": [1]}))]


@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint("x", {"when": {1, 2}}),
        Checkpoint(""),
        Checkpoint("x", [1]),  # type: ignore[arg-type]
        Checkpoint("x", {}, "a.tif"),
        Checkpoint("x", {}, [1]),  # type: ignore[list-item]
    ],
)
def test_a_checkpoint_that_cannot_be_saved_fails_the_task_for_good(checkpoint):
    async def function() -> AsyncIterator[Any]:
        yield checkpoint

    reports = RecordedReports()
    outcome = run(function, reports=reports)
    assert failure(outcome)["kind"] == "invalid_checkpoint"
    assert isinstance(outcome, Failed)
    assert outcome.permanent
    assert reports.entries == []


def test_progress_that_is_no_number_is_dropped_and_fails_nothing(caplog):
    async def function(ctx: HandlerContext) -> None:
        ctx.progress(float("nan"))
        ctx.progress(1, float("inf"))
        ctx.progress("some")  # type: ignore[arg-type]
        ctx.progress(2, 4)

    reports = RecordedReports()
    assert run(function, reports=reports) == Succeeded({})
    assert reports.entries == [("1", Progress(2, 4))]
    assert len(caplog.records) == 3


def test_a_report_that_cannot_be_delivered_is_not_the_handlers_fault(caplog):
    class Deaf(RecordedReports):
        def progress(self, task: TaskMessage, progress: Progress) -> None:
            raise OSError("no line")

    async def function(ctx: HandlerContext) -> None:
        ctx.progress(1)

    assert run(function, reports=Deaf()) == Succeeded({})
    assert "could not be delivered" in caplog.text


# ── failure ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_handler_fails_for_good_with_the_nearest_name():
    async def main(executor: Executor) -> Outcome:
        return await executor.execute(TaskMessage("1", "7", "node", "itt"))

    outcome = with_executor(forever, main)
    expected = {"kind": "unknown_handler", "message": "there is no handler 'itt': did you mean 'it'?"}
    assert outcome == Failed(expected, permanent=True)


def test_an_exception_fails_the_attempt_with_the_frames_of_the_handler():
    async def function() -> None:
        raise KeyError("lost")

    outcome = run(function)
    error = failure(outcome)
    assert (error["kind"], error["type"], error["message"]) == ("error", "KeyError", "'lost'")
    assert "in function" in error["traceback"]
    assert "dagmaster/worker" not in error["traceback"]
    assert outcome == Failed(error, permanent=False)


def test_a_permanent_error_keeps_its_kind_and_its_details():
    def function() -> None:
        raise PermanentError("no such tile", kind="missing", tile=[1, 2], odd={3})

    expected = {"kind": "missing", "message": "no such tile", "tile": [1, 2], "odd": "{3}"}
    assert run(function) == Failed(expected, permanent=True)


def test_params_that_do_not_fit_fail_for_good():
    async def function(number: int) -> None: ...

    outcome = run(function, a_task(params={"number": "x"}))
    assert failure(outcome)["kind"] == "invalid_params"
    assert isinstance(outcome, Failed)
    assert outcome.permanent


def test_params_that_are_not_json_fail_for_good():
    assert failure(run(forever, a_task(params={"a": b"x"})))["kind"] == "invalid_params"


def test_a_result_without_success_is_a_failure():
    async def function() -> HandlerResult:
        return HandlerResult(success=False, error_message="not today")

    assert run(function) == Failed({"kind": "error", "message": "not today"}, permanent=False)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("plain", [True, False])
def test_a_handler_that_ends_the_process_fails_only_its_attempt(error, plain):
    def function() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    outcome = run(function if plain else coroutine)
    assert failure(outcome)["kind"] == "exit"


def test_a_handler_that_cancels_itself_may_be_tried_again():
    async def function() -> None:
        raise asyncio.CancelledError

    outcome = run(function)
    assert (failure(outcome)["kind"], failure(outcome)["type"]) == ("error", "CancelledError")
    assert isinstance(outcome, Failed)
    assert not outcome.permanent


# ── an end in any case ──────────────────────────────────────────────────────────────────────────────────────────────


class Unspeakable:
    """Says nothing about itself."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


UNSPEAKABLE: Any = Unspeakable()
TERRIBLE = [
    PermanentError("x", detail=UNSPEAKABLE),
    PermanentError("x", kind=UNSPEAKABLE),
    SystemExit(UNSPEAKABLE),
]


def raising(errors: list[BaseException], style: str) -> Any:
    """Return a handler that raises one of these errors after the other."""
    left = iter(errors)

    async def on_the_loop() -> None:
        raise next(left)

    def on_a_thread() -> None:
        raise next(left)

    return on_the_loop if style == "loop" else on_a_thread


@pytest.mark.parametrize("style", ["loop", "thread"])
def test_an_error_that_cannot_be_described_ends_its_task_and_no_other(style):
    async def main(executor: Executor) -> list[Outcome]:
        return [await executor.execute(a_task(str(number))) for number in range(3)]

    outcomes = with_executor(raising([*TERRIBLE], style), main, threads=1)
    assert [failure(one)["kind"] for one in outcomes] == ["permanent", "Unspeakable", "exit"]


@pytest.mark.parametrize("style", ["loop", "thread"])
def test_a_task_ends_even_when_its_failure_cannot_be_made_an_outcome(style, monkeypatch, caplog):
    def broken(error: BaseException, about: str | None) -> Failed:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("dagmaster.worker.handler_call.failure_of", broken)

    async def main(executor: Executor) -> list[Outcome]:
        return [await executor.execute(a_task(str(number))) for number in range(2)]

    outcomes = with_executor(raising([ValueError("1"), ValueError("2")], style), main, threads=1)
    assert [(failure(one)["kind"], failure(one)["type"]) for one in outcomes] == [
        ("error", "RuntimeError")
    ] * 2
    assert "handler it ended without an outcome" in caplog.text


def test_an_outcome_says_how_long_its_handler_ran():
    async def function() -> None:
        await asyncio.sleep(0)

    outcome = run(function)
    assert outcome.running_seconds is not None
    assert outcome.running_seconds >= 0


def test_a_task_without_a_handler_never_started():
    async def main(executor: Executor) -> Outcome:
        return await executor.execute(TaskMessage("1", "7", "node", "unknown"))

    assert with_executor(forever, main).running_seconds is None

"""The shipped examples, through the executor, as a worker runs them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dagmaster.ports.handler_reports import Checkpoint, Progress
from dagmaster.ports.task_messages import Failed, Outcome, Succeeded, TaskMessage
from dagmaster.sdk.handler_registry import HandlerStyle, discover
from dagmaster.worker.executor import Executor

REGISTRY = discover(["dagmaster.handlers.examples"], entry_points=False)


class RecordedReports:
    """Checkpoints that were saved, and progress that was made."""

    def __init__(self) -> None:
        self.checkpoints: list[Checkpoint] = []
        self.progress_made: list[Progress] = []

    def progress(self, task: TaskMessage, progress: Progress) -> None:
        self.progress_made.append(progress)

    def checkpoint(self, task: TaskMessage, checkpoint: Checkpoint) -> None:
        self.checkpoints.append(checkpoint)


def outcome(
    handler: str,
    /,
    *,
    attempt: int = 1,
    checkpoint: Checkpoint | None = None,
    reports: Any = None,
    **params: Any,
) -> Outcome:
    async def main() -> Outcome:
        executor = Executor(REGISTRY, reports=reports)
        message = TaskMessage("1", "1", "node", handler, params, attempt=attempt, checkpoint=checkpoint)
        try:
            return await executor.execute(message)
        finally:
            await executor.close()

    return asyncio.run(main())


def test_the_examples_are_these():
    assert REGISTRY.names() == [
        "chunk_processor",
        "echo",
        "fail",
        "flaky",
        "hello_world",
        "make_chunks",
        "multi_phase",
        "size_check",
        "sleep",
    ]


@pytest.mark.parametrize("spec", REGISTRY, ids=REGISTRY.names())
def test_each_has_a_queue_a_sentence_and_keys_of_its_output(spec):
    assert spec.queue == "default"
    assert spec.description.endswith(".")
    assert spec.output_keys() or spec.name == "fail"
    assert spec.params_schema() or spec.name == "echo"


def test_echo_gives_back_whatever_it_gets():
    params: dict[str, Any] = {"a": [1, {"b": None}], "ctx": "x"}
    assert outcome("echo", **params) == Succeeded({"echoed_params": params})


def test_hello_world_greets_by_name():
    assert outcome("hello_world", name="Ada") == Succeeded({"message": "Hello, Ada!"})
    assert outcome("hello_world") == Succeeded({"message": "Hello, World!"})


def test_sleep_is_a_plain_function():
    assert REGISTRY.get("sleep").style is HandlerStyle.PLAIN
    assert outcome("sleep", seconds=0) == Succeeded({"slept": 0.0})


@pytest.mark.parametrize("seconds", [-1, "nan", 1e9])
def test_sleep_does_not_sleep_backwards_or_for_ever(seconds):
    assert kind_of(outcome("sleep", seconds=seconds)) == "invalid_params"


def kind_of(failed: Outcome) -> str:
    assert isinstance(failed, Failed), failed
    return str(failed.error["kind"])


def test_fail_fails_with_its_message():
    failed = outcome("fail", message="boom")
    assert isinstance(failed, Failed)
    assert (failed.error["message"], failed.permanent) == ("boom", False)


def test_fail_may_fail_for_good():
    failed = outcome("fail", permanent=True)
    assert failed == Failed({"kind": "permanent", "message": "failed on purpose"}, permanent=True)


def test_flaky_fails_as_often_as_it_is_reported():
    assert kind_of(outcome("flaky", fail_times=2, attempt=1)) == "error"
    assert kind_of(outcome("flaky", fail_times=2, attempt=2)) == "error"
    assert outcome("flaky", fail_times=2, attempt=3) == Succeeded({"attempt": 3})


def test_multi_phase_saves_a_checkpoint_after_each_phase():
    reports = RecordedReports()
    assert outcome("multi_phase", phases=2, reports=reports) == Succeeded({"phases": 2, "resumed_from": 0})
    assert reports.checkpoints == [Checkpoint("phase_1", {"done": 1}), Checkpoint("phase_2", {"done": 2})]
    assert [one.current for one in reports.progress_made] == [1, 2]


def test_multi_phase_goes_on_after_its_last_checkpoint():
    reports = RecordedReports()
    resumed = outcome("multi_phase", phases=3, checkpoint=Checkpoint("phase_2", {"done": 2}), reports=reports)
    assert resumed == Succeeded({"phases": 3, "resumed_from": 2})
    assert reports.checkpoints == [Checkpoint("phase_3", {"done": 3})]


@pytest.mark.parametrize(
    ("size", "category"),
    [(0, "small"), (99.9, "small"), (100, "medium"), (999, "medium"), (1000, "large"), (10**9, "large")],
)
def test_size_check_knows_three_sizes(size, category):
    assert outcome("size_check", size_mb=size) == Succeeded({"size_mb": size, "category": category})


def test_chunk_processor_counts_and_sums():
    assert outcome("chunk_processor", chunk=[1, 2, 3]) == Succeeded({"processed": 3, "sum": 6})
    assert outcome("chunk_processor", chunk=[0.5, 2]) == Succeeded({"processed": 2, "sum": 2.5})
    assert outcome("chunk_processor", chunk=[]) == Succeeded({"processed": 0, "sum": 0})
    assert kind_of(outcome("chunk_processor", chunk=["x"])) == "invalid_params"


def test_make_chunks_makes_a_list_to_fan_out_over():
    assert outcome("make_chunks", count=3) == Succeeded({"chunks": [[0], [1], [2]], "count": 3})
    assert outcome("make_chunks", count=2, chunk_size=2) == Succeeded(
        {"chunks": [[0, 1], [2, 3]], "count": 2}
    )
    assert outcome("make_chunks", count=0) == Succeeded({"chunks": [], "count": 0})


@pytest.mark.parametrize("params", [{"count": 1_000_001}, {"count": 1_000_000, "chunk_size": 11}])
def test_make_chunks_has_an_end(params):
    assert kind_of(outcome("make_chunks", **params)) == "permanent"

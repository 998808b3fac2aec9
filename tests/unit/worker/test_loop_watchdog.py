"""When a loop counts as blocked, and by whom."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from dagmaster.ports.task_messages import TaskMessage
from dagmaster.ports.task_source import ClaimedTask
from dagmaster.worker import loop_watchdog, task_pools
from dagmaster.worker.loop_watchdog import Blocker, LoopWatchdog
from dagmaster.worker.task_pools import ThreadedTaskPool
from dagmaster.worker.telemetry_buffer import TelemetryBuffer


class Log:
    """Stands for the log of a task."""

    def flush(self) -> None:
        pass


class Lane:
    """A lane whose loop answers when the test says so."""

    thread_id = 7

    def __init__(self) -> None:
        self.answered = False
        self.tasks: dict[Any, tuple[TaskMessage, float, float]] = {}
        self.asked: set[str] = set()
        self.is_idle = False

    def ping(self) -> None:
        self.answered = False

    def is_stop_requested(self, task_id: str) -> bool:
        return task_id in self.asked

    def find(self, log: Any) -> tuple[TaskMessage, float, float] | None:
        return self.tasks.get(log)


class Scene:
    """A watch that looks once a second, and what is on the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, restarts: bool = False) -> None:
        self.lane, self.now, self.on_loop = Lane(), 1000.0, None
        lane: Any = self.lane
        self.watch = LoopWatchdog(lane, TelemetryBuffer(), blocked_seconds=60, restarts=restarts)
        self.watch.check(self.now)
        monkeypatch.setattr(loop_watchdog, "_running_task", lambda _thread_id: (self.on_loop, None))

    def task(self, task_id: str, timeout_seconds: float | None = None, deadline: float = 0.0) -> Any:
        log = Log()
        self.lane.tasks[log] = TaskMessage(task_id, "1", "n", "h", {}, timeout_seconds), deadline, 2.0
        return log

    def check(self, seconds: float = 1.0) -> Blocker | None:
        self.now += seconds
        return self.watch.check(self.now)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_a_task_that_blocks_for_as_long_as_it_may_is_found(scene: Scene):
    scene.on_loop = scene.task("5")
    assert [scene.check() for _ in range(59)] == [None] * 59
    result = scene.check()
    assert result is not None
    assert (result.task_id, result.outcome.permanent) == ("5", False)
    assert "did not await for 60 s" in result.outcome.error["message"]


def test_a_handler_that_awaits_now_and_then_does_not_block(scene: Scene):
    scene.on_loop = scene.task("5")
    for _ in range(5):
        assert [scene.check() for _ in range(50)] == [None] * 50
        scene.lane.answered = True
        assert scene.check() is None


def test_many_that_are_slow_one_after_the_other_are_not_one_that_blocks(scene: Scene):
    one, two = scene.task("5"), scene.task("6")
    for _ in range(3):
        for scene.on_loop in (one, two):
            assert [scene.check() for _ in range(50)] == [None] * 50


def test_a_process_that_was_stopped_as_a_whole_was_not_blocked(scene: Scene):
    scene.on_loop = scene.task("5")
    scene.check()
    assert scene.check(3600) is None


def test_a_task_with_a_timeout_is_found_when_its_timeout_and_its_grace_are_over(scene: Scene):
    scene.on_loop = scene.task("5", timeout_seconds=100, deadline=scene.now + 100)
    assert [scene.check() for _ in range(101)] == [None] * 101
    assert scene.check() is not None


def test_a_task_that_was_asked_to_stop_has_its_grace_and_no_more(scene: Scene):
    scene.on_loop = scene.task("5")
    scene.lane.asked.add("5")
    assert scene.check() is None
    assert scene.check() is not None


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("timeout_seconds", [None, 1.0])
def test_a_task_that_costs_its_worker_is_not_retried(
    monkeypatch: pytest.MonkeyPatch, restarts: bool, timeout_seconds: float | None
):
    scene = Scene(monkeypatch, restarts=restarts)
    scene.on_loop = scene.task("5", timeout_seconds=timeout_seconds, deadline=scene.now)
    blocker = next(filter(None, (scene.check() for _ in range(100))))
    assert blocker.outcome.error["kind"] == ("unstoppable" if timeout_seconds else "blocked")
    assert ("so it is not retried" in blocker.outcome.error["message"]) is restarts
    claimed: Any = Mock(task_id="5", token=1)
    (report,) = blocker.reports([claimed], {})
    assert (report.permanent, blocker.outcome.permanent) == (restarts, restarts)


def test_a_callback_of_no_task_that_blocks_is_logged_and_continues(scene: Scene):
    assert [scene.check() for _ in range(100)] == [None] * 100


def test_an_idle_loop_is_not_reported_as_blocked(scene: Scene, caplog: pytest.LogCaptureFixture):
    scene.lane.is_idle = True
    assert [scene.check() for _ in range(100)] == [None] * 100
    assert caplog.messages == []


def test_the_stack_of_the_watchdog_is_never_shown(scene: Scene, caplog: pytest.LogCaptureFixture):
    for _ in range(10):
        scene.check()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("stack:\nat an unknown place")


def test_a_pool_is_idle_without_tasks_and_after_its_loop_has_ended(monkeypatch: pytest.MonkeyPatch):
    # On a busy machine a thread takes longer to end than a worker waits for it.
    monkeypatch.setattr(task_pools, "END_SECONDS", 60.0)

    async def main() -> list[bool]:
        runner: Any = Mock(executor=Mock(close=AsyncMock()))
        lane = ThreadedTaskPool(lambda: runner, 1, lambda _reports: None)
        result = [lane.is_idle]
        # One that never comes to an end.
        lane._tasks["5"] = ClaimedTask("5", "1", "a", "it", 1, "{}", None, 60.0, 0.0, token=7)
        result.append(lane.is_idle)
        await lane.close()
        return [*result, lane.is_idle]

    assert asyncio.run(main()) == [True, False, True]

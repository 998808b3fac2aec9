"""What ends a handler's process: its own fault, its time, a stop, a worker that closes, a worker that dies."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.ports.task_messages import Failed, Outcome, Released, Succeeded
from tests.patience import PATIENCE_SECONDS
from tests.unit.worker.executor_fixtures import failure
from tests.unit.worker.process_fixtures import (
    HANDLERS,
    Watched,
    ends,
    lives,
    outcome_of,
    output,
    task,
    with_processes,
)

if TYPE_CHECKING:
    from dagmaster.ports.task_messages import TaskMessage
    from dagmaster.worker.executor import Executor

pytestmark = pytest.mark.process

# ── its own fault ───────────────────────────────────────────────────────────────────────────────────────────────────


CRASHES: list[tuple[TaskMessage, dict[str, Any]]] = [
    (task("segfault"), {"message": "the handler's process died of signal 11 (SIGSEGV)", "signal": "SIGSEGV"}),
    (
        task("exit_at_once", code=3),
        {"message": "the handler ended its process with exit code 3 (os._exit?)", "exit_code": 3},
    ),
    (
        task("exit_at_once", code=0),
        {"message": "the handler ended its process with exit code 0 (os._exit?)", "exit_code": 0},
    ),
    (
        task("kill_itself"),
        {
            "message": "the handler's process was killed (SIGKILL): out of memory, or killed by an operator",
            "signal": "SIGKILL",
        },
    ),
    (
        task("close_everything"),
        {"message": "the handler ended its process with exit code 1 (os._exit?)", "exit_code": 1},
    ),
]


def test_a_process_that_dies_fails_one_attempt_and_the_worker_continues():
    async def main(executor: Executor, watched: Watched) -> list[Outcome]:
        outcomes = [await executor.execute(message) for message, _ in CRASHES]
        assert output(await executor.execute(task("where", number=3)))["number"] == 3
        return outcomes

    expected = [Failed({"kind": "crashed", **error}, permanent=False) for _, error in CRASHES]
    assert with_processes(main, limit=1) == expected


@pytest.mark.parametrize("message", [b"null", b"\xff", b'{"progress": 1}'])
def test_a_handler_that_writes_into_our_socket_fails_its_attempt(message):
    data = (len(message).to_bytes(4, "big") + message).hex()
    error = failure(outcome_of(task("write_into_the_socket", data=data))[0])
    assert error["kind"] == "crashed"
    assert "sent an invalid message" in error["message"]


def test_a_process_that_is_killed_while_idle_is_replaced():
    async def main(executor: Executor, watched: Watched) -> tuple[int, int]:
        assert executor.processes is not None
        first = output(await executor.execute(task("where")))["pid"]
        life = next(iter(executor.processes._processes.values()))
        os.kill(first, signal.SIGKILL)
        await life
        return first, output(await executor.execute(task("where")))["pid"]

    first, second = with_processes(main, limit=1)
    assert first != second


def test_a_segfault_leaves_its_traceback_apart_from_what_was_printed():
    watched = outcome_of(task("segfault"))[1]
    assert watched.text() == "before the fall\n"
    ((what, text),) = [message for _, message in watched.entries if isinstance(message, tuple)]
    assert (what, text.count("most recent call first")) == ("dump", 1)
    assert "Fatal Python error: Segmentation fault" in text
    assert "in segfault" in text


def test_what_a_dead_process_left_behind_is_killed_though_it_holds_the_pipe():
    outcome, watched = outcome_of(task("crash_with_a_grandchild"))
    assert failure(outcome)["exit_code"] == 4
    assert ends(watched.entries[0][1].total)


def test_a_greedy_handler_fails_one_attempt_with_the_limit_in_its_reason():
    async def main(executor: Executor, watched: Watched) -> list[Outcome]:
        sizes = (10, 4000, 10)
        return [await executor.execute(task("greedy", megabytes=megabytes)) for megabytes in sizes]

    modest, greedy, next_one = with_processes(main, limit=1, memory_limit_mb=2000)
    assert output(modest) == output(next_one) == {"size": 10 * 1024 * 1024}
    error = failure(greedy)
    assert (error["kind"], error["type"]) == ("out_of_memory", "MemoryError")
    assert error["message"] == "the handler ran out of memory (its process may use 2000 MB)"
    assert "in greedy" in error["traceback"]


def test_a_process_that_is_killed_for_its_memory_is_a_line_in_the_log_of_the_worker(caplog):
    async def main(executor: Executor, watched: Watched) -> Outcome:
        running = asyncio.create_task(executor.execute(task("endless", "1")))
        pid = (await watched.first("1")).current
        assert executor.processes is not None
        executor.processes.end_for_memory(int(pid), 900, 1000)
        return await running

    assert failure(with_processes(main, limit=1))["kind"] == "out_of_memory"
    (record,) = [record for record in caplog.records if "900 MB" in record.getMessage()]
    assert (record.levelname, record.task_id) == ("WARNING", "1")
    assert (record.job_id, record.node_id) == (task("endless", "1").job_id, task("endless", "1").node_id)


# ── time and stops ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_endless_loop_is_killed_after_its_timeout():
    async def main(executor: Executor, watched: Watched) -> Outcome:
        await executor.execute(task("where", "0"))
        outcome = await executor.execute(task("endless", "1", timeout_seconds=0.2))
        assert not lives((await watched.first("1")).current)
        assert output(await executor.execute(task("where", "2", number=2)))["number"] == 2
        return outcome

    # No grace for what cannot notice, however long that is.
    outcome = with_processes(main, limit=1, grace_seconds=60)
    message = "the handler did not finish within 0.2 seconds; its process was killed"
    expected = {"kind": "timeout", "message": message, "signal": "SIGKILL"}
    assert outcome == Failed(expected, permanent=False)


def test_the_time_of_a_task_does_not_run_while_its_process_starts(tmp_path):
    gate, module = tmp_path / "gate", tmp_path / "slow_to_import.py"
    os.mkfifo(gate)
    module.write_text(f"open({str(gate)!r}).read()\nfrom {HANDLERS} import *\n")

    async def main(executor: Executor, watched: Watched) -> Outcome:
        running = asyncio.create_task(executor.execute(task("where", timeout_seconds=PATIENCE_SECONDS)))
        # Open as soon as the process, which reads it, has begun to import the module.
        with await asyncio.to_thread(gate.open, "w"):
            assert executor.deadlines.at(executor._running["1"]) == math.inf
        return await running

    assert output(with_processes(main, modules=(str(module),)))["main"]


def stopped(handler: str, *, grace_seconds: float) -> tuple[Outcome, bool, Watched]:
    """Stop a task when it reports that it runs; return its outcome, and whether its process is alive."""

    async def main(executor: Executor, watched: Watched) -> tuple[Outcome, bool, Watched]:
        running = asyncio.create_task(executor.execute(task(handler)))
        pid = (await watched.first()).current
        executor.stop("1")
        return await running, lives(pid), watched

    result: tuple[Outcome, bool, Watched] = with_processes(main, grace_seconds=grace_seconds)
    return result


def test_what_a_handler_started_is_killed_with_it():
    outcome, alive, watched = stopped("grandchild", grace_seconds=0)
    assert failure(outcome)["kind"] == "cancelled"
    assert not alive
    assert ends(watched.entries[0][1].total)


def test_a_child_that_outlives_its_task_is_killed_and_the_process_stays_warm():
    async def main(executor: Executor, watched: Watched) -> tuple[Any, Any]:
        first = output(await executor.execute(task("leave_a_child")))
        assert not lives(first["pid"])
        assert "ended 1 child processes that the handler left running" in watched.text()
        return watched.entries[0][1].current, output(await executor.execute(task("where", "2")))["pid"]

    pid, next_pid = with_processes(main, limit=1)
    assert pid == next_pid


@pytest.mark.parametrize("then", ["crash", "continue"])
def test_a_child_that_left_the_group_of_its_process_is_killed_with_it(then):
    outcome, watched = outcome_of(task("leave_a_child", timeout_seconds=1.0, then=then))
    assert failure(outcome)["kind"] == {"crash": "crashed", "continue": "timeout"}[then]
    assert ends(watched.entries[0][1].total)


@pytest.mark.parametrize("handler", ["until_cancelled", "until_cancelled_on_its_loop"])
def test_a_handler_that_checks_for_a_stop_ends_by_itself_and_its_process_stays_warm(handler):
    outcome, alive, watched = stopped(handler, grace_seconds=60)
    assert failure(outcome)["kind"] == "cancelled"
    assert alive
    assert watched.text() == ("cleaned up\n" if handler == "until_cancelled_on_its_loop" else "")


@pytest.mark.parametrize("handler", ["deaf", "endless"])
def test_a_handler_that_does_not_look_is_killed_after_the_grace(handler, caplog):
    outcome, alive, _ = stopped(handler, grace_seconds=0.05)
    message = "the task was asked to stop; its process was killed"
    assert failure(outcome) == {"kind": "cancelled", "message": message, "signal": "SIGKILL"}
    assert not alive
    assert "did not stop in time and is killed" in caplog.text


def test_closing_releases_running_tasks():
    async def main(executor: Executor, watched: Watched) -> list[Any]:
        tasks = [task("deaf", "1"), task("until_cancelled", "2")]
        running = [asyncio.create_task(executor.execute(one)) for one in tasks]
        pids = [(await watched.first(one)).current for one in ("1", "2")]
        await executor.close()
        return [*await asyncio.gather(*running), *map(lives, pids)]

    released = Released("the worker was closed")
    assert with_processes(main, grace_seconds=0.05) == [released, released, False, False]


@pytest.mark.parametrize(("handler", "counts"), [("meet", True), ("meet_and_look", False)])
def test_a_result_that_comes_while_the_worker_closes_counts_unless_the_handler_knew(
    handler, counts, tmp_path
):
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    async def main(executor: Executor, watched: Watched) -> tuple[Outcome, float | None]:
        running = asyncio.create_task(executor.execute(task(handler, fifo=str(gate))))
        pid = (await watched.first()).current
        closing = asyncio.create_task(executor.close(60))
        await asyncio.sleep(0)
        await asyncio.to_thread(gate.write_bytes, b"1")
        await closing
        return await running, pid

    outcome, pid = with_processes(main)
    assert outcome == (Succeeded({"pid": pid}) if counts else Released("the worker was closed"))


def test_cancelling_execute_kills_the_process_and_waits_for_its_end():
    async def main(executor: Executor, watched: Watched) -> None:
        running = asyncio.create_task(executor.execute(task("deaf")))
        pid = (await watched.first()).current
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not lives(pid)
        # Its place is free, and the same task may come again.
        assert output(await executor.execute(task("where")))["main"]

    with_processes(main, limit=1)


# ── a worker that dies ──────────────────────────────────────────────────────────────────────────────────────────────

WORKER = f"""
    import asyncio
    from tests.unit.worker.process_fixtures import Watched, task, with_processes

    async def main(executor, watched):
        names = ("endless", "grandchild", "where")
        left = asyncio.create_task(executor.execute(task("leave_a_child", "left", then="continue")))
        left_pids = await watched.first("left")
        running = [asyncio.create_task(executor.execute(task(name, name))) for name in names]
        resting = await running[2]
        busy = [await watched.first(name) for name in names[:2]]
        pids = [resting.output["pid"], busy[0].current, busy[1].current, busy[1].total]
        pids += [left_pids.current, left_pids.total]
        print(*map(int, pids), flush=True)
        await asyncio.Event().wait()

    with_processes(main, limit=4, modules=({HANDLERS!r},))
"""


def test_when_the_worker_is_killed_its_processes_end_and_all_that_they_started():
    command = [sys.executable, "-c", textwrap.dedent(WORKER)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as worker:
        assert worker.stdout is not None
        pids = [int(pid) for pid in worker.stdout.readline().split()]
        assert list(map(lives, pids)) == [True] * 6
        worker.send_signal(signal.SIGKILL)
        assert list(map(ends, pids)) == [True] * 6

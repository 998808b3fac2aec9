"""Handlers in processes of their own: who runs where, what comes back, who waits."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.ports.handler_reports import Checkpoint, Progress
from dagmaster.ports.task_messages import Failed, Outcome, Released, Succeeded
from tests.unit.worker.executor_fixtures import failure
from tests.unit.worker.process_fixtures import Watched, lives, outcome_of, output, task, with_processes

if TYPE_CHECKING:
    from dagmaster.worker.executor import Executor

pytestmark = pytest.mark.process

# ── who runs where ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_handler_runs_where_its_kind_belongs():
    async def main(executor: Executor, watched: Watched) -> dict[str, Any]:
        names = ("where", "where_on_a_thread", "where_on_the_loop", "where_on_its_own_loop", "Steps")
        return {name: output(await executor.execute(task(name))) for name in names}

    result = with_processes(main)
    here = os.getpid()
    assert result["where"]["pid"] != here
    assert (result["where"]["parent"], result["where"]["main"]) == (here, True)
    assert result["where_on_a_thread"]["pid"] == here
    assert result["where_on_the_loop"]["pid"] == here
    # The same process served all that did not stay here.
    assert result["where_on_its_own_loop"]["pid"] == result["where"]["pid"] == result["Steps"]["pid"]


def test_a_process_imports_nothing_that_only_the_services_need():
    heavy = ["rich", "click", "asyncpg", "alembic", "sqlalchemy", "jinja2", "yaml", "multiprocessing"]
    outcome, _ = outcome_of(task("imported", names=[*heavy, "pydantic"]))
    assert output(outcome) == {"found": ["pydantic"]}


# ── what comes back ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_reports_come_in_order_before_the_outcome_and_after_what_was_written_before_them():
    message = task("reporting")
    message.attempt, message.checkpoint = 3, Checkpoint("quarter")
    outcome, watched = outcome_of(message)
    assert output(outcome) == {"before": "half", "ids": ["1", "node", 3]}
    reports = [text for _, text in watched.entries if not isinstance(text, str)]
    half = Checkpoint("half", {"n": 1}, ("a.tif",), earlier=(Checkpoint("quarter"),))
    assert reports == [Progress(1, 2, "half"), half]
    assert (
        watched.text()
        == "between\nWARNING dagmaster.task: invalid progress (not a number): nan of None; dropped\n"
    )
    texts = "".join(
        text
        for _, text in watched.entries[: watched.entries.index(("1", reports[1]))]
        if isinstance(text, str)
    )
    assert texts.startswith("between\n")


def test_the_last_checkpoint_of_an_earlier_attempt_is_there():
    message = task("Steps")
    message.checkpoint = Checkpoint("half", {"n": 1}, ("a.tif",))
    outcome, watched = outcome_of(message)
    assert output(outcome)["from"] == "half"
    assert watched.entries == [("1", Checkpoint("one"))]


def test_a_checkpoint_that_cannot_be_saved_fails_for_good():
    outcome, watched = outcome_of(task("bad_checkpoint"))
    assert failure(outcome)["kind"] == "invalid_checkpoint"
    assert isinstance(outcome, Failed)
    assert outcome.permanent
    assert watched.entries == []


def test_an_exception_comes_with_the_frames_of_the_handler():
    error = failure(outcome_of(task("raising", name="KeyError"))[0])
    assert (error["kind"], error["type"], error["message"]) == ("error", "KeyError", "'lost'")
    assert "process_handlers.py" in error["traceback"].splitlines()[1]
    assert "in raising" in error["traceback"].splitlines()[1]
    assert "dagmaster/worker" not in error["traceback"]


def test_a_handler_that_calls_exit_fails_its_attempt_and_its_process_continues():
    async def main(executor: Executor, watched: Watched) -> list[Outcome]:
        names = ("SystemExit", "KeyboardInterrupt")
        first = await executor.execute(task("where"))
        return [
            first,
            *[await executor.execute(task("raising", name=name)) for name in names],
            await again(executor),
        ]

    async def again(executor: Executor) -> Outcome:
        return await executor.execute(task("where"))

    first, *exits, last = with_processes(main, limit=1)
    assert [failure(one)["kind"] for one in exits] == ["exit", "exit"]
    assert first == last


@pytest.mark.parametrize("params", [{"a": b"x"}, {"a": float("nan")}, {1: 2}])
def test_params_that_are_not_json_fail_for_good_without_a_process(params):
    async def main(executor: Executor, watched: Watched) -> Outcome:
        message = task("echo")
        message.params = params
        outcome = await executor.execute(message)
        assert executor.processes is not None
        assert executor.processes.pids() == []
        return outcome

    assert failure(with_processes(main))["kind"] == "invalid_params"


def test_much_goes_in_and_comes_out():
    text = "x" * 30_000_000 + "ä"
    outcome, _ = outcome_of(task("echo", text=text))
    assert output(outcome)["text"] == text


@pytest.mark.parametrize(
    ("modules", "message"),
    [(("no_such_module",), "no_such_module"), (("dagmaster.handlers.examples",), "its process does not")],
)
def test_handlers_that_the_process_does_not_find_fail_the_task(modules, message):
    outcome, _ = outcome_of(task("where"), modules=modules)
    assert failure(outcome)["kind"] == "handlers_unavailable"
    assert message in failure(outcome)["message"]
    assert isinstance(outcome, Failed)
    assert not outcome.permanent


def test_a_module_that_ends_its_process_fails_every_waiting_task_with_the_reason(tmp_path):
    module = tmp_path / "broken.py"
    module.write_text("import os\nprint('on the way', flush=True)\nos._exit(9)\n")

    async def main(executor: Executor, watched: Watched) -> tuple[list[Outcome], str]:
        outcomes = await asyncio.gather(
            *(executor.execute(task("where", str(number))) for number in range(3))
        )
        return outcomes, watched.text("0")

    outcomes, text = with_processes(main, limit=1, modules=(str(module),))
    assert {failure(one)["kind"] for one in outcomes} == {"handlers_unavailable"}
    assert "exit code 9" in failure(outcomes[0])["message"]
    assert text == "on the way\n"


# ── who waits ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def open_gate(fifo: Path) -> None:
    with fifo.open("wb") as file:
        file.write(b"x")


def test_a_process_is_used_again():
    async def main(executor: Executor, watched: Watched) -> list[Outcome]:
        return [await executor.execute(task("where", str(number), number=number)) for number in range(3)]

    outcomes = [output(one) for one in with_processes(main)]
    assert [one["number"] for one in outcomes] == [0, 1, 2]
    assert len({one["pid"] for one in outcomes}) == 1


def test_no_more_processes_than_the_limit_and_the_others_wait_in_order(fifo):
    async def main(executor: Executor, watched: Watched) -> list[str]:
        ended = []

        async def run(number: int) -> None:
            await executor.execute(task("meet" if number == 0 else "where", str(number), **params[number]))
            ended.append(str(number))

        params: list[dict[str, Any]] = [{"fifo": str(fifo)}, {"number": 1}, {"number": 2}]
        running = [asyncio.create_task(run(0))]
        await watched.first("0")
        running += [asyncio.create_task(run(number)) for number in (1, 2)]
        await asyncio.sleep(0)
        assert executor.processes is not None
        assert len(executor.processes.pids()) == 1
        assert ended == []
        await asyncio.to_thread(open_gate, fifo)
        await asyncio.gather(*running)
        assert len(executor.processes.pids()) == 1
        return ended

    assert with_processes(main, limit=1) == ["0", "1", "2"]


def test_two_processes_run_at_once_and_idle_ones_end_but_not_the_last(fifo):
    async def main(executor: Executor, watched: Watched) -> None:
        running = asyncio.create_task(executor.execute(task("meet", "1", fifo=str(fifo))))
        first = (await watched.first("1")).current
        second = output(await executor.execute(task("where", "2")))["pid"]
        assert first != second
        await asyncio.to_thread(open_gate, fifo)
        await running
        processes = executor.processes
        assert processes is not None
        resting = list(processes._processes.items())
        done, _ = await asyncio.wait([life for _, life in resting], return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        assert len(processes.pids()) == 1
        # The timer would ring again if anybody could go.
        assert processes._reap_timer is None

    with_processes(main, idle_seconds=0.05)


def test_a_task_that_waits_is_stopped_at_once_and_never_starts(fifo):
    async def main(executor: Executor, watched: Watched) -> Outcome:
        running = asyncio.create_task(executor.execute(task("meet", "1", fifo=str(fifo))))
        await watched.first("1")
        waiting = asyncio.create_task(executor.execute(task("meet", "2", fifo=str(fifo))))
        await asyncio.sleep(0)
        executor.stop("2")
        stopped = await waiting
        await asyncio.to_thread(open_gate, fifo)
        await running
        assert {one for one, _ in watched.entries} == {"1"}
        return stopped

    outcome = with_processes(main, limit=1, grace_seconds=60)
    assert isinstance(outcome, Released)
    assert outcome.running_seconds is None


def test_closing_while_a_process_starts_leaves_none_behind():
    async def main(executor: Executor, watched: Watched) -> Outcome:
        running = asyncio.create_task(executor.execute(task("where")))
        await asyncio.sleep(0)
        await executor.close()
        return await running

    assert with_processes(main) == Released("the worker was closed")


def test_what_a_handler_does_to_its_streams_and_its_folder_is_not_the_next_ones_concern():
    async def main(executor: Executor, watched: Watched) -> tuple[Outcome, str]:
        assert await executor.execute(task("closing_its_streams")) == Succeeded({})
        return await executor.execute(task("cwd", "2")), watched.text("2")

    outcome, text = with_processes(main)
    assert output(outcome) == {"cwd": str(Path.cwd())}
    assert text == "heard again\n"


def test_a_process_that_is_not_needed_any_more_ends():
    async def main(executor: Executor, watched: Watched) -> int:
        pid: int = output(await executor.execute(task("where")))["pid"]
        assert lives(pid)
        return pid

    assert not lives(with_processes(main))

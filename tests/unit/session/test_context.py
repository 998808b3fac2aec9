"""Contexts over a database in memory: what is stored, what is held, what runs."""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
import socket
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster import (
    Group,
    HandlerContext,
    JobStatus,
    OrchContext,
    PermanentError,
    ResultCollector,
    TaskStatus,
    add_task_to_job,
    blocking,
    cancel_job,
    code_fingerprint,
    create_job,
    create_task,
    deregister_worker,
    get_job,
    get_task,
    health_check,
    list_jobs,
    list_workers,
    register_worker,
    retry_failed_tasks,
    run_job_test,
    run_job_test_async,
    worker_heartbeat,
)
from dagmaster.application.graph_jobs import release_hold
from dagmaster.application.job_lookup import find_job
from dagmaster.application.queries.events_and_logs import list_events
from dagmaster.application.queries.nodes import node_detail
from dagmaster.authoring.python import task_options
from dagmaster.engine.diagnosis.waiting_nodes import waiting_for_signal_or_time
from dagmaster.engine.graph import WaitSpec
from dagmaster.errors import (
    JobFinished,
    JobNotFound,
    NodeNotFound,
    NodesRejected,
    QueryInvalid,
    SettingsInvalid,
)
from dagmaster.session.workers import _worker_info
from dagmaster.settings import log_directory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

CALLS: list[Any] = []
IS_BROKEN = [True]


async def give(value: Any = None) -> Any:
    CALLS.append(value)
    return value


async def say(text: str) -> None:
    print(text)  # noqa: T201 - what a task prints is its log


def plain(value: Any = None) -> Any:
    return value


async def fail_once() -> str:
    if IS_BROKEN[0]:
        raise PermanentError("it is broken")
    return "whole"


def in_memory(test: Callable[[OrchContext], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def run() -> None:
        CALLS.clear()
        IS_BROKEN[0] = True
        async with OrchContext(in_memory=True) as context:
            await test(context)

    def call() -> None:
        asyncio.run(run())

    call.__doc__ = test.__doc__
    return call


@in_memory
async def test_a_graph_runs_and_results_of_any_json_value_reach_their_tasks(context: OrchContext):
    values = [None, 1, 1.5, "text {{ x }}", [1, [2]], {"a": {"b": None}}, True]
    tasks = [
        create_task(plain if number % 2 else give, {"value": value}) for number, value in enumerate(values)
    ]
    last = create_task(
        give, {"value": {"all": ResultCollector(tasks), "first": tasks[0], "list": [tasks[3]]}}
    )
    job = await context.create_job("values", last)
    await run_job_test_async(job)
    assert job.status is JobStatus.COMPLETED
    result = (await get_task(last.id)).result
    assert job.result == result == {"all": values, "first": None, "list": ["text {{ x }}"]}
    assert (await get_job(job.id)).result == result
    assert job.started_at is not None
    assert job.completed_at is not None


@in_memory
async def test_the_last_job_is_the_newest(context: OrchContext):
    with pytest.raises(JobNotFound, match="no job yet"):
        await get_job("last")
    jobs = [await context.create_job(name, create_task(give)) for name in ("old", "new")]
    assert (await get_job("last")).id == jobs[1].id


@in_memory
async def test_apply_adds_to_a_job_and_knows_what_it_added(context: OrchContext):
    first = create_task(give, {"value": 1})
    job = await create_job("grows", first)
    second = create_task(give, {"value": first})
    assert await context.apply(second) is second
    third, group = create_task(give, {"value": second}), Group("late", [create_task(give)])
    items = [[third], group]
    assert await context.apply(items, job_id=job.id) is items
    await context.apply([first, second, third, group])
    assert {first.job_id, second.job_id, third.job_id, group.job_id} == {job.id}
    group.add(create_task(give, {"value": "later"}))
    await context.apply(group)
    run_job_test(job)
    assert job.status is JobStatus.COMPLETED
    assert sorted(map(str, CALLS)) == ["1", "1", "1", "None", "later"]


@in_memory
async def test_a_job_and_its_groups_are_not_complete_before_the_context_exits(context: OrchContext):
    statuses: dict[str, str] = {}

    async def observe() -> None:
        """Look at the groups when everything in them has run, and let the job complete."""
        app = context.memory.app  # type: ignore[union-attr]
        nodes = await app.read.nodes(str(job.id), ["member", "inner", "outer", "after"])
        statuses.update({node.node_id: node.status for node in nodes})
        await context.backend.call(release_hold, str(job.id), signals[0])

    inner = Group("inner", [create_task(give, name="member")])
    outer = Group("outer", [inner])
    after = create_task(give, {"value": "after"}, name="after")
    outer >> after
    inner.tasks[0] >> create_task(observe)
    job = await create_job("held", [outer, after])
    signals = context.take_signals(job.id)
    await run_job_test_async(job)
    assert job.status is JobStatus.COMPLETED
    assert statuses.pop("member") == "COMPLETED"
    assert set(statuses.values()) <= {"PENDING"}
    assert (await get_task(after.id)).status is TaskStatus.COMPLETED


def test_a_context_releases_its_jobs_when_it_exits():
    async def run() -> None:
        context = OrchContext(in_memory=True)
        await context.open()
        job = await context.create_job("held", Group("g", [create_task(give)]))
        memory = context.memory
        assert memory is not None
        assert memory.services is not None
        await context.close()
        commands = await memory.app.read.pending_commands(str(job.id))
        assert [command.kind for command in commands] == ["signal"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (ValueError("half"), ["cancel", "signal"]),
        (KeyboardInterrupt(), ["cancel", "signal"]),
        (asyncio.CancelledError(), ["cancel", "signal"]),
        (SystemExit(1), ["cancel", "signal"]),
        (SystemExit(0), ["signal"]),
        (GeneratorExit(), ["signal"]),
    ],
)
def test_an_exception_in_a_context_cancels_the_jobs_that_it_made(error: BaseException, kinds: list[str]):
    memory: Any = None
    job: Any = None

    async def run() -> None:
        nonlocal memory, job
        async with OrchContext(in_memory=True) as context:
            memory = context.memory
            job = await context.create_job("held", Group("g", [create_task(give)]))
            raise error

    with pytest.raises(type(error)):
        asyncio.run(run())
    commands = asyncio.run(memory.app.read.pending_commands(str(job.id)))
    assert [command.kind for command in commands] == kinds
    notes = getattr(error, "__notes__", [])
    assert notes == (
        [f"job {job.id} (held) was cancelled: its graph may be half built"] if len(kinds) > 1 else []
    )


def test_an_exception_after_a_job_has_run_leaves_it_as_it_is():
    def fail_after_the_run() -> None:
        with blocking.OrchContext(in_memory=True):
            job = blocking.run_job_test(blocking.create_job("done", create_task(give, {"value": 1})))
            raise KeyError(job.status)

    with pytest.raises(KeyError) as caught:
        fail_after_the_run()
    assert caught.value.args == (JobStatus.COMPLETED,)
    assert not hasattr(caught.value, "__notes__")


@in_memory
async def test_a_context_that_lives_long_holds_again(context: OrchContext):
    context.hold_seconds = 0.02
    group = Group("g", [create_task(give)])
    job = await context.create_job("long", group)
    held = context.held[job.id]
    while len(held.holds) < 3:  # noqa: ASYNC110 - its timer has no event
        await asyncio.sleep(0)
    await run_job_test_async(job)
    assert job.status is JobStatus.COMPLETED


@in_memory
async def test_what_is_rejected_leaves_nothing_and_names_it(context: OrchContext):
    good = create_task(give)
    bad = create_task(give, {"value": {1, 2}}, name="bad")
    with pytest.raises(NodesRejected, match=r"task bad .*\['value'\]"):
        await create_job("never", [good, bad])
    assert await list_jobs() == []
    assert good.job_id is None
    job = await create_job("one", good)
    a, b = create_task(give, name="a"), create_task(give, name="b")
    a >> b >> a
    with pytest.raises(NodesRejected, match="cycle: "):
        await context.apply([a, b])
    with pytest.raises(NodesRejected, match="already: give the new one another name"):
        await context.apply(create_task(give, name="give"))
    assert (a.job_id, b.job_id) == (None, None)
    assert await context.backend.app.read.added_nodes.pending_batches(str(job.id)) == ()  # type: ignore[attr-defined]


@in_memory
async def test_a_cycle_through_groups_is_spelled_with_what_was_written(context: OrchContext):
    a, b = create_task(give, name="a"), create_task(give, name="b")
    first, second = Group("first", [a]), Group("second", [b])
    a >> second >> first
    with pytest.raises(NodesRejected) as error:
        await context.create_job("cycle", [first, second])
    assert str(error.value).startswith("cycle: ")
    assert "_held" not in str(error.value)
    assert "a is in the group first, which depends on second" in str(error.value)
    assert "".join(traceback.format_exception(error.value)).count("Traceback") == 1
    job = await context.create_job("open", create_task(give))
    with pytest.raises(NodesRejected) as error:
        await context.apply([first, second], job.id)
    assert "_held" not in str(error.value)
    assert {one.name for one in await list_jobs()} == {"open"}


@in_memory
async def test_a_task_of_another_job_is_rejected(context: OrchContext):
    first, second = create_task(give), create_task(give)
    one, two = await create_job("one", first), await create_job("two", second)
    with pytest.raises(NodesRejected, match=f"is part of job {one.id}, not of job {two.id}"):
        await context.apply(create_task(give, {"value": first}), two.id)


@in_memory
async def test_nothing_is_added_to_a_job_that_has_ended(context: OrchContext):
    job = run_job_test(await create_job("short", give))
    with pytest.raises(JobFinished, match=f"job {job.id} is COMPLETED: late cannot be added"):
        await context.apply([create_task(give, name="late"), Group("g")], job.id)
    with pytest.raises(JobFinished):
        await add_task_to_job(job.id, give)


@in_memory
async def test_a_task_whose_function_cannot_be_imported_fails_with_the_reason_and_others_run(
    context: OrchContext,
):
    lost = create_task("no_such_module.f", name="lost")
    job = await run_job_test_async(await context.create_job("missing", [create_task(give), lost]))
    assert job.status is JobStatus.FAILED
    reason = "the module 'no_such_module' cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"
    assert job.error == f"node lost failed: there is no handler 'no_such_module.f': {reason}"
    task = await get_task(lost.id)
    assert (task.status, task.attempts) == (TaskStatus.FAILED, 1)
    assert reason in (task.error or "")
    assert CALLS == [None]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "import no_such_module",
            "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("def load(:", "cannot be imported: SyntaxError"),
        ("def other(): pass", "has no function 'load'"),
        ("load = 3", "it is not a function: it is of type int"),
        ("class load: pass", "a class that is a handler extends CheckpointableHandler"),
    ],
)
def test_a_module_with_an_error_fails_its_task_and_is_read_again_in_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
):
    name = f"module_{secrets.token_hex(4)}"
    file, count = tmp_path / f"{name}.py", tmp_path / "count"
    file.write_text(f"with open({str(count)!r}, 'a') as count: count.write('x')\n{text}\n")
    monkeypatch.syspath_prepend(tmp_path)

    @in_memory
    async def test(context: OrchContext) -> None:
        job = await run_job_test_async(await context.create_job("broken", f"{name}.load"))
        assert job.status is JobStatus.FAILED
        assert reason in (job.error or "")
        assert not count.exists() or count.read_text() == "x", "it is executed once"
        file.write_text("def load(): return 1\n")
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        await retry_failed_tasks(job.id)
        assert (await run_job_test_async(job)).result == 1

    test()


@in_memory
async def test_a_callback_by_name_is_imported(context: OrchContext):
    job = await context.create_job("by name", f"{__name__}.give")
    assert run_job_test(job).status is JobStatus.COMPLETED


@in_memory
async def test_what_follows_a_failed_task_is_skipped_and_retried_with_it(context: OrchContext):
    group = Group("g", [create_task(fail_once, name="broken")])
    after = create_task(give, {"value": "after"})
    group >> after
    job = run_job_test(await context.create_job("fails", group))
    assert job.status is JobStatus.FAILED
    assert "it is broken" in str(job.error)
    broken = await get_task(group.tasks[0].id)
    assert broken.error is not None
    assert (broken.group, broken.group_id) == ("g", group.id)
    skipped = await get_task(after.id)
    assert (skipped.status, skipped.group_id) == (TaskStatus.SKIPPED, None)
    IS_BROKEN[0] = False
    await retry_failed_tasks(job.id)
    assert run_job_test(job).status is JobStatus.COMPLETED
    assert (await get_task(group.tasks[0].id)).result == "whole"
    assert (await get_task(after.id)).attempts == 1


@in_memory
async def test_a_task_that_needs_the_result_of_an_allowed_failure_fails_with_the_reason(context: OrchContext):
    broken = create_task(fail_once, name="broken", allow_failure=True)
    reader, after = (
        create_task(give, {"value": [broken]}, name="reader"),
        create_task(give, {"value": "after"}),
    )
    broken >> after
    job = run_job_test(await context.create_job("allowed", [reader, after]))
    assert job.status is JobStatus.FAILED
    assert "there is no result of broken: it has not completed" in str((await get_task(reader.id)).error)
    assert (await get_task(after.id)).status is TaskStatus.COMPLETED
    assert CALLS == ["after"]


@in_memory
async def test_a_collector_has_null_for_an_allowed_failure_and_a_task_as_often_as_it_was_given(
    context: OrchContext,
):
    broken = create_task(fail_once, name="broken", allow_failure=True)
    one = create_task(give, {"value": 1})
    last = create_task(give, {"value": ResultCollector([one, broken, one])})
    job = run_job_test(await context.create_job("allowed", last))
    assert (job.status, CALLS) == (JobStatus.COMPLETED, [1, [1, None, 1]])


async def _tasks_of(context: OrchContext, job_id: int) -> AsyncIterator[int]:
    added = context.backend.app.read.added_nodes  # type: ignore[attr-defined]
    for batch in await added.load_batches(str(job_id), await added.accepted_batches(str(job_id))):
        for node in batch.nodes:
            if "wait" not in node.definition:
                yield node.id


@in_memory
async def test_jobs_and_tasks_are_managed(context: OrchContext):
    job = await create_job("managed", give)
    added = await add_task_to_job(job.id, give, {"value": 5}, name="added")
    info = await get_task(added.id)
    assert (info.status, info.job_id, info.node_id, info.kwargs) == (
        TaskStatus.PENDING,
        job.id,
        "added",
        {"value": 5},
    )
    assert (info.created_at, info.log_path) == (added.created_at, None)
    assert [one.id for one in await list_jobs(JobStatus.PENDING)] == [job.id]
    assert [one.id for one in await list_jobs("pending")] == [job.id]
    assert await list_jobs("FAILED") == []
    with pytest.raises(QueryInvalid, match=r"'fialed' is not a status of a job: .*completed, failed"):
        await list_jobs("fialed")
    other = await create_job("other", give)
    assert [one.id for one in await list_jobs()] == [other.id, job.id]
    assert [one.id for one in await list_jobs(limit=1)] == [other.id]
    assert [one.id for one in await list_jobs(name="managed")] == [job.id]
    await cancel_job(job.id, comment="wrong year")
    assert run_job_test(job).status is JobStatus.CANCELLED
    events = await context.backend.call(list_events, str(job.id))
    assert "requested cancellation: wrong year" in str([event.sentence for event in events.items])
    assert (await get_job(job.id)).is_finished
    run_job_test(other)
    (task,) = [one async for one in _tasks_of(context, other.id)]
    info = await get_task(task)
    assert (info.status, info.attempts, info.entrypoint) == (TaskStatus.COMPLETED, 1, f"{__name__}.give")
    assert info.worker_id is not None
    assert None not in (info.created_at, info.claimed_at, info.started_at, info.completed_at)
    with pytest.raises(NodeNotFound):
        await get_task(1)
    assert context.job_id == job.id


@in_memory
async def test_tasks_of_a_job_that_exists_already_have_the_ids_of_the_stored_ones(context: OrchContext):
    def graph() -> list[Any]:
        group = Group("g", [create_task(give, {"value": 1}, name="one"), create_task(give, {"value": 2})])
        return [group, *group.tasks, group >> create_task(give, {"value": group.tasks[0]})]

    first, again = graph(), graph()
    assert {item.id for item in first}.isdisjoint(item.id for item in again)
    jobs = [await context.create_job("once", items, idempotency_key="k") for items in (first, again)]
    assert jobs[0].id == jobs[1].id
    assert [(item.id, item.node_id) for item in again] == [(item.id, item.node_id) for item in first]
    assert [(await get_task(task.id)).node_id for task in again[1:]] == ["one", "give", "give_2"]
    # They can be added to as the first ones can.
    await context.apply(again[3] >> create_task(give, {"value": again[1]}, name="later"))
    assert run_job_test(jobs[1]).status is JobStatus.COMPLETED
    assert (await get_task(again[1].id)).result == 1


def break_down(x: int) -> int:
    return 1 // x


def check_flag() -> None:
    print("before")  # noqa: T201 - what a task prints is its log
    raise PermanentError("the flag is not there")


@in_memory
async def test_a_failed_job_and_its_task_have_the_traceback(context: OrchContext):
    task = create_task(break_down, {"x": 0}, retry="none")
    job = await run_job_test_async(await context.create_job("broken", task))
    info = await get_task(task.id)
    assert info.error == "ZeroDivisionError: integer division or modulo by zero"
    assert info.traceback is not None
    assert "in break_down\n    return 1 // x" in info.traceback
    assert job.traceback == info.traceback == (await get_job(job.id)).traceback
    other = create_task(give)
    assert run_job_test(await context.create_job("whole", other)).traceback is None
    assert (await get_task(other.id)).traceback is None


@in_memory
async def test_a_task_has_the_path_of_its_log(context: OrchContext):
    task = create_task(give)
    await run_job_test_async(await context.create_job("logged", task))
    assert (await get_task(task.id)).log_path is None
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DAGMASTER_LOG_DIR")
        patch.setenv("AAICLICK_LOG_DIR", "/shared/logs")
        path = (await get_task(task.id)).log_path
    assert path == f"/shared/logs/{task.id}.log"


@pytest.mark.parametrize("variable", ["DAGMASTER_LOG_DIR", "AAICLICK_LOG_DIR"])
def test_the_log_of_a_task_of_run_job_test_is_a_file(variable, tmp_path, monkeypatch):
    async def run() -> str | None:
        async with OrchContext(in_memory=True) as context:
            task = create_task(say, {"text": "a line"})
            await run_job_test_async(await context.create_job("logged", task))
            return (await get_task(task.id)).log_path

    monkeypatch.delenv("DAGMASTER_LOG_DIR")
    monkeypatch.setenv(variable, str(tmp_path / "logs"))
    path = asyncio.run(run())
    assert path is not None
    assert "a line" in Path(path).read_text(encoding="utf-8")


def test_a_failed_task_has_its_error_in_its_log_file_and_a_silent_one_has_a_file(tmp_path, monkeypatch):
    async def run() -> list[str]:
        async with OrchContext(in_memory=True) as context:
            failing = create_task(break_down, {"x": 0}, retry="none")
            tasks = [failing, create_task(give), create_task(check_flag, retry="none")]
            await run_job_test_async(await context.create_job("logged", tasks))
            return [str((await get_task(task.id)).log_path) for task in tasks]

    monkeypatch.setenv("DAGMASTER_LOG_DIR", str(tmp_path / "logs"))
    broken, silent, permanent = [Path(path).read_text(encoding="utf-8") for path in asyncio.run(run())]
    assert "return 1 // x" in broken
    assert broken.endswith("\nZeroDivisionError: integer division or modulo by zero\n")
    assert silent.startswith("==== give: attempt 1 (task ")
    assert silent.count("\n") == 1
    assert permanent.partition("\n")[2] == "before\nthe flag is not there\n"


def try_twice(ctx: HandlerContext) -> None:
    print(f"try {ctx.attempt}")  # noqa: T201 - what a task prints is its log
    if ctx.attempt == 1:
        raise ConnectionError("not yet")


def test_the_attempts_of_a_task_are_in_one_file_in_the_default_directory(tmp_path, monkeypatch, capsys):
    async def run() -> str | None:
        async with OrchContext(in_memory=True) as context:
            silent = create_task(give)
            task = create_task(try_twice, retry={"max_attempts": 2, "initial_delay_seconds": 0.01})
            await run_job_test_async(await context.create_job("logged", [task, silent]))
            assert (await get_task(silent.id)).log_path is None
            path = (await get_task(task.id)).log_path
            assert path is not None
            assert path.endswith(f"/{task.id}.log")
            return path

    monkeypatch.delenv("DAGMASTER_LOG_DIR")
    monkeypatch.setattr(log_directory, "default_logs_dir", lambda _platform: tmp_path / "logs")
    path = asyncio.run(run())
    # A task that prints nothing has no file there: a fan-out of 100,000 has none.
    assert len(list((tmp_path / "logs").iterdir())) == 1
    text = Path(str(path)).read_text(encoding="utf-8")
    assert text.index("attempt 1 (task ") < text.index("try 1\n") < text.index("ConnectionError: not yet\n")
    assert text.index("ConnectionError: not yet\n") < text.index("attempt 2 (task ") < text.index("try 2\n")
    # Nobody chose files instead of the terminal.
    assert "try 1\ntry 2\n" in capsys.readouterr().out


@in_memory
async def test_the_results_of_several_last_tasks_are_the_result_by_their_nodes(context: OrchContext):
    group = Group("g", [create_task(give, {"value": 1}, name="one"), create_task(give, {"value": 2})])
    job = await context.create_job("results", [group, create_task(give, {"value": None}, name="none")])
    await context.apply(create_task(give, {"value": group.tasks[0]}, name="later"))
    assert job.result is None
    assert run_job_test(job).result == {"give": 2, "none": None, "later": 1}


@pytest.mark.parametrize(("max_bytes", "has_result"), [(150_000, False), (300_000, True)])
def test_last_results_that_are_large_together_are_not_loaded(
    max_bytes: int, has_result: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dagmaster.engine.job_completion.MAX_RESULT_BYTES", max_bytes)

    @in_memory
    async def story(context: OrchContext) -> None:
        last = [create_task(give, {"value": letter * 100_000}, name=letter) for letter in "ab"]
        job = run_job_test(await context.create_job("large", last))
        assert job.status is JobStatus.COMPLETED
        assert job.result == ({"a": "a" * 100_000, "b": "b" * 100_000} if has_result else None)
        assert (await get_task(last[0].id)).result == "a" * 100_000

    story()


@in_memory
async def test_a_worker_with_other_code_than_the_submitter_reports_both_fingerprints(context: OrchContext):
    task = create_task(give)
    job = await context.create_job("changed", task)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(task_options.FUNCTIONS, task.entrypoint, plain)
        await run_job_test_async(job)
    assert (job.status, CALLS) == (JobStatus.COMPLETED, [])
    detail = await node_detail(context.backend.app, str(job.id), "give")  # type: ignore[attr-defined]
    both = {"submitter": code_fingerprint(give), "worker": code_fingerprint(plain)}
    assert detail.attempts[0].metrics == {"code_fingerprint": both}


def test_a_local_context_needs_a_database():
    async def story() -> None:
        async with OrchContext(url="http://127.0.0.1:1", key="dm_x", local=True):
            pass

    with pytest.raises(ValueError, match="local=True"):
        asyncio.run(story())


@in_memory
async def test_workers_are_registered_and_health_is_a_mapping(context: OrchContext):
    assert context.memory is not None
    worker = await register_worker(hostname="worker-01", pid=12345)
    assert await worker_heartbeat(worker.id)
    assert [(one.hostname, one.pid) for one in await list_workers("active")] == [("worker-01", 12345)]
    assert await deregister_worker(worker.id)
    assert await list_workers(status="ACTIVE") == []
    with pytest.raises(QueryInvalid, match="'busy' is not a status of a worker: active, idle, stopped"):
        await list_workers("busy")
    assert [(one.id, one.status) for one in await list_workers()] == [(worker.id, "STOPPED")]
    # Not known any more; of another process; no id at all.
    answers = [
        await call(one) for call in (worker_heartbeat, deregister_worker) for one in (worker.id, 7, "x")
    ]
    assert answers == [False] * 6
    health = await health_check()
    assert health["database"]
    assert not health
    assert "0 alive" in health.details["orchestrators"]


def test_a_server_or_a_database_that_is_not_there_is_unhealthy(monkeypatch: pytest.MonkeyPatch):
    health = asyncio.run(health_check(url="http://127.0.0.1:1", key="dm_x"))
    assert (dict(health), bool(health)) == ({"server": False}, False)
    assert "cannot reach the server at http://127.0.0.1:1" in health.details["server"]
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", "postgresql://x@127.0.0.1:1/x")
    health = asyncio.run(health_check())
    assert dict(health) == {"database": False}
    assert "cannot be reached" in health.details["database"]
    with pytest.raises(SettingsInvalid):
        asyncio.run(health_check(url="nothing"))


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"running": 1}, "ACTIVE"),
        ({"running": 0}, "IDLE"),
        ({"running": 0, "version": "python"}, "ACTIVE"),
        ({"running": 1, "is_alive": False}, "STOPPED"),
    ],
)
def test_a_worker_is_active_idle_or_stopped(fields: dict[str, Any], status: str):
    view: Any = SimpleNamespace(
        **{
            "worker_id": "5", "host": "h", "pid": 6, "version": "1", "is_alive": True, "lease_seconds": 6.0,
            "silent_seconds": 1.0, "age_seconds": 60.0, "counters": {"completed": 3, "failed": 2}, **fields,
        }
    )  # fmt: skip
    worker = _worker_info(view)
    assert (worker.status, worker.id, worker.tasks_completed, worker.tasks_failed) == (status, 5, 3, 2)
    assert (worker.last_heartbeat - worker.started_at).total_seconds() == 59.0


def test_an_open_context_is_why_its_job_is_open_and_where():
    async def story() -> None:
        line = sys._getframe().f_lineno + 1
        async with OrchContext(in_memory=True) as context:
            job = await context.create_job("job", create_task(plain), idempotency_key="key")
            assert context.memory is not None
            assert context.memory.services is not None
            graph = await context.memory.app.outlines.of_job(await find_job(context.memory.app, str(job.id)))
            (spec,) = [one for one in graph.specs.values() if isinstance(one, WaitSpec)]
            reason = waiting_for_signal_or_time(spec, 100.0, 40.0)
            where = rf"{__file__}:{line} (process {os.getpid()} on {socket.gethostname()}, user "
            assert reason.sentence.startswith(f"keeps the job open: its context is open at {where}")
            assert reason.sentence.endswith("; if that process is gone, it ends in 1 min")
            # Another line, the same graph.
            other = OrchContext(in_memory=True)
            other._backend = context.backend
            again = await other.create_job("job", create_task(plain), idempotency_key="key")
            assert again.id == job.id

    asyncio.run(story())

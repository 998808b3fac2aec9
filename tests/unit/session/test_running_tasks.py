"""Tasks that add tasks to their own job, over a database in memory: with their success, or at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster import (
    Group,
    OrchContext,
    ResultCollector,
    RunningTask,
    add_task_to_job,
    create_job,
    create_result_collector,
    create_task,
    get_current_context,
    get_task,
    map_values,
    run_job_test_async,
)
from dagmaster.errors import NodesRejected, PermanentError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

RETRY = {"max_attempts": 4, "initial_delay_seconds": 0.01}
SEEN: list[Any] = []
FAILURES = [0]


def note(value: Any = None) -> Any:
    SEEN.append(value)
    return value


def square(chunk: list[int]) -> list[int]:
    return [value * value for value in chunk]


def note_chunk(chunk: list[int]) -> int:
    SEEN.append(chunk)
    return sum(chunk)


def _fail_sometimes() -> None:
    if FAILURES[0]:
        FAILURES[0] -= 1
        raise RuntimeError("drawn to fail")


async def split(count: int) -> int:
    handle = await map_values(square, range(count), chunk=4)
    await get_current_context().apply(create_task(note, {"value": handle}, name="total"))
    _fail_sometimes()
    return count


def split_in_a_plain_function(count: int) -> int:
    context = get_current_context()
    context.apply([create_task(note, {"value": 1}, name="first")])
    context.apply(create_task(note, {"value": map_values(square, range(count))}, name="total"))
    return count


async def add_now() -> str:
    task = create_task(note, {"value": "now"}, name="extra")
    context = get_current_context()
    assert isinstance(context, RunningTask)
    await context.apply(task, at_once=True)
    SEEN.append(("id", task.id))
    assert (task.node_id, task.job_id) == ("extra", context.job_id)
    _fail_sometimes()
    await context.apply(create_task(note, {"value": [task]}, name="later"))
    return "done"


async def add_groups_now() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    member = create_task(note, {"value": "member"}, name="member")
    inner = Group("inner", [member])
    outer = Group("outer", groups=[inner])
    await context.apply(outer, at_once=True)
    SEEN.append(("ids", outer.id, inner.id, inner.parent_group_id, member.id, member.group_id))
    _fail_sometimes()
    after = create_task(note, {"value": "after"}, name="after")
    outer >> after
    await context.apply(after)


async def add_shared_tasks() -> str:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    shared = create_task(note, {"value": "shared"}, name="shared")
    users = [create_task(note, {"value": shared}, name=name) for name in ("one", "two")]
    first = context.apply(users[0], at_once=True)
    with pytest.raises(
        NodesRejected, match=r"task shared \(made at .*\) is being added by another apply.*: await that"
    ):
        context.apply(users[1], at_once=True)
    await first
    await context.apply(users[1], at_once=True)
    return "done"


async def add_by_name() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    await add_task_to_job(context.job_id, note, {"value": "by name"})
    _fail_sometimes()


async def add_in_another_order() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    # As answers of a network come: the second attempt makes the same calls in another order.
    for number in (0, 1, 1, 2) if context.attempt == 1 else (2, 1, 0, 1):
        await context.apply(create_task(note, {"value": number}), at_once=True)
    _fail_sometimes()


async def add_what_needs_what_is_added_later() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    await context.apply(create_task(note, {"value": "apart"}))
    parts = map_values(note_chunk, range(3), chunk=2)
    await add_task_to_job(context.job_id, note, {"value": parts})
    _fail_sometimes()


async def add_a_name_in_use() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    await context.apply(create_task(note, {"value": 1}, name="same"), at_once=True)
    other = create_task(note, {"value": 2}, name="same")
    try:
        await context.apply(other, at_once=True)
    except NodesRejected as error:
        SEEN.append(str(error))
    other.name = "renamed"
    await context.apply(other, at_once=True)


async def add_a_name_in_use_with_its_result() -> None:
    await get_current_context().apply(create_task(note, name="growing"))


async def add_another_group_in_a_retry() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    group = Group("parts", [create_task(note, {"value": number}) for number in range(context.attempt)])
    await context.apply(group, at_once=True)
    raise ValueError("after adding")


async def wait_without_await() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    context.apply(create_task(note, {"value": "waited"}), at_once=True).wait()


async def wait_for_what_is_added_later() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    context.apply(create_task(note, {"value": "later"})).wait()


async def catch_the_error_of_wait() -> None:
    with pytest.raises(PermanentError, match="Await it"):
        await wait_without_await()


def wait_in_a_plain_function() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    context.apply(create_task(note, {"value": "plain"}), at_once=True).wait()
    # A loop of its own: the services of the run work on another one.
    asyncio.run(wait_without_await())


async def add_into_a_group() -> None:
    group = Group("more", [create_task(note, {"value": number}) for number in range(3)])
    last = create_task(note, {"value": "after the group"})
    group >> last
    await get_current_context().apply([group, last])


async def add_a_cycle() -> None:
    one, two = create_task(note, name="one"), create_task(note, name="two")
    one >> two >> one
    await get_current_context().apply([one, two])


async def add_to_another_job() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    await context.apply(create_task(note), job_id=1)


async def map_as_the_source_writes_it(callback: str, values: list[int]) -> ResultCollector:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    chunk_size = 4
    tasks = []
    for offset in range(0, len(values), chunk_size):
        task = create_task(callback=callback, kwargs={"chunk": values[offset : offset + chunk_size]})
        tasks.append(task)
    await context.apply(tasks)
    count = (len(values) + chunk_size - 1) // chunk_size
    return await create_result_collector(context.job_id, count)


async def split_as_the_source_does(count: int) -> None:
    context = get_current_context()
    await context.apply(create_task(note, {"value": "before"}))
    handle = await map_as_the_source_writes_it(f"{__name__}.square", list(range(count)))
    await context.apply(create_task(note, {"value": handle}, name="total"))
    _fail_sometimes()


async def collect_what_was_added_in_several_ways() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    first = create_task(note, {"value": "first"})
    await context.apply(first, at_once=True)
    inner = Group("inner", [create_task(note, {"value": "in two groups"})])
    await context.apply(Group("outer", [create_task(note, {"value": "in a group"})], [inner]))
    waited_for = create_task(note, {"value": "not given to apply"})
    await context.apply([waited_for >> create_task(note, {"value": "last"}), first])
    handle = await create_result_collector(context.job_id, 4)
    await context.apply(create_task(note, {"value": handle}, name="total"))


async def collect_wrongly() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    await context.apply([create_task(note), create_task(note)])
    for job_id, count in ((context.job_id, 3), (context.job_id, -1), (context.job_id + 1, 2)):
        with pytest.raises(NodesRejected) as error:
            create_result_collector(job_id, count)
        SEEN.append(str(error.value).replace(str(job_id), "JOB"))


async def add_a_generator() -> None:
    context = get_current_context()
    await context.apply(create_task(note, {"value": number}) for number in range(3))
    await context.apply(create_task(note, {"value": 3}))


def in_memory(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def run() -> None:
        SEEN.clear()
        FAILURES[0] = 0
        async with OrchContext(in_memory=True):
            await test()

    return lambda: asyncio.run(run())


async def run(function: Callable[..., Any], **kwargs: Any) -> Any:
    return await run_job_test_async(await create_job("growing", create_task(function, kwargs, retry=RETRY)))


@in_memory
async def test_tasks_that_a_task_adds_run_after_it_and_take_the_results_of_one_another():
    job = await run(split, count=10)
    assert job.status == "COMPLETED"
    assert SEEN == [[[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]]


@in_memory
async def test_what_failed_attempts_added_is_not_added():
    FAILURES[0] = 2
    job = await run(split, count=10)
    assert (job.status, len(SEEN)) == ("COMPLETED", 1)


@in_memory
async def test_a_plain_function_adds_tasks_in_several_calls_without_await():
    job = await run(split_in_a_plain_function, count=3)
    assert job.status == "COMPLETED"
    assert sorted(map(str, SEEN)) == ["1", "[[0, 1, 4]]"]


@in_memory
async def test_a_task_that_is_added_at_once_is_added_once_although_its_attempt_is_retried():
    FAILURES[0] = 2
    job = await run(add_now)
    assert job.status == "COMPLETED"
    assert SEEN.count("now") == 1
    assert ["now"] in SEEN, "a task that is added later takes its result"
    ids = {seen[1] for seen in SEEN if isinstance(seen, tuple)}
    assert len(ids) == 1, "every attempt gets the same id"
    assert (await get_task(ids.pop())).result == "now"


@in_memory
async def test_groups_that_are_added_at_once_have_the_stored_ids_although_the_attempt_is_retried():
    FAILURES[0] = 2
    assert (await run(add_groups_now)).status == "COMPLETED"
    outer, inner, parent, member, group = {seen[1:] for seen in SEEN if isinstance(seen, tuple)}.pop()
    assert len({seen for seen in SEEN if isinstance(seen, tuple)}) == 1, "every attempt gets the same ids"
    assert (parent, group) == (outer, inner)
    assert (await get_task(member)).group_id == inner
    assert SEEN[-1] == "after", "the group that it waits for is part of the job"


@in_memory
async def test_a_running_task_adds_to_its_own_job_by_name_once_for_all_attempts():
    FAILURES[0] = 2
    assert (await run(add_by_name)).status == "COMPLETED"
    assert SEEN == ["by name"]


@in_memory
async def test_calls_at_once_may_come_in_another_order_in_a_later_attempt():
    FAILURES[0] = 1
    assert (await run(add_in_another_order)).status == "COMPLETED"
    assert sorted(SEEN) == [0, 1, 1, 2]


@pytest.mark.parametrize("failures", [0, 1])
def test_a_call_at_once_takes_along_what_was_to_be_added_with_the_success(failures):
    @in_memory
    async def test():
        FAILURES[0] = failures
        assert (await run(add_what_needs_what_is_added_later)).status == "COMPLETED"
        assert sorted(SEEN, key=str) == [[0, 1], [1, 2], [2], "apart"]

    test()


@in_memory
async def test_a_task_learns_that_what_it_adds_at_once_is_rejected_and_can_add_it_again():
    job = await run(add_a_name_in_use)
    assert job.status == "COMPLETED"
    (error,) = [seen for seen in SEEN if isinstance(seen, str)]
    assert error.startswith(f"same cannot be added to job {job.id}: the job has a node 'same' already")
    assert sorted(seen for seen in SEEN if isinstance(seen, int)) == [1, 2]


@in_memory
async def test_the_attempt_whose_nodes_are_rejected_has_failed():
    task = create_task(add_a_name_in_use_with_its_result, name="growing", retry=RETRY)
    job = await run_job_test_async(await create_job("rejected", task))
    assert "its nodes cannot be added: the job has a node 'growing' already" in (job.error or "")
    context: Any = get_current_context()
    backend = context.backend
    events = await backend.app.read.events(str(job.id))
    ends = [(event.type, event.attempt) for event in events if event.node_id == "growing"]
    assert ends == [("NodeDispatched", 1), ("AttemptFailed", 1), ("NodeFailed", None)]
    (attempt,) = await backend.app.read.attempts(str(job.id), "growing")
    assert (attempt.status, attempt.error["kind"]) == ("FAILED", "added_nodes")


@in_memory
async def test_two_calls_at_once_that_share_a_task_are_made_one_after_the_other():
    job = await run(add_shared_tasks)
    assert (job.status, job.error) == ("COMPLETED", None)
    assert SEEN == ["shared"] * 3


@in_memory
async def test_the_error_of_a_retry_that_adds_something_else_at_once_names_the_earlier_call():
    job = await run(add_another_group_in_a_retry)
    assert job.status == "FAILED"
    assert "the job has a node 'parts' already, which 'add_another_group_in_a_retry' added before" in str(
        job.error
    )


@in_memory
async def test_an_async_task_that_would_block_its_loop_fails_at_once_and_says_to_await():
    job = await run(wait_without_await)
    assert job.status == "FAILED"
    assert "Await it: `await get_current_context().apply(…)`" in str(job.error)
    assert SEEN == ["waited"], "no second attempt, and what it had sent is added"


@in_memory
async def test_what_an_async_task_did_not_wait_for_is_added_before_it_ends():
    assert (await run(catch_the_error_of_wait)).status == "COMPLETED"
    assert SEEN == ["waited"]


@pytest.mark.parametrize(
    ("function", "values"),
    [(wait_for_what_is_added_later, ["later"]), (wait_in_a_plain_function, ["plain", "waited"])],
)
def test_a_wait_that_blocks_no_loop_of_services_returns(function, values):
    @in_memory
    async def test():
        assert (await run(function)).status == "COMPLETED"
        assert sorted(SEEN) == values

    test()


@in_memory
async def test_a_group_that_a_task_adds_is_complete_before_its_followers_start():
    assert (await run(add_into_a_group)).status == "COMPLETED"
    assert sorted(map(str, SEEN[:3])) == ["0", "1", "2"]
    assert SEEN[3:] == ["after the group"]


@in_memory
async def test_a_cycle_fails_the_task_and_is_spelled_out():
    job = await run(add_a_cycle)
    assert job.status == "FAILED"
    assert "cycle: one → two → one" in str(job.error)
    assert SEEN == []


@in_memory
async def test_a_task_cannot_add_to_another_job():
    job = await run(add_to_another_job)
    assert "a running task adds to its own job" in str(job.error)


@pytest.mark.parametrize(("count", "squares"), [(10, [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]), (0, [])])
@pytest.mark.parametrize("failures", [0, 1])
def test_a_task_collects_the_results_of_the_last_tasks_that_it_added(count, squares, failures):
    @in_memory
    async def test():
        FAILURES[0] = failures
        assert (await run(split_as_the_source_does, count=count)).status == "COMPLETED"
        assert sorted(SEEN, key=str) == sorted(["before", squares], key=str)

    test()


@in_memory
async def test_the_last_tasks_are_those_that_were_given_to_apply_in_that_order():
    assert (await run(collect_what_was_added_in_several_ways)).status == "COMPLETED"
    assert ["first", "in a group", "in two groups", "last"] in SEEN


@in_memory
async def test_a_collector_of_another_job_or_of_more_tasks_than_were_added_is_rejected():
    assert (await run(collect_wrongly)).status == "COMPLETED"
    too_many, negative, other_job = [seen for seen in SEEN if seen is not None]
    assert too_many == "this task has added 2 tasks to its job: the last 3 cannot be collected"
    assert negative == "this task has added 2 tasks to its job: the last -1 cannot be collected"
    assert other_job.startswith("a running task collects results of its own job, ")
    assert other_job.endswith(", not of JOB")


def test_the_last_tasks_can_be_collected_only_in_a_running_task():
    with pytest.raises(NodesRejected, match="no task is running here: give the tasks"):
        create_result_collector(1, 2)
    wrong: list[Any] = [(1,), (1, "2"), (1, True), ([create_task(note)], 1)]
    for arguments in wrong:
        with pytest.raises(
            TypeError, match="takes tasks, or the id of the job of the running task and how many"
        ):
            create_result_collector(*arguments)


@in_memory
async def test_tasks_of_a_generator_are_added_although_apply_is_called_again():
    assert (await run(add_a_generator)).status == "COMPLETED"
    assert sorted(SEEN) == [0, 1, 2, 3]


def test_outside_of_a_task_and_of_a_context_there_is_no_current_context():
    with pytest.raises(RuntimeError, match="there is no context here"):
        asyncio.run(_ask())


async def _ask() -> None:
    get_current_context()


def test_map_outside_of_a_task_makes_tasks_of_the_graph_that_uses_it():
    handle = map_values(square, range(10), chunk=3)
    assert isinstance(handle, ResultCollector)
    assert [task.kwargs["chunk"] for task in handle.sources] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]  # type: ignore[union-attr]


def test_map_takes_values_and_not_a_task():
    with pytest.raises(NodesRejected, match="takes the values themselves"):
        map_values(square, create_task(note))


def test_a_chunk_has_at_least_one_value():
    with pytest.raises(ValueError, match="at least 1 value"):
        map_values(square, [1], chunk=0)

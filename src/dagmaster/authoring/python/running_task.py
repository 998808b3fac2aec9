"""What a running task can do to its own job: add tasks, groups and dependencies.

By default they become part of the job with the success of the task: what a failed attempt added is not added,
and a retry adds nothing twice. `at_once` adds them now, once for all attempts.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from dagmaster.authoring.graph_parts import GraphPart
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.authoring.python.graph_items import GraphItem, Group, ResultCollector, Task, items_in
from dagmaster.errors import NodesRejected, PermanentError
from dagmaster.host.event_loops import has_running_loop
from dagmaster.sdk.handler_context import CURRENT_CONTEXT
from dagmaster.sdk.json_forms import short_repr
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
    from concurrent.futures import Future

    from dagmaster.authoring.python.graph_collection import Collected
    from dagmaster.json_types import JsonObject
    from dagmaster.sdk.handler_context import HandlerContext

T = TypeVar("T")
CHUNK: Final = 10_000
"""How many values a task of `map` gets, unless it is given."""


class Applied(Generic[T]):
    """Items that were applied. `await` returns them; a plain function need not wait."""

    __slots__ = ("_finish", "_future", "is_awaited", "items")

    def __init__(
        self, items: T, future: Future[JsonObject] | None, finish: Callable[[JsonObject], None]
    ) -> None:
        self.items = items
        self._future = future
        self._finish = finish
        self.is_awaited = False

    def __await__(self) -> Generator[Any, None, T]:
        """Wait until the items are accepted, and return them."""
        self.is_awaited = True
        if self._future is not None:
            answer = yield from asyncio.wrap_future(self._future).__await__()
            self._finish(answer)
        return self.items

    def wait(self) -> T:
        """Block until the items are accepted, and return them. An async task has to await instead."""
        if self._future is not None:
            check_may_block("apply(…).wait()", "await get_current_context().apply(…)")
            self.is_awaited = True
            self._finish(self._future.result())
        return self.items


class RunningTask:
    """The running task and its job, as `get_current_context()` returns it in a task."""

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._staged: list[GraphItem] = []
        self._calls: list[Applied[Any]] = []
        # The ids of what calls at once are adding. The items are marked when their call is awaited.
        self._pending: set[int] = set()
        # The tasks that were given to `apply`, in that order. A mapping: one that is given again keeps its
        # place.
        self._added_tasks: dict[Task, None] = {}

    @property
    def job_id(self) -> int:
        return int(self._context.job_id)

    @property
    def node_id(self) -> str:
        return self._context.node_id

    @property
    def attempt(self) -> int:
        return self._context.attempt

    def apply(self, items: T, job_id: int | None = None, *, at_once: bool = False) -> Applied[T]:
        """Add tasks, groups and their dependencies to the job of this task, or raise `NodesRejected`.

        They become part of the job with the success of this attempt. With `at_once` they do now, and a later
        attempt that makes the same call adds nothing. `await` it; in a plain function it needs no await.
        """
        if job_id is not None and str(job_id) != self._context.job_id:
            raise NodesRejected(
                f"a running task adds to its own job, {self.job_id}, not to {short_repr(job_id)}"
            )
        return self._apply_now(items) if at_once else self._stage(items)

    def _collect(self, items: Any) -> Collected:
        collected = collect(items, job_id=self.job_id, default_queue=self._context.queue or None)
        collected.check()
        return collected

    def _stage(self, items: T) -> Applied[T]:
        # All together: a later call may refer to what an earlier one added.
        new_items = list(items_in(items))
        staged = [*self._staged, *new_items]
        self._context.added = self._collect(staged).part
        self._staged = staged
        self._added_tasks |= dict.fromkeys(_tasks_in(new_items))
        return Applied(items, None, lambda _: None)

    def _apply_now(self, items: T) -> Applied[T]:
        new_items = list(items_in(items))
        collected = self._collect(new_items)
        item = next((item for item in collected.items if item.id in self._pending), None)
        if item is not None:
            raise NodesRejected(
                f"{item.described} is being added by another apply(…, at_once=True): await that first"
            )
        self._pending.update(item.id for item in collected.items)
        future = self._context.add_nodes_at_once(collected.part)
        applied = Applied(items, future, lambda answer: self._on_added(new_items, collected, answer))
        self._calls.append(applied)
        if not has_running_loop():
            applied.wait()
        return applied

    def _on_added(self, new_items: list[GraphItem], collected: Collected, answer: JsonObject) -> None:
        self._pending.difference_update(item.id for item in collected.items)
        _mark_added(collected, self.job_id, answer)
        self._added_tasks |= dict.fromkeys(_tasks_in(new_items))
        added = self._context.added
        if isinstance(added, GraphPart) and not _ids_in(added).isdisjoint(_ids_in(collected.part)):
            # What was to be added with the success, and belongs to these items, is part of the job now.
            part = self._collect(self._staged).part
            self._context.added = part if part.tasks or part.groups or part.dependencies else None

    def last_tasks(self, job_id: int, count: int) -> list[Task]:
        """Return the last tasks added to the job of this task; raise `NodesRejected` if there are fewer."""
        if int(job_id) != self.job_id:
            raise NodesRejected(
                f"a running task collects results of its own job, {self.job_id}, not of {job_id}"
            )
        if not 0 <= count <= len(self._added_tasks):
            added = format_count(len(self._added_tasks), "task")
            raise NodesRejected(
                f"this task has added {added} to its job: the last {count} cannot be collected"
            )
        return list(self._added_tasks)[len(self._added_tasks) - count :]

    async def finish_calls(self) -> None:
        """Wait for the calls at once that the task did not wait for: it must not end before them."""
        for applied in self._calls:
            if not applied.is_awaited:
                await applied


def get_running_task() -> RunningTask | None:
    """Return the task that runs here; None outside of a task."""
    context = CURRENT_CONTEXT.get()
    if context is None:
        return None
    running: RunningTask | None = context.running_task
    if running is None:
        running = context.running_task = RunningTask(context)
    return running


def check_may_block(call: str, instead: str) -> None:
    """Raise `PermanentError` in an async task: it would block its loop, maybe the one that has to answer."""
    context = CURRENT_CONTEXT.get()
    if context is not None and has_running_loop() and asyncio.get_running_loop() is context.loop:
        raise PermanentError(
            f"{call} would block the event loop that this async task runs on, and may wait forever for an"
            " answer that"
            f" comes on it. Await it: `{instead}`",
            kind="blocking_call",
        )


def map_values(
    callback: str | Callable[..., Any],
    values: Iterable[Any],
    *,
    chunk: int = CHUNK,
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> ResultCollector:
    """Run a function for chunks of values: one task gets up to `chunk` of them as its argument `chunk`.

    Return a handle for the results of all chunks, in order: a later task takes it as an argument. In a
    running task the tasks are added to its job; elsewhere they are part of the graph that the handle is used
    in. `kwargs`: further arguments; `options`: as of a task.
    """
    if isinstance(values, GraphItem):
        raise NodesRejected(
            "map() takes the values themselves: call it in a task that gets them as an argument, or use"
            " .map() of a"
            " @task in a @workflow, which expands a result when the job runs"
        )
    items = _check_chunks(callback, values, chunk)
    frame = sys._getframe(1)  # noqa: SLF001 - errors about the tasks name the line of the caller
    others = Task(callback, kwargs, _frame=frame, **options).kwargs
    tasks = [
        Task(callback, {**others, "chunk": items[start : start + chunk]}, _frame=frame, **options)
        for start in range(0, len(items), chunk)
    ]
    collector = create_result_collector(tasks)
    running = get_running_task()
    if running is not None:
        running.apply([tasks, collector])
    return collector


def _check_chunks(callback: Any, values: Any, chunk: Any) -> list[Any]:
    """Return the values as a list; raise if they, or the size of a chunk, are none."""
    label = f"map({getattr(callback, '__name__', None) or short_repr(callback)})"
    if isinstance(chunk, bool) or not isinstance(chunk, int):
        raise TypeError(f"{label}: chunk is a whole number of values, not {short_repr(chunk)}")
    if chunk < 1:
        raise ValueError(f"{label}: a chunk has at least 1 value, not {chunk}")
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise TypeError(f"{label}: the values are a list, or another iterable, not {short_repr(values)}")
    return list(values)


map = map_values  # noqa: A001 - the name that the source systems use


@overload
def create_result_collector(
    tasks: Iterable[Task | ResultCollector], *, name: str | None = None
) -> ResultCollector: ...


@overload
def create_result_collector(tasks: int, count: int, *, name: str | None = None) -> ResultCollector: ...


def create_result_collector(
    tasks: Iterable[Task | ResultCollector] | int, count: int | None = None, *, name: str | None = None
) -> ResultCollector:
    """Return a handle for the results of tasks, as a list in their order.

    In a running task, also `create_result_collector(job_id, count)`: the last `count` tasks that it gave to
    `apply`, in that order; members of groups count, what they wait for does not. `job_id` is that of its own
    job.
    """
    if count is None and not isinstance(tasks, int):
        return ResultCollector(tasks, name=name)
    if not isinstance(tasks, int) or type(count) is not int:
        raise TypeError(
            "a collector takes tasks, or the id of the job of the running task and how many of the tasks that"
            " it added"
            f" last, not {tasks!r:.100} and {count!r:.100}"
        )
    running = get_running_task()
    if running is None:
        raise NodesRejected("no task is running here: give the tasks, create_result_collector([one, two])")
    collector = ResultCollector(running.last_tasks(tasks, count), name=name)
    running.apply(collector)
    return collector


def _mark_added(collected: Collected, job_id: int, answer: JsonObject) -> None:
    error: Any = answer.get("error")
    if error is not None:
        raise NodesRejected(str(error))
    nodes: Any = answer["nodes"]
    groups: Any = answer["groups"]
    group_ids = {str(name): int(number) for number, name in groups}
    stored = [(group.id, group_ids[group.name], group.name) for group in collected.part.groups]
    stored += [
        (task.id, int(number), str(name))
        for task, (number, name) in zip(collected.part.tasks, nodes, strict=True)
    ]
    names: dict[int, str] = {}
    by_id = {item.id: item for item in collected.items}
    for item_id, number, name in stored:
        # An earlier attempt made the same call: its ids count.
        by_id[item_id].id = number
        names[number] = name
    collected.mark_applied(job_id, names)


def _tasks_in(items: Iterable[GraphItem]) -> Iterator[Task]:
    """Yield the tasks of a call of `apply`, also the ones in groups."""
    for item in items:
        if isinstance(item, Group):
            yield from _tasks_in(item.members)
        elif isinstance(item, Task):
            yield item


def _ids_in(part: GraphPart) -> set[int]:
    return {task.id for task in part.tasks} | {group.id for group in part.groups}

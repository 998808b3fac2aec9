"""Tasks and groups of graphs that are built in code, with `>>` between them.

They are plain objects: nothing is stored until they are applied to a job. Their ids are made without a
database.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Never, TypeAlias
from weakref import WeakValueDictionary

from dagmaster.authoring.python.futures import MAX_DEPTH
from dagmaster.authoring.python.result_parts import ResultPart, no_items, no_text, no_truth
from dagmaster.authoring.python.task_options import (
    CHECKED,
    TASK_OPTIONS,
    TaskOptions,
    add_options,
    check_keywords,
    check_written_name,
    declared_options,
    merged_options,
    no_entrypoint,
    read_function,
    shown,
)
from dagmaster.authoring.schema import TaskModel
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import HandlerInvalid, NodesRejected
from dagmaster.host.snowflakes import TASK_IDS, time_of
from dagmaster.sdk.json_forms import short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
    from types import FrameType
    from typing import Self, Unpack

_OWN_FOLDER: Final = str(Path(__file__).parents[2])
ItemKind: TypeAlias = Literal["task", "group"]
_MAX_ID: Final = 2**63
APPLIED: Final[WeakValueDictionary[int, Task]] = WeakValueDictionary()
"""The tasks of this process that are part of a job, by id: their status is set when it is read."""


class Dependency(NamedTuple):
    """`next` waits for `previous`. Both are ids of tasks or groups."""

    previous_id: int
    previous_type: ItemKind
    next_id: int
    next_type: ItemKind


class GraphItem:
    """A task or a group. `a >> b` and `b << a`: b waits for a. Lists may stand on either side."""

    __slots__ = ("__weakref__", "group", "id", "job_id", "name", "next", "node_id", "previous", "stored")
    kind: ItemKind = "task"

    def __init__(self, name: str | None) -> None:
        self.id = TASK_IDS.new()
        self.name = name
        self.group: Group | None = None
        self.job_id: int | None = None
        """The job, once it is applied."""
        self.node_id: str | None = None
        """The id of its node in the job, once it is applied."""
        self.previous: list[GraphItem] | None = None
        self.next: list[GraphItem] | None = None
        # How many of `previous` were applied.
        self.stored = 0

    @property
    def label(self) -> str:
        return self.name or f"{type(self).__name__} {self.id}"

    @property
    def described(self) -> str:
        """Return the kind and the name for messages, with the line that made it if that is known."""
        place = getattr(self, "made_at", "")
        return f"{type(self).__name__.lower()} {self.label}{place and f' (made at {place})'}"

    @property
    def created_at(self) -> datetime:
        """Return when it was made: its id has the time."""
        return datetime.fromtimestamp(time_of(str(self.id)), UTC)

    @property
    def group_id(self) -> int | None:
        return None if self.group is None else self.group.id

    @property
    def dependencies(self) -> list[Dependency]:
        return [Dependency(one.id, one.kind, self.id, self.kind) for one in self.previous or ()]

    def depends_on(self, *others: GraphItem | Iterable[Any]) -> Self:
        """Make this wait for tasks and groups; return self."""
        for other in self._items_in(others):
            _link(other, self)
        return self

    def _items_in(self, items: Any) -> list[GraphItem]:
        try:
            return list(items_in(items))
        except TypeError as error:
            raise TypeError(f"{type(self).__name__.lower()} {self.label}: {error}") from None

    def __rshift__(self, other: Any) -> Any:
        """Make the others wait for this; return them."""
        if isinstance(other, GraphItem):
            _link(self, other)
        elif isinstance(other, list | tuple):
            for one in self._items_in(other):
                _link(self, one)
        else:
            return NotImplemented
        return other

    def __lshift__(self, other: Any) -> Any:
        """Make this wait for the others; return self."""
        if not isinstance(other, GraphItem | list | tuple):
            return NotImplemented
        return self.depends_on(other)

    def __rrshift__(self, other: Any) -> Any:
        """Make this wait for a list: `[a, b] >> c`; return self."""
        return self << other

    def __rlshift__(self, other: Any) -> Any:
        """Make a list wait for this: `[a, b] << c`; return the list."""
        return self >> other

    def __getitem__(self, key: Any) -> ResultPart:
        """Return a part of the result, which stands for its value in `kwargs` of another task."""
        return ResultPart(self, (key,))

    def __iter__(self) -> Never:
        raise no_items(self)

    def __bool__(self) -> bool:
        """Raise: a condition on a task would always be true."""
        raise no_truth(self, "result")

    def __format__(self, form: str) -> str:
        """Raise of a task: `f"{task}.tif"` is not its result. `print(task)` and `{task!r}` show the task."""
        if self.kind == "task":
            raise no_text(self)
        return super().__format__(form)

    def _repr_svg_(self) -> str | None:
        from dagmaster.authoring.python.graph_drawing import draw_item

        return draw_item(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label!r} id={self.id}>"


class Task(GraphItem):
    """One call of a function: `entrypoint` is `module.function`, a function, or a function with `@task`.

    The options of `@task` also apply to the name of such a function, if its module is imported, or its source
    is here and all of them are literals: else none applies. No module is imported for them.

    A task, or a collector of results, anywhere in `kwargs` stands for its result, and is a dependency;
    `task["size"]` and `task[0]["size"]` stand for a part of it. Any other value is JSON, or has one obvious
    form in it, as a date or a model. Text is a value and never a template.

    A task without a `name` is called after its function. In the graph that a job is made of, the second one
    of a function is `load_2`. What is added later also has the number of that addition: `load_b3_1` is the
    first `load` of the third part of the job. The graph that it was made of is the first part; every `apply`
    of a context, or with `at_once`, makes another, and so does a task with everything that it adds when it
    succeeds. They are the names of the nodes, and the keys of a result of several tasks.
    """

    __slots__ = (
        "_code",
        "_position",
        "_status",
        "entrypoint",
        "function",
        "kwargs",
        "options",
    )

    def __init__(
        self,
        entrypoint: str | Callable[..., Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        _frame: FrameType | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise NodesRejected(
                f"the name of a task is text, not {short_repr(name)}: a task of {shown(entrypoint)}"
            )
        if kwargs is not None and type(kwargs) is not dict and not hasattr(kwargs, "keys"):
            label = name or shown(entrypoint)
            raise NodesRejected(f"task {label}: kwargs is {short_repr(kwargs)}, not a mapping of arguments")
        super().__init__(name)
        # Where it is made. The line is looked up when an error names it: that takes longer the longer a
        # function is.
        frame = _frame or sys._getframe(1)  # noqa: SLF001 - there is no other way to the caller
        self._code, self._position = frame.f_code, frame.f_lasti
        self.options: Mapping[str, Any]
        """Its options as definitions have them, with its function's; options that are not set are left
        out."""
        if type(entrypoint) is str:
            if entrypoint not in CHECKED:
                check_written_name(entrypoint)
            self.entrypoint = entrypoint
            self.function: Callable[..., Any] | None = None
            self.kwargs = {} if kwargs is None else kwargs
            self.options = declared_options(entrypoint)
        else:
            self._read_function(entrypoint, kwargs)
        if options:
            known = merged_options(self.options, options)
            if known is None:
                check_keywords("Task" if _frame is None else "create_task", entrypoint, kwargs, options)
                self._add_options(options)
            else:
                self.options = known

    def _read_function(self, function: Any, kwargs: Mapping[str, Any] | None) -> None:
        try:
            declared = read_function(function)
        except TypeError as error:
            # It cannot be a key of the cache.
            raise no_entrypoint(function) from error
        self.entrypoint, self.function = declared.name, declared.function
        self.kwargs = {**declared.constants, **(kwargs or {})} if declared.constants else kwargs or {}
        self.options = declared.options
        if self.name is None:
            self.name = declared.node_name

    def _add_options(self, options: TaskOptions) -> None:
        allow_failure = options.get("allow_failure", False)
        if allow_failure is not False and allow_failure is not True:
            raise NodesRejected(
                f"task {self.label}: allow_failure is True or False, not {allow_failure!r:.100}"
            )
        try:
            self.options = add_options(self.options, options, f"task {self.label}")
        except HandlerInvalid as error:
            place = self.made_at
            raise HandlerInvalid(f"{error}{place and f' (made at {place})'}") from None

    def __getattr__(self, name: str) -> Any:
        """Return an option: `task.queue`; of one that is not set, its default."""
        if name not in TASK_OPTIONS:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)
        return self.options.get(name, TaskModel.model_fields[name].default)

    @property
    def status(self) -> NodeStatus:
        """Return its status as it was read last: by `get_task`, `list_tasks` or `run_job_test`.

        PENDING before that, and before it is part of a job.
        """
        status: NodeStatus = getattr(self, "_status", NodeStatus.PENDING)
        return status

    @status.setter
    def status(self, status: NodeStatus) -> None:
        self._status = status

    @property
    def label(self) -> str:
        """Return a name for messages: its own, else that of its function."""
        return self.name or self.stem

    @property
    def made_at(self) -> str:
        """Return the `file:line` of the code that made it; an empty text if that is code of dagmaster."""
        code = getattr(self, "_code", None)
        if code is None or code.co_filename.startswith(_OWN_FOLDER):
            return ""
        line = next(islice(code.co_positions(), self._position // 2, None), (None,))[0]
        return f"{code.co_filename}:{line or code.co_firstlineno}"

    def __getstate__(self) -> Any:
        """Return what a copy has: code cannot be pickled."""
        state: Any = super().__getstate__()
        return state[0], {name: value for name, value in state[1].items() if name != "_code"}

    @property
    def stem(self) -> str:
        return self.entrypoint.rpartition(".")[2]


class ResultCollector(GraphItem):
    """The results of tasks as a list, in their order; of those that failed and are allowed to, null.

    In `kwargs` of a task it stands for the list, and the task waits for all of them.
    """

    __slots__ = ("sources",)

    def __init__(self, sources: Iterable[Task | ResultCollector], *, name: str | None = None) -> None:
        super().__init__(name)
        if name is not None and not isinstance(name, str):
            raise NodesRejected(f"the name of a collector is text, not {short_repr(name)}")
        if isinstance(sources, GraphItem) or not hasattr(sources, "__iter__"):
            raise TypeError(f"a collector takes a list of tasks, not {short_repr(sources)}")
        self.sources = list(sources)
        for source in self.sources:
            if not isinstance(source, Task | ResultCollector):
                raise TypeError(f"a collector takes the results of tasks, not {short_repr(source)}")

    def __await__(self) -> Generator[None, None, Self]:
        """Return the handle itself: the results are there when a later task runs."""
        yield from ()
        return self


class Group(GraphItem):
    """Tasks and groups that others can wait for as one.

    It is complete when everything in it, at any depth, is.

    What a group waits for, everything in it waits for. Its name is that of its node, so it is unique in a
    job. `id`: one that was made before; without it, it gets a new one.
    """

    __slots__ = ("groups", "tasks")
    kind: ItemKind = "group"

    def __init__(
        self,
        name: str,
        tasks: Iterable[Any] = (),
        groups: Iterable[Any] = (),
        *,
        id: int | None = None,  # noqa: A002 - the name that the source systems use
    ) -> None:
        argument: Any = name
        if not isinstance(argument, str) or not argument:
            raise NodesRejected(f"the name of a group is text, not {short_repr(argument)}")
        super().__init__(name)
        if id is not None:
            if type(id) is not int or not 0 < id < _MAX_ID:
                raise NodesRejected(
                    f"group {name}: its id is a whole number from 1 to 2^63 - 1, not {short_repr(id)}"
                )
            self.id = id
        self.tasks: list[Task | ResultCollector] = []
        self.groups: list[Group] = []
        self.add(tasks, groups)

    def __getitem__(self, key: Any) -> Never:
        """Raise: a group has no result."""
        raise TypeError(
            f"{self.described} has no result: name a task in it, or collect the results of its tasks"
        )

    def __iter__(self) -> Never:
        """Raise: its members are in two lists."""
        raise TypeError(
            f"{self.described} cannot be looped over: its members are group.members, its tasks group.tasks"
        )

    def __bool__(self) -> bool:
        """Raise: a condition on a group would always be true."""
        raise no_truth(self, "outcome")

    @property
    def parent_group_id(self) -> int | None:
        return self.group_id

    @property
    def members(self) -> list[GraphItem]:
        return [*self.tasks, *self.groups]

    def add(self, *members: GraphItem | Iterable[Any]) -> Self:
        """Put tasks and groups into it; return self."""
        for member in self._items_in(members):
            if member.group is not None and member.group is not self:
                raise NodesRejected(f"{member.label} is in the group {member.group.label} already")
            if member.group is self:
                continue
            if member.job_id is not None:
                raise NodesRejected(
                    f"{member.label} is part of job {member.job_id} already: its group cannot change"
                )
            member.group = self
            if isinstance(member, Group):
                self.groups.append(member)
            else:
                self.tasks.append(member)  # type: ignore[arg-type]
        return self


def create_task(
    callback: str | Callable[..., Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    **options: Unpack[TaskOptions],
) -> Task:
    """Return a task of a function: its name as `module.function`, the function, or one with `@task`.

    Of a name, the options of `@task` apply if its module is imported, or if its source is here and queue,
    retry and timeout_seconds are literals: if one is not, none applies.
    """
    # Its own frame: one of a function in between costs as much as all the rest of this.
    return Task(callback, kwargs, name=name, _frame=sys._getframe(1), **options)  # noqa: SLF001 - as above


def items_in(items: Any, depth: int = 0) -> Iterator[GraphItem]:
    """Yield the tasks and groups of one, of a list, of lists of lists."""
    if depth > MAX_DEPTH:
        raise TypeError(f"lists of tasks are nested more than {MAX_DEPTH} deep, or one contains itself")
    if isinstance(items, GraphItem):
        yield items
    elif isinstance(items, list | tuple):
        for one in items:
            if isinstance(one, GraphItem):
                yield one
            else:
                yield from items_in(one, depth + 1)
    elif isinstance(items, str | dict | ResultPart) or not hasattr(items, "__iter__"):
        raise TypeError(f"{short_repr(items)} is not a Task, a Group or a list of them")
    else:
        yield from items_in(list(items), depth)


def _link(previous: GraphItem, following: GraphItem) -> None:
    if following.previous is None:
        following.previous = [previous]
    else:
        following.previous.append(previous)
    if previous.next is None:
        previous.next = [following]
    else:
        previous.next.append(following)

"""The nodes of a graph that is being built, and the builder that calls in a workflow function add them to.

Ids are assigned at the end: an explicit name wins over the default id of a node that was added before it.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.python.futures import Future, ItemOrigin, NodeOrigin, Ordered
from dagmaster.authoring.python.places import calling_place, reject
from dagmaster.errors.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

    from dagmaster.authoring.python.futures import Dependency
    from dagmaster.authoring.python.places import Place
    from dagmaster.authoring.python.tasks import NodeCall
    from dagmaster.authoring.python.workflows import Workflow

OTHER_THREADS: Final = (
    "a call in another thread is not part of the graph: call the tasks in the function itself"
)
_ACTIVE: Final[ContextVar[GraphBuilder | None]] = ContextVar("dagmaster_graph_builder", default=None)
# Those of all threads.
_ALL_ACTIVE: Final[list[GraphBuilder]] = []


class Node:
    """One node: its type, its keys as in YAML (with futures among the values), and where it was written."""

    __slots__ = ("after", "branch", "depends_on", "group", "keys", "kind", "label", "level", "name", "place")

    def __init__(  # noqa: PLR0913 - what a node has
        self,
        kind: str,
        label: str,
        keys: dict[str, Any],
        *,
        name: str | None = None,
        depends_on: Dependency | list[Dependency] | None = None,
        level: int = 0,
        branch: Branch | None = None,
        group: Node | None = None,
        place: Place | None = None,
    ) -> None:
        self.kind = kind
        self.label = name or label
        self.name = name
        self.keys = keys
        # What the author wrote; the nodes that values come from are added to it.
        self.depends_on: Dependency | list[Dependency] | None = depends_on
        self.after: tuple[Dependency, ...] = ()
        self.level = level
        self.branch = branch
        self.group = group
        self.place = place or calling_place()

    def groups(self) -> Iterator[Node]:
        group = self.group
        while group is not None:
            yield group
            group = group.group

    def result(self) -> Future[Any]:
        return Future(NodeOrigin(self, "outputs" if self.kind == "fan_out" else "output"))


class Branch:
    """A branch of a conditional. Nodes that are made in `with branch:` run only if it is taken."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name
        self._outer: Branch | None = None

    def __enter__(self) -> Self:
        builder = require_builder("a branch")
        self._outer, builder.branch = builder.branch, self
        return self

    def __exit__(self, *_: object) -> None:
        require_builder("a branch").branch = self._outer

    def encloses(self, node: Node) -> bool:
        branch = node.branch
        while branch is not None and branch is not self:
            branch = branch.node.branch
        return branch is self


class NodeGroup(Ordered):
    """A group of nodes: those that are made in `with group:` are in it, groups too.

    It is complete when everything in it is. What it waits for, everything in it waits for.
    """

    __slots__ = ("_outer", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self._outer: list[Node | None] = []

    def after(self, *dependencies: Dependency) -> Self:
        """Let everything in the group start after others."""
        self.node.after += dependencies
        return self

    def __enter__(self) -> Self:
        builder = require_builder("a group")
        self._outer.append(builder.group)
        builder.group = self.node
        return self

    def __exit__(self, *_: object) -> None:
        require_builder("a group").group = self._outer.pop()

    def __repr__(self) -> str:
        return f"<NodeGroup {self.node.label}>"


class Conditional:
    """A conditional: `route["small"]` is one of its branches, `route.output` tells which was taken."""

    def __init__(self, node: Node, names: tuple[str, ...]) -> None:
        self._node = node
        self._branches: Mapping[str, Branch] = {name: Branch(node, name) for name in names}

    def __getitem__(self, name: str) -> Branch:
        if name not in self._branches:
            raise reject(f"the conditional has no branch {name!r}", did_you_mean(str(name), self._branches))
        return self._branches[name]

    @property
    def output(self) -> Future[dict[str, Any]]:
        """Return its output: `branch`, the name of the branch that was taken, `branch_taken` and `value`."""
        return self._node.result()


class GraphBuilder:
    """Collects the nodes of one workflow while its function runs."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.branch: Branch | None = None
        self.group: Node | None = None
        # The tasks and the workflows that were called, by the names of their handlers and by id.
        self.tasks: dict[str, NodeCall] = {}
        self.children: dict[str, Workflow[Any, Any]] = {}
        # The children that are made for the item of a fan-out, innermost last.
        self._children: list[list[Node]] = []
        # Whether a task was called meanwhile where no workflow function runs, as in a thread that this one
        # started.
        self.has_missed_call = False

    @property
    def level(self) -> int:
        """Return the number of fan-outs around the code that runs."""
        return len(self._children)

    def add(self, kind: str, label: str, keys: dict[str, Any], **options: Any) -> Node:
        if self._children and kind not in ("task", "fan_out", "workflow"):
            raise reject(f"a fan-out runs a task, a fan-out or a workflow for each item, not a {kind}")
        group = None if self.level else self.group
        node = Node(kind, label, keys, level=self.level, branch=self.branch, group=group, **options)
        (self._children[-1] if self._children else self.nodes).append(node)
        return node

    @contextlib.contextmanager
    def for_each_item(self) -> Iterator[tuple[Future[Any], list[Node]]]:
        """Yield the item of a fan-out and the list of what is made for it."""
        children: list[Node] = []
        self._children.append(children)
        try:
            yield Future(ItemOrigin(self.level)), children
        finally:
            self._children.pop()

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Let calls of tasks add nodes here."""
        token = _ACTIVE.set(self)
        _ALL_ACTIVE.append(self)
        try:
            yield
        finally:
            _ALL_ACTIVE.remove(self)
            _ACTIVE.reset(token)


def active_builder() -> GraphBuilder | None:
    """Return the builder of the workflow function that runs; None outside of one."""
    return _ACTIVE.get()


def note_missed_call() -> str:
    """Remember a call outside of a workflow function while one runs in another thread; return a hint then."""
    for builder in tuple(_ALL_ACTIVE):
        builder.has_missed_call = True
    return OTHER_THREADS if _ALL_ACTIVE else ""


def require_builder(what: str) -> GraphBuilder:
    builder = _ACTIVE.get()
    if builder is None:
        message = f"{what} is part of a graph: use it in a function that is decorated with @workflow"
        raise reject(message, note_missed_call())
    return builder

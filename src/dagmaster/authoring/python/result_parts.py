"""A part of the result of a task, as code that builds a graph names it: `task["size"]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Never

from dagmaster.authoring.python.future_misuses import MISUSES
from dagmaster.sdk.json_forms import short_repr

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.authoring.python.graph_items import GraphItem


class ResultPart:
    """A part of the result of a task.

    In `kwargs` of a task it stands for its value, and the task is a dependency.
    """

    __slots__ = ("path", "source")

    def __init__(self, source: GraphItem, path: tuple[str | int, ...]) -> None:
        self.source = source
        self.path = path
        if type(path[-1]) not in (str, int):
            raise TypeError(
                f"a key of {source.described} is text or a whole number, not {short_repr(path[-1])}"
            )

    def __getitem__(self, key: Any) -> ResultPart:
        return ResultPart(self.source, (*self.path, key))

    def __bool__(self) -> bool:
        """Raise: there is no result yet."""
        raise no_truth(self.source, "result")

    def __iter__(self) -> Never:
        """Raise: there is no result yet."""
        raise no_items(self.source)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<part {''.join(f'[{key!r}]' for key in self.path)} of the result of {self.source.described}>"


def no_truth(item: GraphItem, subject: str) -> TypeError:
    return TypeError(
        f"{item.described} has no {subject} while the graph is built: decide in a task that takes its result,"
        " or in a"
        " @workflow with conditional(…). Whether there is an object: `is not None`"
    )


def no_items(item: GraphItem) -> TypeError:
    return TypeError(
        f"{item.described} has no result while the graph is built: loop in a task that takes its result,"
        " which can add"
        " a task for each item with map_values(…)"
    )


def no_text(item: GraphItem) -> TypeError:
    return _no_value(
        item, "text", "build the text in a task that takes its result. To show the task, write {task!r}"
    )


def _no_value(item: GraphItem, what: str, hint: str) -> TypeError:
    return TypeError(
        f"{what} needs the result of {item.described}, which is not known while the graph is built: {hint}"
    )


def _refuse(what: str) -> Callable[..., Never]:
    def method(self: ResultPart, *_: Any) -> Never:
        raise _no_value(self.source, what, "do it in a task that takes its result")

    return method


_OWN: Final = frozenset({"__bool__", "__iter__"})
for _name, (_what, _) in MISUSES.items():
    if _name not in _OWN:
        setattr(ResultPart, _name, _refuse(_what))

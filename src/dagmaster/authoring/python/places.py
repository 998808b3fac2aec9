"""Places in Python source: where a call was written, for errors that point at it."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import textwrap
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dagmaster.errors import Problem, WorkflowInvalid
from dagmaster.errors.source_map import excerpt, format_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from dagmaster.errors.source_map import Path as KeyPath

_OWN_FOLDER = str(Path(__file__).parent)
_LIBRARY = str(Path(inspect.__file__).parent)


class Place(NamedTuple):
    """A position in a file; line and column count from 1."""

    file: str
    line: int
    column: int = 1

    def problem(
        self, message: str, *, hint: str = "", path: KeyPath = (), severity: str = "error"
    ) -> Problem:
        text = excerpt(linecache.getline(self.file, self.line).rstrip("\n"), self.column)
        return Problem(
            message=message,
            file=self.file,
            line=self.line,
            column=self.column,
            path=format_path(path),
            text=text,
            hint=hint,
            severity=severity,
        )


def calling_place(own_folder: str = _OWN_FOLDER) -> Place:
    """Return the place of the innermost call that is neither in this folder nor in Python's own modules."""
    frame: FrameType = sys._getframe(1)  # noqa: SLF001 - there is no other way to the caller
    while _is_passed_over(frame.f_code.co_filename, own_folder) and frame.f_back is not None:
        frame = frame.f_back
    _, _, column, _ = next(
        islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None, None, None, None)
    )
    return Place(frame.f_code.co_filename, frame.f_lineno, (column or 0) + 1)


def _is_passed_over(file: str, own_folder: str) -> bool:
    is_library = file.startswith(_LIBRARY) and "-packages" not in file
    return is_library or file.startswith((own_folder, "<frozen"))


def place_of(function: Callable[..., object]) -> Place:
    code = getattr(function, "__code__", None)
    return Place("<unknown>", 0) if code is None else Place(code.co_filename, code.co_firstlineno)


def place_of_input(function: Callable[..., object], name: str) -> Place:
    """Return where a function declares a parameter; the function itself if its source is not there."""
    source = _Source.of(function)
    if source is None:
        return place_of(function)
    arguments = source.root.args
    declared = next((one for one in (*arguments.args, *arguments.kwonlyargs) if one.arg == name), None)
    return place_of(function) if declared is None else source.place(declared)


def place_of_output(function: Callable[..., object], name: str) -> Place:
    """Return where a function returns an output: its value in a dict, else its only return statement.

    The function itself if it has several, or if its source is not there.
    """
    source = _Source.of(function)
    if source is None:
        return place_of(function)
    returns = [
        node for node in _own_nodes(source.root) if isinstance(node, ast.Return) and node.value is not None
    ]
    if len(returns) != 1:
        return place_of(function)
    node: ast.stmt | ast.expr = returns[0]
    if isinstance(returns[0].value, ast.Dict):
        pairs = zip(returns[0].value.keys, returns[0].value.values, strict=True)
        node = next(
            (value for key, value in pairs if isinstance(key, ast.Constant) and key.value == name), node
        )
    return source.place(node)


class _Source(NamedTuple):
    """The syntax of a function, and where its lines are in the file."""

    root: ast.FunctionDef | ast.AsyncFunctionDef
    file: str
    first_line: int
    indent: int

    @classmethod
    def of(cls, function: Callable[..., object]) -> _Source | None:
        try:
            lines, first = inspect.getsourcelines(function)
            root = ast.parse(textwrap.dedent("".join(lines))).body[0]
        except (OSError, TypeError, SyntaxError):
            return None
        if not isinstance(root, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        return cls(root, place_of(function).file, first, len(lines[0]) - len(lines[0].lstrip()))

    def place(self, node: ast.stmt | ast.expr | ast.arg) -> Place:
        return Place(self.file, self.first_line + node.lineno - 1, node.col_offset + self.indent + 1)


def _own_nodes(root: ast.AST) -> Iterator[ast.AST]:
    """Yield the syntax nodes of a function without nested functions."""
    for node in ast.iter_child_nodes(root):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield node
            yield from _own_nodes(node)


def reject(message: str, hint: str = "", *, place: Place | None = None) -> WorkflowInvalid:
    """Return the error for a mistake at a place, by default that of the calling code."""
    return WorkflowInvalid([(place or calling_place()).problem(message, hint=hint)])

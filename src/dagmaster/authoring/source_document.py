"""Documents: plain data from YAML, a file or a stored definition, with the place of every value.

It knows what JSON can say and where something stands in a text; what a workflow is, it does not know.
"""

from __future__ import annotations

import math
import stat
from typing import TYPE_CHECKING, Any

from dagmaster.authoring.source_map import Path, Source, shortened, spell_path
from dagmaster.authoring.yaml.reader import MAX_DEPTH, MAX_PROBLEMS, Mark, read_yaml
from dagmaster.engine.expressions.json_values import MAX_INTEGER_BITS
from dagmaster.errors import Problem, WorkflowInvalid

if TYPE_CHECKING:
    import pathlib

__all__ = ["Document", "Path", "document_of", "read_document", "read_file", "spell_path"]

MAX_BYTES = 8 * 1024 * 1024
# What fits into MAX_BYTES has fewer. Data made by code can share its parts, and be endless without being deep.
MAX_VALUES = 4_000_000

_BYTE_ORDER_MARK = "\ufeff"


class Document:
    """What somebody wrote: `data` is plain (dict, list, str, int, float, bool, None)."""

    __slots__ = ("_marks", "_source", "data", "file")

    def __init__(self, data: Any, source: Source, marks: Mark | None) -> None:
        self.data = data
        self.file = source.file
        self._source = source
        self._marks = marks

    @property
    def lines(self) -> list[str]:
        """The lines of the text; none for a document without a text."""
        return self._source.lines

    def problem(
        self,
        message: str,
        path: Path = (),
        *,
        at_key: bool = False,
        hint: str = "",
        offset: int = 0,
        severity: str = "error",
    ) -> Problem:
        """What is wrong with the value at `path`, or with its key. Where the path ends early, its last value counts.

        `offset` is the number of characters into a text value where the mistake is.
        """
        if self._marks is None:
            return Problem(message=message, file=self.file, path=spell_path(path), hint=hint, severity=severity)
        key, value, is_scalar = self._find(path)
        index = key if at_key else value
        if offset and is_scalar and not at_key:
            index = _inside(self._source, value, offset)
        return self._source.problem(message, index, path, hint=hint, severity=severity)

    def rename(self, path: Path, meant: str) -> None:
        """Let the last key of `path` be found under the name that was meant too, unless that is there by itself."""
        *outer, wrong = path
        mark = self._marks
        for part in outer:
            inside = mark[1] if isinstance(mark, tuple) else None
            if isinstance(inside, dict):
                mark = inside[str(part)][1] if part in inside else None
            else:
                mark = inside[part] if isinstance(inside, list) and isinstance(part, int) else None
        inside = mark[1] if isinstance(mark, tuple) else None
        if isinstance(inside, dict) and wrong in inside:
            inside.setdefault(meant, inside[str(wrong)])

    def _find(self, path: Path) -> tuple[int, int, bool]:
        """The places of the key and of the value at `path`, and whether the path leads to a scalar."""
        mark = self._marks
        key = value = _start(mark)
        for part in path:
            inside = mark[1] if isinstance(mark, tuple) else None
            if isinstance(inside, dict) and isinstance(part, str) and part in inside:
                key, mark = inside[part]
                value = _start(mark)
            elif isinstance(inside, list) and isinstance(part, int) and 0 <= part < len(inside):
                mark = inside[part]
                key = value = _start(mark)
            else:
                return key, value, False
        return key, value, isinstance(mark, int)


def read_document(source: str | bytes, file: str = "<text>") -> Document:
    """The one YAML document in a text. WorkflowInvalid has all problems, with their places."""
    if len(source) > MAX_BYTES:
        raise _invalid(f"the text is larger than {_mebibytes()}", file)
    text = _decoded(source, file) if isinstance(source, bytes) else source
    if isinstance(source, str) and len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _invalid(f"the text is larger than {_mebibytes()}", file)
    place = Source(text.removeprefix(_BYTE_ORDER_MARK), file)
    data, marks = read_yaml(place)
    return Document(data, place, marks)


def read_file(path: pathlib.Path) -> Document:
    """The one YAML document in a file."""
    file = str(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _invalid("this is not a file", file)
        if status.st_size > MAX_BYTES:
            raise _invalid(f"the file is larger than {_mebibytes()}: it has {status.st_size:,} bytes", file)
        with path.open("rb") as opened:
            # A file can grow between the look and the reading.
            content = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _invalid(f"the file cannot be read: {reason}", file) from error
    return read_document(content, file)


def document_of(data: Any, file: str = "<definition>") -> Document:
    """A document without a text, such as a stored definition. It is checked as one that is read would be."""
    problems: list[Problem] = []
    left: list[tuple[Any, Path]] = [(data, ())]
    seen = 0
    while left and len(problems) < MAX_PROBLEMS:
        value, path = left.pop()
        seen += 1
        wrong = _not_json(value, path) if seen <= MAX_VALUES else f"there are more than {MAX_VALUES:,} values"
        if wrong:
            problems.append(Problem(message=wrong, file=file, path=spell_path(path)))
        elif type(value) is dict:
            left.extend((inner, (*path, key)) for key, inner in reversed(value.items()))
        elif type(value) is list:
            left.extend((value[position], (*path, position)) for position in reversed(range(len(value))))
        if seen > MAX_VALUES:
            break
    if problems:
        raise WorkflowInvalid(problems)
    return Document(data, Source("", file), None)


def _start(mark: Mark | None) -> int:
    if isinstance(mark, tuple):
        return mark[0]
    return mark or 0


def _inside(source: Source, index: int, offset: int) -> int:
    """The place `offset` characters into the text value that begins at `index`; its beginning where that is unclear."""
    line, column = source.place(index)
    first = source.text[index : index + 1]
    if first == "|":
        return _inside_block(source, line, offset, index)
    offset += first in ("'", '"')
    return index + offset if first != ">" and column + offset <= len(source.line(line)) else index


def _inside_block(source: Source, line: int, offset: int, index: int) -> int:
    """Walk down the lines of a literal block: each has the block's indentation before it and a line break after it."""
    lines = source.lines
    start = index + len(lines[line - 1]) - (source.place(index)[1] - 1)
    indentation = 0
    for number in range(line, len(lines)):
        text = lines[number]
        indentation = indentation or len(text) - len(text.lstrip())
        start += 2 if source.text.startswith("\r\n", start) else 1
        held = max(len(text) - indentation, 0)
        if offset <= held:
            return start + min(indentation, len(text)) + offset
        offset -= held + 1
        start += len(text)
    return index


def _decoded(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8").removeprefix(_BYTE_ORDER_MARK)
        line_end = content.find(b"\n", error.start)
        bad = content[error.start : line_end if line_end >= 0 else None].decode("utf-8", "replace")
        problem = Source(before + bad, file).problem(
            f"the text is not UTF-8: byte 0x{content[error.start]:02x}", len(before), hint="save the file as UTF-8"
        )
        raise WorkflowInvalid([problem]) from error


def _not_json(value: Any, path: Path) -> str:
    """Why a value cannot stand in a document; empty when it can. What is inside a container is asked one by one."""
    kind = type(value)
    if kind is dict or kind is list:
        if len(path) >= MAX_DEPTH:
            return f"lists and mappings stand at most {MAX_DEPTH} deep in each other"
        return next(filter(None, map(_not_a_key, value)), "") if kind is dict else ""
    if kind is str:
        return _not_text(value)
    if kind is float and not math.isfinite(value):
        return f"{value} is not a number that JSON has"
    if kind is int and value.bit_length() > MAX_INTEGER_BITS:
        return "the number is too large"
    if value is None or kind in (bool, int, float):
        return ""
    return f"a value of type {kind.__name__} is not JSON"


def _not_a_key(key: Any) -> str:
    return _not_text(key) if type(key) is str else f"keys are text: write '{shortened(str(key))}'"


def _not_text(value: str) -> str:
    if "\0" in value:
        return "text cannot have a NUL character"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "the text has half of a character (a lone surrogate)"
    return ""


def _invalid(message: str, file: str) -> WorkflowInvalid:
    return WorkflowInvalid([Problem(message=message, file=file)])


def _mebibytes() -> str:
    return f"{MAX_BYTES // 1024 // 1024} MiB"

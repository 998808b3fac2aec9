"""Documents: plain data from YAML, a file or a stored definition, with the position of every value.

It knows JSON and text positions, not workflows.
"""

from __future__ import annotations

import math
import stat
from typing import TYPE_CHECKING, Any, ClassVar

from dagmaster.authoring.yaml.reader import MAX_DEPTH, MAX_PROBLEMS, Mark, read_yaml
from dagmaster.engine.expressions.json_values import MAX_INTEGER_BITS
from dagmaster.errors import Problem, WorkflowInvalid
from dagmaster.errors.source_map import Path, Source, format_path, truncate

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable

    from dagmaster.json_types import JsonValue

__all__ = ["Document", "Path", "document_from_data", "entries", "format_path", "read_document", "read_file"]

MAX_BYTES = 8 * 1024 * 1024
# A text within MAX_BYTES has fewer values. Data built by code can share parts and be huge without being deep.
MAX_VALUES = 4_000_000

_BYTE_ORDER_MARK = "\ufeff"


class Document:
    """A source document: `data` is plain (dict, list, str, int, float, bool, None)."""

    __slots__ = ("_marks", "_source", "data", "file")

    is_python: ClassVar[bool] = False
    """Whether it was written by Python code, and not read from a file or a text."""

    def __init__(self, data: Any, source: Source, marks: Mark | None) -> None:
        self.data = data
        self.file = source.file
        self._source = source
        self._marks = marks

    @property
    def lines(self) -> list[str]:
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
        """Return a problem at the value of `path`, at its key, or at the last value that exists on it.

        `offset` is the number of characters into a text value where the mistake is.
        """
        if self._marks is None:
            return Problem(
                message=message, file=self.file, path=format_path(path), hint=hint, severity=severity
            )
        key, value, is_scalar = self._find(path)
        index = key if at_key else value
        if offset and is_scalar and not at_key:
            index = _inside(self._source, value, offset)
        return self._source.problem(message, index, path, hint=hint, severity=severity)

    def rename(self, path: Path, meant: str) -> None:
        """Make the last key of `path` available under the intended name, unless that exists."""
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
        """Return the positions of the key and the value at `path`, and whether the value is a scalar."""
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
    """Return the YAML document in a text; raise WorkflowInvalid with all problems and their positions."""
    if len(source) > MAX_BYTES:
        raise _invalid(f"the text is larger than {_mebibytes()}", file)
    text = _decode(source, file) if isinstance(source, bytes) else source
    if isinstance(source, str) and len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _invalid(f"the text is larger than {_mebibytes()}", file)
    place = Source(text.removeprefix(_BYTE_ORDER_MARK), file)
    data, marks = read_yaml(place)
    return Document(data, place, marks)


def read_file(path: pathlib.Path) -> Document:
    file = str(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _invalid("this is not a file", file)
        if status.st_size > MAX_BYTES:
            raise _invalid(f"the file is larger than {_mebibytes()}: it has {status.st_size:,} bytes", file)
        with path.open("rb") as opened:
            # A file can grow between stat and read.
            content = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _invalid(f"the file cannot be read: {reason}", file) from error
    return read_document(content, file)


def entries(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the items of a mapping with their keys, or of a list with their indexes; else nothing."""
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def document_from_data(data: Any, file: str = "<definition>") -> Document:
    """Return a document without a text, such as a stored definition, checked like one that is read."""
    problems: list[Problem] = []
    left: list[tuple[JsonValue, Path]] = [(data, ())]
    seen = 0
    while left and len(problems) < MAX_PROBLEMS:
        value, path = left.pop()
        seen += 1
        wrong = (
            json_problem(value, path) if seen <= MAX_VALUES else f"there are more than {MAX_VALUES:,} values"
        )
        if wrong:
            problems.append(Problem(message=wrong, file=file, path=format_path(path)))
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
    """Return the position `offset` characters into the text at `index`; its start where that is unclear."""
    line, column = source.place(index)
    first = source.text[index : index + 1]
    if first == "|":
        return _inside_block(source, line, offset, index)
    offset += first in ("'", '"')
    return index + offset if first != ">" and column + offset <= len(source.line(line)) else index


def _inside_block(source: Source, line: int, offset: int, index: int) -> int:
    """Walk the lines of a literal block: each has the block's indentation and a line break."""
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


def _decode(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8").removeprefix(_BYTE_ORDER_MARK)
        line_end = content.find(b"\n", error.start)
        bad = content[error.start : line_end if line_end >= 0 else None].decode("utf-8", "replace")
        problem = Source(before + bad, file).problem(
            f"the text is not UTF-8: byte 0x{content[error.start]:02x}",
            len(before),
            hint="save the file as UTF-8",
        )
        raise WorkflowInvalid([problem]) from error


def json_problem(value: Any, path: Path) -> str:
    """Return why a value is not allowed in a document, or an empty text.

    Containers are checked item by item.
    """
    kind = type(value)
    if kind is dict or kind is list:
        if len(path) >= MAX_DEPTH:
            return f"lists and mappings are nested more than {MAX_DEPTH} levels deep"
        return next(filter(None, map(_key_problem, value)), "") if kind is dict else ""
    if kind is str:
        return _text_problem(value)
    if kind is float and not math.isfinite(value):
        return f"{value} is not a valid JSON number"
    if kind is int and value.bit_length() > MAX_INTEGER_BITS:
        return "the number is too large"
    if value is None or kind in (bool, int, float):
        return ""
    return f"a value of type {kind.__name__} is not JSON"


def _key_problem(key: object) -> str:
    return _text_problem(key) if type(key) is str else f"keys are text: write '{truncate(str(key))}'"


def _text_problem(value: str) -> str:
    if "\0" in value:
        return "text cannot have a NUL character"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "the text has an unpaired surrogate"
    return ""


def _invalid(message: str, file: str) -> WorkflowInvalid:
    return WorkflowInvalid([Problem(message=message, file=file)])


def _mebibytes() -> str:
    return f"{MAX_BYTES // 1024 // 1024} MiB"

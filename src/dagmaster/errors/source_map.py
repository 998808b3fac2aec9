"""Map character offsets of a text to lines and columns.

It knows neither YAML nor workflows.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TypeAlias

from dagmaster.errors import Problem

Path: TypeAlias = tuple[str | int, ...]

MAX_SHOWN = 120

_CHUNK = 64 * 1024
_IDENTIFIER = re.compile(r"[\w-]+", re.ASCII)


class Source:
    """A text with the name of its file."""

    __slots__ = ("_lines", "_split", "_starts", "file", "text")

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self._lines: list[str] = []
        self._starts: list[int] = []
        self._split = 0

    @property
    def lines(self) -> list[str]:
        """Return all lines, without their ends."""
        self._split_to(len(self.text))
        return self._lines

    def place(self, index: int) -> tuple[int, int]:
        """Return the line and column, from 1, of the character at `index`.

        The end of the text is on its last line.
        """
        self._split_to(index)
        line = bisect_right(self._starts, index)
        return (line, index - self._starts[line - 1] + 1) if line else (1, index + 1)

    def line(self, number: int) -> str:
        return self._lines[number - 1] if self._lines else ""

    def _split_to(self, index: int) -> None:
        """Split lazily: a correct file is never split, nor are the millions of lines behind a mistake.

        splitlines breaks where libyaml does; the other line breaks are rejected earlier.
        """
        start = self._split
        if index < start or start == len(self.text):
            return
        self._split = self.text.find("\n", max(index, start + _CHUNK)) + 1 or len(self.text)
        for line in self.text[start : self._split].splitlines(keepends=True):
            self._starts.append(start)
            self._lines.append(line.rstrip("\r\n"))
            start += len(line)

    def problem(
        self, message: str, index: int, path: Path = (), *, hint: str = "", severity: str = "error"
    ) -> Problem:
        line, column = self.place(index)
        return Problem(
            message=message,
            file=self.file,
            line=line,
            column=column,
            path=format_path(path),
            text=excerpt(self.line(line), column),
            hint=hint,
            severity=severity,
        )


def format_path(path: Path) -> str:
    """Format a path: `nodes.validate.params.x[0]`, or `nodes["a b"]` where a dot would be ambiguous."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _IDENTIFIER.fullmatch(part):
            text += f".{truncate(part, MAX_SHOWN)}" if text else truncate(part, MAX_SHOWN)
        else:
            text += f'["{_escaped(truncate(part))}"]'
    return text


def excerpt(line: str, column: int = 1) -> str:
    """Return the line without its indentation, or the part of a long line around the column."""
    if len(line) > MAX_SHOWN:
        start = max(0, min(column - MAX_SHOWN // 2, len(line) - MAX_SHOWN))
        line = line[start : start + MAX_SHOWN]
    return line.strip()


def truncate(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

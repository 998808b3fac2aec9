"""A text and the places in it: characters counted from its start become lines and columns for people.

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
        """All lines, without their ends."""
        self._split_to(len(self.text))
        return self._lines

    def place(self, index: int) -> tuple[int, int]:
        """The line and the column, from 1, of the character at `index`. The end of the text is on its last line."""
        self._split_to(index)
        line = bisect_right(self._starts, index)
        return (line, index - self._starts[line - 1] + 1) if line else (1, index + 1)

    def line(self, number: int) -> str:
        """A line that has a place, counted from 1."""
        return self._lines[number - 1] if self._lines else ""

    def _split_to(self, index: int) -> None:
        """Split as far as is asked for: a good file is never split, nor are the millions of lines behind a mistake.

        splitlines breaks where libyaml does; the other characters it breaks at are refused before a place is asked for.
        """
        start = self._split
        if index < start or start == len(self.text):
            return
        self._split = self.text.find("\n", max(index, start + _CHUNK)) + 1 or len(self.text)
        for line in self.text[start : self._split].splitlines(keepends=True):
            self._starts.append(start)
            self._lines.append(line.rstrip("\r\n"))
            start += len(line)

    def problem(self, message: str, index: int, path: Path = (), *, hint: str = "", severity: str = "error") -> Problem:
        """What is wrong with the character at `index`."""
        line, column = self.place(index)
        return Problem(
            message=message,
            file=self.file,
            line=line,
            column=column,
            path=spell_path(path),
            text=shown(self.line(line), column),
            hint=hint,
            severity=severity,
        )


def spell_path(path: Path) -> str:
    """The path as people write it: `nodes.validate.params.x[0]`, and `nodes["a b"]` where a dot would mislead."""
    said = ""
    for part in path:
        if isinstance(part, int):
            said += f"[{part}]"
        elif _IDENTIFIER.fullmatch(part):
            said += f".{shortened(part, MAX_SHOWN)}" if said else shortened(part, MAX_SHOWN)
        else:
            said += f'["{_escaped(shortened(part))}"]'
    return said


def shown(line: str, column: int = 1) -> str:
    """The line without its indentation; of a long one, the part around the column."""
    if len(line) > MAX_SHOWN:
        start = max(0, min(column - MAX_SHOWN // 2, len(line) - MAX_SHOWN))
        line = line[start : start + MAX_SHOWN]
    return line.strip()


def shortened(text: str, most: int = 60) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= most else text[: most - 3] + "..."


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

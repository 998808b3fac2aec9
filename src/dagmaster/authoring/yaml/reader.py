"""Read YAML into plain data with the position of every value; reject everything that YAML has beyond JSON.

libyaml reads, and this builds from its events: no node graph, no constructors, no recursion, so that a
hostile text costs what its first few hundred characters cost. It knows neither files nor workflows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from yaml import MarkedYAMLError, YAMLError
from yaml._yaml import CParser
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from dagmaster.authoring.yaml.hints import expression_hint, hint_for
from dagmaster.authoring.yaml.scalars import MAY_BE_MORE_THAN_TEXT, resolve
from dagmaster.errors import Problem, WorkflowInvalid
from dagmaster.errors.source_map import Path, Source, truncate

if TYPE_CHECKING:
    from dagmaster.json_types import JsonValue

MAX_DEPTH = 64
MAX_PROBLEMS = 50

# Where a value begins, in characters from the start of the text. A container has its own place and those
# inside: of a mapping for each key the key's place and the value's, of a list the values'. 10,000 nodes
# (60,000 lines): 13 MB.
Mark: TypeAlias = "int | tuple[int, dict[str, tuple[int, Mark]] | list[Mark]]"

# Control characters, halves of characters, and three that libyaml takes for line breaks, as YAML 1.1 did and
# YAML 1.2 does not: U+0085, U+2028, U+2029. A key could hide behind one in a comment, and in quotes U+0085
# would become a space.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
# Up to where there is nothing but blanks, comments and document ends. Possessive: 8 MiB of blanks is one
# walk.
_NOTHING = re.compile(r"(?>[ \t\r\n\ufeff]++|#[^\r\n]*+|\.\.\.(?!\S))*+")
_HEAD = re.compile(r"(?>[ \t\r\n\ufeff]++|[#%][^\r\n]*+)*+")
_DIRECTIVE = re.compile(r"(?<![^\r\n])%")

_STARTS = (MappingStartEvent, SequenceStartEvent)
_ENDS = (MappingEndEvent, SequenceEndEvent)


def read_yaml(source: Source) -> tuple[JsonValue, Mark]:
    """Return the data and its marks. WorkflowInvalid has every problem that could be found in one pass."""
    reader = _Reader(source)
    try:
        read = reader.read()
    except _StopReading:
        read = None
    if reader.problems or read is None:
        raise WorkflowInvalid(reader.problems)
    return read


class _StopReading(Exception):
    """Enough problems were found, or the rest cannot be read."""


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self._parser: Any = None
        # The containers around the one being filled: (container, its marks, whether it is a list, the key
        # that the inner one stands under, the key's place). The outermost is a list that holds the root.
        self._open: list[tuple[Any, Any, bool, str | None, int]] = []
        self._expression_lines: set[int] = set()

    def read(self) -> tuple[JsonValue, Mark] | None:
        self._check_characters()
        text = self._without_directives()
        try:
            self._parser = CParser(text)
            self._parser.get_event()
            root = self._build() if type(self._parser.get_event()) is DocumentStartEvent else (None, 0)
        except MarkedYAMLError as error:
            self._refuse_syntax(error)
        except YAMLError as error:
            # Not known to happen: what libyaml's reader refuses, _FORBIDDEN has refused.
            self._stop(f"not valid YAML: {error}", 0)
        if root[0] is None and not self.problems:
            self._refuse_empty()
        return root

    def _build(self) -> tuple[JsonValue, Mark]:
        next_event = self._parser.get_event
        opened = self._open
        here: Any = []
        marks: Any = []
        in_list = True
        key: str | None = None  # in a mapping, the key whose value comes next; None: a key comes next
        key_index = 0
        while True:
            event = next_event()
            kind = type(event)
            if kind is MappingEndEvent or kind is SequenceEndEvent:
                here, marks, in_list, _, key_index = opened.pop()
                key = None
                continue
            if kind is DocumentEndEvent:
                self._check_the_rest(event.end_mark.index)
                return here[0], marks[0]
            index = event.start_mark.index
            if not in_list and key is None:
                key, key_index = self._key(event, index, here, marks)
                continue
            value, inside = self._value(event, index, here, key)
            mark = index if inside is None else (index, inside)
            if in_list:
                here.append(value)
                marks.append(mark)
            else:
                here[key] = value
                marks[key] = (key_index, mark)
            if inside is None:
                key = None
            else:
                opened.append((here, marks, in_list, key, key_index))
                here, marks, in_list, key = value, inside, kind is SequenceStartEvent, None

    def _key(self, event: Any, index: int, here: Any, marks: Any) -> tuple[str, int]:
        """Return the key that an event begins, and its place: of one that appears twice, the first."""
        kind = type(event)
        if kind is AliasEvent:
            self._refuse_alias(event, index, self._path(here, None))
            return "*", index
        if event.tag is not None or event.anchor is not None:
            self._refuse_properties(event, self._path(here, None))
        if kind is not ScalarEvent:
            return self._skip_key(kind, index), index
        key = event.value
        if event.style == "":
            key = self._plain_key(key, index, here)
        elif "\0" in key:
            self._refuse_nul(index, self._path(here, None))
        if key in here:
            first = marks[key][0]
            self._refuse_duplicate(key, first, index, here)
            return key, first
        return key, index

    def _value(self, event: Any, index: int, here: Any, key: str | None) -> tuple[Any, Any]:
        """Return the value that an event begins, and of a container where the marks inside it go."""
        kind = type(event)
        if kind is AliasEvent:
            self._refuse_alias(event, index, self._path(here, key))
            return "*", None
        if event.tag is not None or event.anchor is not None:
            self._refuse_properties(event, self._path(here, key))
        if kind is ScalarEvent:
            value = event.value
            if event.style == "":
                if not value or value[0] in MAY_BE_MORE_THAN_TEXT:
                    value = self._plain_value(value, index, here, key)
            elif "\0" in value:
                self._refuse_nul(index, self._path(here, key))
            return value, None
        if len(self._open) >= MAX_DEPTH:
            self._refuse_depth(index, self._path(here, key))
        return ({}, {}) if kind is MappingStartEvent else ([], [])

    def _plain_value(self, word: str, index: int, here: JsonValue, key: str | None) -> JsonValue:
        try:
            return resolve(word)
        except ValueError as error:
            self._refuse(str(error), index, self._path(here, key))
            return word

    def _plain_key(self, word: str, index: int, here: JsonValue) -> str:
        if word == "<<":
            self._refuse(
                "merge keys are not accepted: <<",
                index,
                self._path(here, word),
                hint="write the merged keys out",
            )
        elif not word:
            self._refuse("a key is missing before ':'", index, self._path_of_open())
        elif word[0] in MAY_BE_MORE_THAN_TEXT and not _is_text(word):
            self._refuse(f"keys are text: write '{truncate(word)}'", index, self._path(here, word))
        return word

    def _skip_key(self, kind: type, index: int) -> str:
        """Reject a container in the place of a key, skip it, and return a placeholder key."""
        text, path = self.source.text, self._path_of_open()
        if len(self._open) >= MAX_DEPTH:
            self._refuse_depth(index, path)
        start = next((at for at in (index, index - 1) if at >= 0 and text.startswith("{{", at)), None)
        if start is not None:
            line, column = self.source.place(start)
            self._expression_lines.add(line)
            hint = expression_hint(self.source.line(line), column - 1)
            self._refuse("an expression without quotes is a mapping to YAML", start, path, hint=hint)
        else:
            self._refuse(
                f"keys are text, not a {'mapping' if kind is MappingStartEvent else 'list'}", index, path
            )
        depth = 1
        while depth:
            event = self._parser.get_event()
            depth += (type(event) in _STARTS) - (type(event) in _ENDS)
            if len(self._open) + depth > MAX_DEPTH:
                self._refuse_depth(event.start_mark.index, path)
        return "?"

    def _path(self, here: Any, key: str | None) -> Path:
        """Return the path of the next value, or of the mapping when a key comes next."""
        path = self._path_of_open()
        if not self._open or (key is None and isinstance(here, dict)):
            return path
        return (*path, len(here) if key is None else key)

    def _path_of_open(self) -> Path:
        """Return the path of the container being filled, without the outermost list."""
        return tuple(len(held) - 1 if key is None else key for held, _, _, key, _ in self._open[1:])

    # Rejections

    def _refuse(self, message: str, index: int, path: Path = (), *, hint: str = "") -> None:
        self.problems.append(self.source.problem(message, index, path, hint=hint))
        if len(self.problems) >= MAX_PROBLEMS:
            self._stop(f"reading stopped here: these are the first {MAX_PROBLEMS} problems", index)

    def _stop(self, message: str, index: int, path: Path = (), *, hint: str = "") -> NoReturn:
        self.problems.append(self.source.problem(message, index, path, hint=hint))
        raise _StopReading

    def _check_characters(self) -> None:
        """Reject forbidden characters. Nothing else is read then: libyaml would stop at the first of them."""
        for match in _FORBIDDEN.finditer(self.source.text):
            name = f"U+{ord(match[0]):04X}"
            hint = f'in double quotes it can be written "\\u{ord(match[0]):04x}"'
            if match[0] == "\0" or "\ud800" <= match[0] <= "\udfff":
                hint = "remove it"
            self._refuse(f"the character {name} is not accepted", match.start(), hint=hint)
        if self.problems:
            raise _StopReading

    def _without_directives(self) -> str:
        """Reject %YAML and %TAG, and turn them into comments, so that the rest can be read.

        libyaml must not see them: it compares each %TAG with all before it. 20,000 take 0.7 s, 80,000 take 11
        s.
        """
        text = self.source.text
        end = _HEAD.match(text).end()  # type: ignore[union-attr] # it matches the empty text
        if text.find("%", 0, end) < 0:
            return text
        head = text[:end]
        for match in _DIRECTIVE.finditer(head):
            self._refuse(
                "directives are not accepted", match.start(), hint="leave out the line that begins with '%'"
            )
        return _DIRECTIVE.sub("#", head) + text[end:]

    def _check_the_rest(self, index: int) -> None:
        """Reject what follows the document. libyaml is asked only where it will not read directives."""
        text = self.source.text
        rest = _NOTHING.match(text, index).end()  # type: ignore[union-attr] # it matches the empty text
        if rest == len(text):
            return
        if not text.startswith(("---", "%"), rest):
            self._parser.get_event()
        self._refuse(
            "more than one document", rest, hint="a file has one document: leave out '---' and what follows"
        )

    def _refuse_nul(self, index: int, path: Path) -> None:
        self._refuse("text cannot have a NUL character", index, path)

    def _refuse_alias(self, event: Any, index: int, path: Path) -> None:
        hint = "write the value again"
        self._refuse(f"aliases are not accepted: *{truncate(event.anchor)}", index, path, hint=hint)

    def _refuse_properties(self, event: Any, path: Path) -> None:
        index = event.start_mark.index
        if event.anchor is not None:
            self._refuse(
                f"anchors are not accepted: &{truncate(event.anchor)}",
                index,
                path,
                hint="leave it out, and write the value again where it is used",
            )
        if event.tag is not None:
            self._refuse(
                f"tags are not accepted: {truncate(event.tag)}",
                index,
                path,
                hint="leave out the word that begins with '!'; quotes make text of a value",
            )

    def _refuse_depth(self, index: int, path: Path) -> NoReturn:
        self._stop(f"lists and mappings are nested more than {MAX_DEPTH} levels deep", index, path)

    def _refuse_duplicate(self, key: str, first: int, index: int, here: JsonValue) -> None:
        line, column = self.source.place(first)
        self._refuse(
            f"duplicate key {truncate(key)!r}: first at line {line}, column {column}",
            index,
            self._path(here, key),
        )

    def _refuse_empty(self) -> None:
        self._refuse(
            "the document is empty", 0, hint="write at least `name: my_workflow` and below it `nodes:`"
        )

    def _refuse_syntax(self, error: MarkedYAMLError) -> NoReturn:
        place = self.source.place
        end = len(self.source.text.rstrip())
        index = min(error.problem_mark.index if error.problem_mark is not None else 0, end)
        line, column = place(index)
        if line in self._expression_lines:
            raise _StopReading
        reason = str(error.problem)
        message = f"not valid YAML: {reason}"
        if error.context is not None:
            message += f" {error.context}"
        if error.context_mark is not None and error.context_mark.index != index:
            message += " that begins at line {}, column {}".format(*place(min(error.context_mark.index, end)))
        self._stop(
            message, index, self._path_of_open(), hint=hint_for(reason, self.source.line(line), column)
        )


def _is_text(word: str) -> bool:
    try:
        return isinstance(resolve(word), str)
    except ValueError:
        return False

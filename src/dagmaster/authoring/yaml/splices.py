"""Change a YAML text at the positions of its values: comments, quotes, order and blank lines elsewhere stay.

Every change is a few insertions and deletions. `YamlText` reads the text first, so that it has what the
reader accepts alone: no anchors, tags or second documents. It knows paths and values, not workflows.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import yaml

from dagmaster.authoring.source_document import read_document
from dagmaster.authoring.yaml.writer import INDENT, entry_lines, is_block, item_lines, write_inline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dagmaster.errors.source_map import Path
    from dagmaster.json_types import JsonValue

Node: TypeAlias = Any
"""A node of PyYAML: with `start_mark` and `end_mark`. Its types are not described."""

_BREAK: Final = re.compile(r"\r\n|\r|\n")
_COMMA: Final = re.compile(r"[ \t]*,[ \t]*")
_BYTE_ORDER_MARK: Final = "\ufeff"


class NotEditable(ValueError):
    """The text is written in a way in which this change cannot be made."""


class YamlText:
    """A YAML text, its data, and where they are. Each change returns another text."""

    def __init__(self, text: str) -> None:
        self.data: JsonValue = read_document(text).data
        self._mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
        self.text = text.removeprefix(_BYTE_ORDER_MARK)
        # The reader has limited the depth, which this recurses into.
        self._root: Node = yaml.compose(self.text, Loader=yaml.CSafeLoader)
        # By the identity of nodes, which the root keeps.
        self._by_key: dict[int, dict[str, Node]] = {}
        breaks = _BREAK.search(self.text)
        self._newline = "\n" if breaks is None else breaks[0]

    # ── Changes ──

    def set_value(self, path: Path, value: JsonValue) -> YamlText:
        """Set the value of a key, which is added at the end of its mapping if it is not there."""
        *outer, key = path
        parent = self._find(tuple(outer))
        if isinstance(parent, yaml.ScalarNode):
            # `nodes:` or `nodes: null`.
            name = self._key(tuple(outer))
            return self._clear(name, parent).fill(tuple(outer), {str(key): value})
        entry = next((entry for entry in _entries(parent) if entry[0].value == key), None)
        if entry is None:
            return self._add_entry(tuple(outer), parent, str(key), value)
        name, old = entry
        is_inline = not _is_block_node(old) and not (is_block(value) and not self._is_in_flow(path))
        if is_inline and not _is_empty(old):
            return self._splice(
                [
                    (
                        _start(old),
                        self._end(old),
                        write_inline(value, quoted=_is_quoted(name) or _is_quoted(old)),
                    )
                ]
            )
        return self._clear(name, old).fill(path, value)

    def remove(self, path: Path) -> YamlText:
        """Remove a key with its value, or an item of a list.

        What was the only one leaves an empty container.
        """
        return self.remove_all([path])

    def remove_all(self, paths: Iterable[Path]) -> YamlText:
        """Remove keys and items at once, in time that grows with the text. No path is within another."""
        chosen: dict[Path, set[str | int]] = {}
        for path in paths:
            chosen.setdefault(path[:-1], set()).add(path[-1])
        return self._splice(
            change for outer, keys in chosen.items() for change in self._removals(outer, keys)
        )

    def _removals(self, path: Path, keys: set[str | int]) -> Iterator[tuple[int, int, str]]:
        """Yield what to remove from one container: runs of entries that follow each other."""
        parent = self._find(path)
        parts = self._parts(parent)
        names = [key.value for key, _ in _entries(parent)] or range(len(parts))
        indexes = [index for index, name in enumerate(names) if name in keys]
        if len(indexes) == len(parts):
            yield self._emptied(parent)
            return
        for _, run in groupby(enumerate(indexes), lambda one: one[1] - one[0]):
            members = [index for _, index in run]
            yield self._removal(parent, parts, members[0], members[-1])

    def _removal(
        self, parent: Node, parts: list[tuple[int, int]], first: int, last: int
    ) -> tuple[int, int, str]:
        start, end = parts[first][0], parts[last][1]
        if parent.flow_style:
            return self._flow_range(parts, first, last)
        line = self._line_start(start)
        if self.text[line:start].strip(" "):
            # The first one, next to a dash: the next one takes its place.
            if first or self.text[line:start].strip(" -"):
                raise NotEditable
            return start, parts[last + 1][0], ""
        return line, self._after_blank_lines(line, self._next_line(end)), ""

    def _emptied(self, container: Node) -> tuple[int, int, str]:
        """Return the change that leaves an empty container, in the line of its key if it was below it."""
        empty = "[]" if isinstance(container, yaml.SequenceNode) else "{}"
        start, end = _start(container), self._end(container)
        if container.flow_style:
            return start, end, empty
        while start and self.text[start - 1].isspace():
            start -= 1
        is_below_key = self.text[start - 1 : start] == ":"
        return (start, end, f" {empty}") if is_below_key else (_start(container), end, empty)

    def append(self, path: Path, value: JsonValue) -> YamlText:
        """Add an item to a list that is not empty."""
        sequence = self._find(path)
        last = sequence.value[-1]
        if sequence.flow_style:
            return self._splice(
                [(self._end(last), self._end(last), f", {write_inline(value, quoted=_is_quoted(last))}")]
            )
        dash, _ = self._parts(sequence)[-1]
        indent = " " * (dash - self._line_start(dash))
        if self.text[self._line_start(dash) : dash].strip(" "):
            raise NotEditable
        return self._splice([self._lines_below(self._end(last), item_lines(value, indent))])

    def replace_scalars(
        self,
        changes: Iterable[tuple[Node, str]],
        others: Iterable[Node],
        pattern: re.Pattern[str],
        replacement: str,
    ) -> YamlText:
        """Replace scalars, keys or values, by texts in one line; in others a pattern, as written there."""
        within = (
            (_start(node) + match.start(), _start(node) + match.end(), replacement)
            for node in others
            for match in pattern.finditer(self.text[_start(node) : self._end(node)])
        )
        return self._splice([*((_start(node), self._end(node), text) for node, text in changes), *within])

    def scalars(self) -> Iterator[tuple[Path, Node, bool]]:
        """Yield each scalar with its path, and whether it is a key."""
        yield from _scalars(self._root, ())

    def __str__(self) -> str:
        return self._mark + self.text

    # ── Steps ──

    def _splice(self, changes: Iterable[tuple[int, int, str]]) -> YamlText:
        pieces, position = [self._mark], 0
        for start, end, inserted in sorted(changes):
            if start < position:
                raise NotEditable
            pieces += (self.text[position:start], inserted)
            position = end
        return YamlText("".join([*pieces, self.text[position:]]))

    def _lines_below(self, after: int, lines: Iterable[str]) -> tuple[int, int, str]:
        at = self._next_line(after)
        is_open = at == len(self.text) and not _BREAK.search(self.text[-1:])
        block = self._newline.join(lines)
        return at, at, self._newline + block if is_open else block + self._newline

    def _add_entry(self, path: Path, parent: Node, key: str, value: JsonValue) -> YamlText:
        entries = _entries(parent)
        if not entries and not self._is_in_flow(path) and path:
            return self._clear(self._key(path), parent).fill(path, {key: value})
        if parent.flow_style:
            quoted = _is_quoted(entries[0][0]) if entries else False
            written = f"{write_inline(key, quoted=quoted)}: {write_inline(value, quoted=quoted)}"
            at = self._end(entries[-1][1]) if entries else _start(parent) + 1
            return self._splice([(at, at, f", {written}" if entries else written)])
        first, (last, end) = _start(entries[0][0]), entries[-1]
        indent = " " * (first - self._line_start(first))
        lines = entry_lines(
            write_inline(key, quoted=_is_quoted(entries[0][0])), value, indent, self._step(entries)
        )
        is_spaced = len(entries) > 1 and self._has_blank_line_above(_start(last))
        return self._splice([self._lines_below(self._end(end), ["", *lines] if is_spaced else lines)])

    def _clear(self, key: Node, old: Node) -> YamlText:
        """Remove the value of a key in a block, and leave what else is in its line."""
        colon = self._colon(key)
        if self._line_start(_start(old)) > colon:
            return self._splice([(self._line_start(_start(old)), self._next_line(self._end(old)), "")])
        return self._splice([(colon, max(self._end(old), colon), "")])

    def fill(self, path: Path, value: JsonValue) -> YamlText:
        """Write the value of a key that has none."""
        parent = self._find(path[:-1])
        key = self._key(path)
        colon = self._colon(key)
        if not is_block(value) or parent.flow_style:
            return self._splice([(colon, colon, f" {write_inline(value, quoted=_is_quoted(key))}")])
        indent = " " * (_start(key) - self._line_start(_start(key)))
        first, *lines = entry_lines("", value, indent, self._step(_entries(parent)))
        header = first.removeprefix(f"{indent}:")
        return self._splice([(colon, colon, header), self._lines_below(colon, lines)])

    def _flow_range(self, parts: list[tuple[int, int]], first: int, last: int) -> tuple[int, int, str]:
        """Return what to remove between brackets: with the comma behind it, or that before the last one."""
        start, end = parts[first][0], parts[last][1]
        if last + 1 < len(parts):
            comma = _COMMA.match(self.text, end)
            if comma is None:
                raise NotEditable
            return start, comma.end(), ""
        before = parts[first - 1][1]
        if not re.fullmatch(r"\s*,\s*", self.text[before:start]):
            raise NotEditable
        return before, end, ""

    # ── Positions ──

    def _find(self, path: Path) -> Node:
        node = self._root
        for part in path:
            node = node.value[part] if isinstance(part, int) else self._values(node)[part]
        return node

    def _values(self, mapping: Node) -> dict[str, Node]:
        """Return the values of a mapping by their keys, which is made once: a path is found in its length."""
        values = self._by_key.get(id(mapping))
        if values is None:
            values = self._by_key[id(mapping)] = {key.value: value for key, value in mapping.value}
        return values

    def _key(self, path: Path) -> Node:
        return next(key for key, _ in _entries(self._find(path[:-1])) if key.value == path[-1])

    def _is_in_flow(self, path: Path) -> bool:
        return any(bool(self._find(path[:length]).flow_style) for length in range(len(path)))

    def _parts(self, parent: Node) -> list[tuple[int, int]]:
        """Return where the entries of a container start, with their dashes or keys, and end."""
        if isinstance(parent, yaml.MappingNode):
            return [(_start(key), self._end(value, key)) for key, value in _entries(parent)]
        if parent.flow_style:
            return [(_start(item), self._end(item)) for item in parent.value]
        starts = [self.text.rfind("-", 0, max(_start(item), _start(parent) + 1)) for item in parent.value]
        return [(start, self._end(item)) for start, item in zip(starts, parent.value, strict=True)]

    def _step(self, entries: list[tuple[Node, Node]]) -> str:
        """Return the indentation that values of this mapping have."""
        for key, value in entries:
            if isinstance(value, yaml.MappingNode) and not value.flow_style:
                column = _start(value) - self._line_start(_start(value))
                return " " * max(column - (_start(key) - self._line_start(_start(key))), 1)
        return INDENT

    def _colon(self, key: Node) -> int:
        return self.text.index(":", self._end(key)) + 1

    def _end(self, node: Node, key: Node | None = None) -> int:
        """Return where the content of a value ends: libyaml ends a block after comments."""
        if isinstance(node, yaml.MappingNode) and not node.flow_style:
            return max(self._end(value, name) for name, value in node.value)
        if isinstance(node, yaml.SequenceNode) and not node.flow_style:
            return max(self._end(item) for item in node.value)
        end: int = node.end_mark.index
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            written = self.text[_start(node) : end]
            header = _BREAK.split(written, maxsplit=1)[0]
            # `|+` keeps the blank lines that follow.
            return _start(node) + len(written[:-1] if "+" in header else written.rstrip())
        return end if key is None else max(end, key.end_mark.index)

    def _line_start(self, index: int) -> int:
        return max(self.text.rfind("\n", 0, index), self.text.rfind("\r", 0, index)) + 1

    def _next_line(self, index: int) -> int:
        match = _BREAK.search(self.text, index)
        return len(self.text) if match is None else match.end()

    def _has_blank_line_above(self, index: int) -> bool:
        """Return whether a blank line, and perhaps comments below it, stand above the line of a position."""
        line = self._line_start(index)
        while line:
            above = self._line_start(line - (2 if self.text.endswith("\r\n", 0, line) else 1))
            content = self.text[above:line].strip()
            if not content.startswith("#"):
                return not content
            line = above
        return False

    def _after_blank_lines(self, start: int, end: int) -> int:
        """Return the end of a block to remove: with the blank lines below it, if one stands above it."""
        rest = re.compile(r"(?:[ \t]*(?:\r\n|\r|\n))*").match(self.text, end)
        after = end if rest is None else rest.end()
        return after if after < len(self.text) and self._has_blank_line_above(start) else end


def _entries(node: Node) -> list[tuple[Node, Node]]:
    entries: list[tuple[Node, Node]] = node.value if isinstance(node, yaml.MappingNode) else []
    return entries


def _scalars(node: Node, path: Path) -> Iterator[tuple[Path, Node, bool]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, key.value), key, True
            yield from _scalars(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _scalars(item, (*path, index))
    else:
        yield path, node, False


def _start(node: Node) -> int:
    start: int = node.start_mark.index
    return start


def _is_empty(node: Node) -> bool:
    """Return whether nothing is written: `key:` and no value."""
    return isinstance(node, yaml.ScalarNode) and _start(node) == node.end_mark.index


def _is_block_node(node: Node) -> bool:
    return node.style in ("|", ">") if isinstance(node, yaml.ScalarNode) else not node.flow_style


def _is_quoted(node: Node) -> bool:
    return bool(node.style == '"') if isinstance(node, yaml.ScalarNode) else False

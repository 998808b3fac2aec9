"""Draw cards and arrows as self-contained SVG: no script, no font, no URL. Node names are always escaped.

It knows neither graphs nor jobs (a page finds a card by its `data-node`), nor the layout.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from dagmaster.authoring.diagram.layout import Box, Column, Link, arrange
from dagmaster.authoring.node_kinds import NODE_KINDS, Outline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from dagmaster.engine.graph import Kind

_PADDING: Final = 24.0
_NAME_SIZE: Final = 13.0
_DETAIL_SIZE: Final = 11.5
_LABEL_SIZE: Final = 11.0
_CHIP_SIZE: Final = 10.0
_TEXT_LIMIT: Final = 190.0
_LABEL_LIMIT: Final = 120.0
_LABEL_MARGIN: Final = 12.0
_CARD_HEIGHT: Final = 52.0
_PILL_HEIGHT: Final = 36.0
_SIDE: Final = 12.0
_TILE: Final = 28.0
_SIGN: Final = 17.0
_POINT: Final = 12.0
_SHEET: Final = 4.0
_CHIP_HEIGHT: Final = 16.0
_POINTED: Final = frozenset({Outline.HEXAGON, Outline.ROUND})
"""The outlines with room for a point on both sides."""
_STRAIGHT_ENOUGH: Final = 0.5
_LABEL_HEIGHT: Final = 18.0
_CELL: Final = _LABEL_LIMIT + _LABEL_MARGIN
_ALONG: Final = (0.70, 0.56, 0.82, 0.44, 0.32)
"""Places for a label on its arrow, best first: near its lower end arrows are apart, and still clear of the
head."""

_LIGHT: Final = (
    '.dagmaster{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}',
    ".dagmaster .page{fill:#fafbfc}",
    ".dagmaster .card{fill:#fff;stroke:#d3dae3;stroke-width:1.25;stroke-linejoin:round}",
    ".dagmaster .name{font-size:13px;font-weight:600;fill:#18212d}",
    ".dagmaster .detail{font-size:11.5px;fill:#66717f}",
    ".dagmaster .edge{fill:none;stroke:#98a4b3;stroke-width:1.5}",
    ".dagmaster .any{stroke-dasharray:5 4}",
    ".dagmaster .head{fill:#98a4b3}",
    ".dagmaster .label{font-size:11px;font-weight:500;fill:#4a5563;stroke:#fafbfc;stroke-width:5px}",
    ".dagmaster .label{stroke-linejoin:round;paint-order:stroke}",
    ".dagmaster .label,.dagmaster .word{text-anchor:middle}",
    ".dagmaster .chip{fill:none;stroke:#98a4b3;stroke-dasharray:3 2.5}",
    ".dagmaster .word{font-size:10px;fill:#66717f}",
    ".dagmaster .tile{fill-opacity:.13}",
    ".dagmaster .sign{fill:none;stroke-width:1.6;stroke-linecap:round;stroke-linejoin:round}",
)
_DARK: Final = (
    ".dagmaster .page{fill:#0f141a}",
    ".dagmaster .card{fill:#19202a;stroke:#343e4b}",
    ".dagmaster .name{fill:#e8edf3}",
    ".dagmaster .detail,.dagmaster .word{fill:#94a0af}",
    ".dagmaster .edge,.dagmaster .chip{stroke:#5c6878}",
    ".dagmaster .head{fill:#5c6878}",
    ".dagmaster .label{fill:#b4bfcc;stroke:#0f141a}",
    ".dagmaster .tile{fill-opacity:.2}",
)


class CardNode(NamedTuple):
    """A node to draw. `title` is the full text, `chips` are short remarks."""

    name: str
    kind: Kind
    detail: str
    title: str
    chips: tuple[str, ...] = ()


class Arrow(NamedTuple):
    """An arrow to draw, between nodes by index."""

    source: int
    target: int
    label: str = ""
    title: str = ""
    dashed: bool = False


def draw(title: str, description: str, nodes: Sequence[CardNode], arrows: Sequence[Arrow]) -> str:
    """Draw nodes and arrows. Text that does not fit is truncated, with the full text as its title."""
    cards = [_Card.of(node) for node in nodes]
    labels = [_Line.of(arrow.label, size=_LABEL_SIZE, limit=_LABEL_LIMIT) for arrow in arrows]
    links = [
        Link(arrow.source, arrow.target, label.width + _LABEL_MARGIN if label.text else 0.0)
        for arrow, label in zip(arrows, labels, strict=True)
    ]
    layout = arrange([card.size for card in cards], links)
    lines = [_svg_tag(layout.width + 2 * _PADDING, layout.height + 2 * _PADDING)]
    lines += [f"<title>{_escaped(title)}</title>", f"<desc>{_escaped(description)}</desc>"]
    lines += [
        "<defs>",
        f"<style>{_style({node.kind for node in nodes})}</style>",
        *_symbols(nodes),
        "</defs>",
    ]
    lines += ['<rect class="page" width="100%" height="100%" rx="12"/>']
    lines += [f'<g transform="translate({_PADDING:g} {_PADDING:g})">']
    lines += [_edge(arrow, route) for arrow, route in zip(arrows, layout.routes, strict=True)]
    lines += [card.draw(box) for card, box in zip(cards, layout.boxes, strict=True)]
    lines += [
        f'<text class="label" x="{x:.1f}" y="{y + _LABEL_SIZE * 0.35:.1f}">{_titled(arrow.title)}'
        f"{_escaped(label.text)}</text>"
        for arrow, label, (x, y) in zip(arrows, labels, _label_positions(links, layout.routes), strict=True)
        if label.text
    ]
    return "\n".join([*lines, "</g>", "</svg>"]) + "\n"


def _svg_tag(width: float, height: float) -> str:
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    kind = 'xmlns="http://www.w3.org/2000/svg" class="dagmaster" role="img"'
    return f'<svg {kind} {size} style="max-width:100%;height:auto">'


def _style(kinds: AbstractSet[Kind]) -> str:
    light, dark = [*_LIGHT], [*_DARK]
    for kind in sorted(kinds):
        for sheet, colour in zip((light, dark), NODE_KINDS[kind].colours, strict=True):
            sheet.append(
                f".dagmaster .{kind} .tile{{fill:{colour}}}.dagmaster .{kind} .sign{{stroke:{colour}}}"
            )
    return "\n".join([*light, "@media (prefers-color-scheme:dark){", *dark, "}"])


def _symbols(nodes: Sequence[CardNode]) -> Iterator[str]:
    yield (
        '<marker id="dagmaster-head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
        ' markerUnits="userSpaceOnUse" orient="auto"><path class="head" d="M0 .5L8 4L0 7.5L1.5 4z"/></marker>'
    )
    for kind in sorted({node.kind for node in nodes}):
        yield f'<path id="dagmaster-{kind}" d="{NODE_KINDS[kind].icon}"/>'


def _edge(arrow: Arrow, route: Sequence[Column]) -> str:
    x, top, y = route[0]
    steps = [f"M{x:.1f} {top:.1f}"]
    for column in route[1:]:
        if abs(column.x - x) > _STRAIGHT_ENOUGH:
            middle = (y + column.top) / 2
            steps.append(
                f"V{y:.1f}C{x:.1f} {middle:.1f} {column.x:.1f} {middle:.1f} {column.x:.1f} {column.top:.1f}"
            )
            x = column.x
        y = column.bottom
    # No zero-length last segment: it would turn the arrow head by rounding errors.
    if y - route[-1].top > _STRAIGHT_ENOUGH or abs(route[-1].x - route[-2].x) <= _STRAIGHT_ENOUGH:
        steps.append(f"V{y:.1f}")
    style = "edge any" if arrow.dashed else "edge"
    path, title = "".join(steps), _titled(arrow.title)
    return f'<path class="{style}" marker-end="url(#dagmaster-head)" d="{path}">{title}</path>'


def _label_positions(links: Sequence[Link], routes: Sequence[Sequence[Column]]) -> list[tuple[float, float]]:
    """Return a free position for each label on the first curve of its arrow, if there is one."""
    taken: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    points: list[tuple[float, float]] = []
    for link, route in zip(links, routes, strict=True):
        places = [_point_on_curve(route[0], route[1], part) for part in _ALONG]
        if link.label_width:
            places = [at for at in places if not _overlaps(at, link.label_width, taken)] or places
            x, y = places[0]
            taken.setdefault((int(x // _CELL), int(y // _CELL)), []).append((x, y, link.label_width))
        points.append(places[0])
    return points


def _overlaps(
    at: tuple[float, float],
    width: float,
    taken: Mapping[tuple[int, int], Sequence[tuple[float, float, float]]],
) -> bool:
    column, line = int(at[0] // _CELL), int(at[1] // _CELL)
    near = [(column + i, line + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    return any(
        abs(at[1] - y) < _LABEL_HEIGHT and abs(at[0] - x) < (width + wide) / 2
        for cell in near
        for x, y, wide in taken.get(cell, ())
    )


def _point_on_curve(upper: Column, lower: Column, part: float) -> tuple[float, float]:
    """Return a point of the cubic curve that `_edge` draws, with its handles at half the height."""
    across = part * part * (3 - 2 * part)
    down = 1.5 * part * (1 - part) + part**3
    return upper.x + (lower.x - upper.x) * across, upper.bottom + (lower.top - upper.bottom) * down


class _Card(NamedTuple):
    """A node with its texts fitted."""

    node: CardNode
    name: _Line
    detail: _Line
    chips: tuple[_Line, ...]
    size: tuple[float, float]

    @classmethod
    def of(cls, node: CardNode) -> _Card:
        name = _Line.of(node.name, size=_NAME_SIZE, limit=_TEXT_LIMIT, bold=True)
        detail = _Line.of(node.detail, size=_DETAIL_SIZE, limit=_TEXT_LIMIT)
        chips = tuple(_Line.of(chip, size=_CHIP_SIZE, limit=_LABEL_LIMIT) for chip in node.chips)
        width = _SIDE + _TILE + 10 + max(name.width, detail.width) + _SIDE + 4
        width += sum(chip.width + 20 for chip in chips)
        outline = NODE_KINDS[node.kind].outline
        height = _PILL_HEIGHT if outline is Outline.PILL else _CARD_HEIGHT
        if outline in _POINTED:
            width += 2 * _POINT
        if outline is Outline.STACK:
            height += 2 * _SHEET
        return cls(node, name, detail, chips, (float(round(width)), height))

    def draw(self, box: Box) -> str:
        kind = self.node.kind
        outline = NODE_KINDS[kind].outline
        height = _PILL_HEIGHT if outline is Outline.PILL else _CARD_HEIGHT
        x = _SIDE + (_POINT if outline in _POINTED else 0)
        at = f'transform="translate({box.x:.1f} {box.y:.1f})"'
        parts = [
            f'<g class="node {kind}" data-node={quoteattr(plain_text(self.node.name))} {at}>',
            _titled(self.node.title),
            _draw_outline(outline, box.width, height),
            self._sign(x, height / 2),
        ]
        text = x + _TILE + 10
        if outline is Outline.PILL:
            parts.append(self._text("name", text - 4, height / 2 + 4.5, self.name))
        else:
            parts.append(self._text("name", text, height / 2 - 4, self.name))
            parts.append(self._text("detail", text, height / 2 + 13, self.detail))
        right = box.width - (x if outline is not Outline.STACK else _SIDE)
        for chip in reversed(self.chips):
            wide = chip.width + 12
            top = (height - _CHIP_HEIGHT) / 2
            parts.append(
                f'<rect class="chip" x="{right - wide:.1f}" y="{top:.1f}" width="{wide:.1f}" height="16"'
                f' rx="8"/><text class="word" x="{right - wide / 2:.1f}" y="{top + 11.5:.1f}">'
                f"{_escaped(chip.text)}</text>"
            )
            right -= wide + 8
        return "".join([*parts, "</g>"])

    def _sign(self, x: float, middle: float) -> str:
        kind = self.node.kind
        is_pill = NODE_KINDS[kind].outline is Outline.PILL
        tile = _TILE - 6 if is_pill else _TILE
        at = (tile - _SIGN) / 2
        return (
            f'<g transform="translate({x:g} {middle - tile / 2:g})"><rect class="tile" width="{tile:g}"'
            f' height="{tile:g}" rx="{tile / 2 if is_pill else 8:g}"/>'
            f'<use class="sign" href="#dagmaster-{kind}" x="{at:g}" y="{at:g}"/></g>'
        )

    def _text(self, style: str, x: float, y: float, line: _Line) -> str:
        return f'<text class="{style}" x="{x:g}" y="{y:g}">{_escaped(line.text)}</text>'


def _draw_outline(outline: Outline, width: float, height: float) -> str:
    if outline is Outline.HEXAGON:
        right = f"H{width - _POINT:g}l{_POINT:g} {height / 2:g}l-{_POINT:g} {height / 2:g}"
        return f'<path class="card" d="M{_POINT:g} 0{right}H{_POINT:g}L0 {height / 2:g}z"/>'
    round_ = height / 2 if outline in (Outline.PILL, Outline.ROUND) else 10
    card = f'<rect class="card" width="{width:g}" height="{height:g}" rx="{round_:g}"/>'
    if outline is Outline.STACK:
        sheets = (
            f'<rect class="card" x="{6 * i}" y="{_SHEET * i:g}" width="{width - 12 * i:g}"'
            f' height="{height:g}" rx="9"/>'
            for i in (2, 1)
        )
        return "".join([*sheets, card])
    if outline is Outline.DOUBLE:
        return f'{card}<path class="card" d="M5.5 .5V{height - 0.5:g}M{width - 5.5:g} .5V{height - 0.5:g}"/>'
    return card


class _Line(NamedTuple):
    """A line of text that fits, with its estimated width: the reader's font is unknown."""

    text: str
    width: float

    @classmethod
    def of(cls, text: str, *, size: float, limit: float, bold: bool = False) -> _Line:
        text = " ".join(plain_text(text).split())
        scale = size * (_BOLD if bold else 1.0)
        ends = list(accumulate(_char_width(char) * scale for char in text[: int(limit)]))
        if not ends or (ends[-1] <= limit and len(ends) == len(text)):
            return cls(text, ends[-1] if ends else 0.0)
        dots = _char_width("…") * scale
        keep = sum(end + dots <= limit for end in ends)
        return cls(text[:keep].rstrip() + "…", (ends[keep - 1] if keep else 0.0) + dots)


_WIDTHS: Final = {
    **dict.fromkeys("ijl.,:;'|!`", 0.31),
    **dict.fromkeys('frtI()[]{}-/\\" *', 0.41),
    **dict.fromkeys("mwMW@%", 0.93),
    **dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZ&#<>=+~…·\N{MULTIPLICATION SIGN}", 0.71),
}
"""In parts of the font's size, a little more than most system fonts take."""

_BOLD: Final = 1.12
_LETTER: Final = 0.58
_WIDE: Final = 1.15
_FOREIGN: Final = 0.72


def _char_width(char: str) -> float:
    if char.isascii() or char in _WIDTHS:
        return _WIDTHS.get(char, _LETTER)
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0.0
    return _WIDE if unicodedata.east_asian_width(char) in {"W", "F"} else _FOREIGN


_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def plain_text(text: str) -> str:
    """Remove the characters that XML cannot represent."""
    return _NOT_XML.sub("\ufffd", text)


def _escaped(text: str) -> str:
    return escape(plain_text(text))


def _titled(text: str) -> str:
    return f"<title>{_escaped(text)}</title>" if text else ""

"""Lay out boxes and arrows of a graph drawn from top to bottom.

A layered layout: each box below its predecessors, layers sorted so that few arrows cross, boxes near their
neighbours. An arrow across several layers reserves a lane in each of them, so that no arrow crosses a box. It
knows sizes and links by number, not workflows, text, colours or SVG, and expects links without cycles.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# For two boxes, a box and a lane, two lanes: the space between, and the weight of straight arrows.
_SPACE: Final = (28.0, 22.0, 14.0)
_STRAIGHT: Final = (1.0, 2.0, 8.0)
# Between layers: with and without labels, the maximum, and the addition per unit of sideways distance.
_GAP: Final = 44.0
_LABELLED_GAP: Final = 68.0
_WIDEST_GAP: Final = 150.0
_SLOPE: Final = 0.08
# Effort limits. Lanes can grow with the square of a graph; sweeps are bounded so that 10,000 nodes take 2 s.
_LANES: Final = 4_000
_SWEEPS: Final = 16
_SWEEP_BUDGET: Final = 160_000
_MAX_STALE_ROUNDS: Final = 4
_SMALL: Final = 2_500


class Link(NamedTuple):
    """An arrow from one box to another, with the width of the label near its start."""

    source: int
    target: int
    label_width: float = 0.0


class Box(NamedTuple):
    """The position and size of a box."""

    x: float
    y: float
    width: float
    height: float


class Column(NamedTuple):
    """A vertical segment of an arrow. Between two of them the arrow curves through the gap between layers."""

    x: float
    top: float
    bottom: float


class Layout(NamedTuple):
    """A finished layout. Boxes are in the order of sizes, routes in the order of links."""

    width: float
    height: float
    boxes: list[Box]
    routes: list[list[Column]]


def arrange(sizes: Sequence[tuple[float, float]], links: Sequence[Link]) -> Layout:
    """Lay out boxes of these sizes. Connected components are laid out separately and placed side by side."""
    boxes = [Box(0.0, 0.0, *size) for size in sizes]
    routes: list[list[Column]] = [[] for _ in links]
    parts = _parts(len(sizes), links)
    drawn: list[Layout] = []
    for nodes, arrows in parts:
        number = {node: index for index, node in enumerate(nodes)}
        local = [
            Link(number[a.source], number[a.target], a.label_width) for a in map(links.__getitem__, arrows)
        ]
        drawn.append(_Part([sizes[node] for node in nodes], local).draw())
    area = sum((part.width + _SPACE[0]) * (part.height + _GAP) for part in drawn)
    limit = max([math.sqrt(area * 1.6), *(part.width for part in drawn)])
    x = y = right = bottom = 0.0
    for (nodes, arrows), part in zip(parts, drawn, strict=True):
        if x and x + part.width > limit:
            x, y = 0.0, bottom + _GAP
        for node, box in zip(nodes, part.boxes, strict=True):
            boxes[node] = Box(box.x + x, box.y + y, box.width, box.height)
        for arrow, route in zip(arrows, part.routes, strict=True):
            routes[arrow] = [Column(at + x, top + y, end + y) for at, top, end in route]
        right, bottom = max(right, x + part.width), max(bottom, y + part.height)
        x += part.width + _SPACE[0]
    return Layout(right, bottom, boxes, routes)


def _parts(count: int, links: Sequence[Link]) -> list[tuple[list[int], list[int]]]:
    """Return the boxes and links of each connected component."""
    root = list(range(count))

    def find(node: int) -> int:
        while root[node] != node:
            root[node] = node = root[root[node]]
        return node

    for link in links:
        one, other = sorted((find(link.source), find(link.target)))
        root[other] = one
    parts: dict[int, tuple[list[int], list[int]]] = {}
    for node in range(count):
        parts.setdefault(find(node), ([], []))[0].append(node)
    for arrow, link in enumerate(links):
        parts[find(link.source)][1].append(arrow)
    return list(parts.values())


class _Part:
    """The layout of one connected component. Lanes are numbered after the boxes."""

    def __init__(self, sizes: Sequence[tuple[float, float]], links: Sequence[Link]) -> None:
        self.sizes = sizes
        self.links = links
        self.layer = _layers_of(len(sizes), links)
        self.width = [width for width, _ in sizes]
        self.up: list[list[int]] = [[] for _ in sizes]
        self.down: list[list[int]] = [[] for _ in sizes]
        self.lanes: dict[int, list[int]] = {}
        self._lay_lanes()
        self.place = [0] * len(self.layer)
        self.x = [0.0] * len(self.layer)
        self.rows = self._first_rows()
        self.sweeps = max(2, min(_SWEEPS, _SWEEP_BUDGET // (len(self.layer) + len(links))))

    def draw(self) -> Layout:
        self._reduce_crossings()
        self._relax()
        self._straighten()
        return self._finish()

    def _lay_lanes(self) -> None:
        """Reserve lanes for arrows across layers, short ones first, up to the budget."""
        budget = _LANES + len(self.sizes)
        spans = [self.layer[link.target] - self.layer[link.source] for link in self.links]
        for arrow in sorted(range(len(self.links)), key=spans.__getitem__):
            source, target, label_width = self.links[arrow]
            lanes = list(range(len(self.layer), len(self.layer) + spans[arrow] - 1))
            budget -= len(lanes)
            if budget < 0:
                break
            self.lanes[arrow] = lanes
            self.layer += range(self.layer[source] + 1, self.layer[target])
            self.width += [label_width if lane == lanes[0] else 0.0 for lane in lanes]
            self.up += [[] for _ in lanes]
            self.down += [[] for _ in lanes]
            for upper, lower in pairwise([source, *lanes, target]):
                self.down[upper].append(lower)
                self.up[lower].append(upper)

    def _first_rows(self) -> list[list[int]]:
        """Sort each layer by traversal order, so that connected boxes are adjacent."""
        rows: list[list[int]] = [[] for _ in range(max(self.layer) + 1)]
        seen = [False] * len(self.layer)
        for root in sorted(range(len(self.layer)), key=self.layer.__getitem__):
            pending = [root]
            while pending:
                vertex = pending.pop()
                if not seen[vertex]:
                    seen[vertex] = True
                    rows[self.layer[vertex]].append(vertex)
                    pending += reversed(self.down[vertex])
        self._number(rows)
        return rows

    def _number(self, rows: Iterable[Sequence[int]]) -> None:
        for row in rows:
            for index, vertex in enumerate(row):
                self.place[vertex] = index

    def _reduce_crossings(self) -> None:
        """Sweep down and up, sorting each layer by the median of its neighbours; keep the best order."""
        best, fewest, since = [list(row) for row in self.rows], self._crossings(), 0
        for sweep in range(self.sweeps):
            if not fewest or since == _MAX_STALE_ROUNDS:
                break
            for around, rows in ((self.up, self.rows[1:]), (self.down, self.rows[-2::-1])):
                for row in rows:
                    if sweep % 2:  # Break ties the other way round.
                        row.reverse()
                    row.sort(
                        key={vertex: self._barycenter(vertex, around[vertex]) for vertex in row}.__getitem__
                    )
                    self._number([row])
            if len(self.layer) < _SMALL:
                self._swap_neighbours()
            crossings = self._crossings()
            since += 1
            if crossings < fewest:
                best, fewest, since = [list(row) for row in self.rows], crossings, 0
        self.rows = best
        self._number(best)

    def _barycenter(self, vertex: int, near: Sequence[int]) -> float:
        return sum([self.place[other] for other in near]) / len(near) if near else self.place[vertex]

    def _swap_neighbours(self) -> None:
        for row in self.rows * 3:
            for index in range(len(row) - 1):
                left, right = row[index], row[index + 1]
                if self._pair_crossings(left, right) > self._pair_crossings(right, left):
                    row[index], row[index + 1] = right, left
                    self.place[left], self.place[right] = index + 1, index

    def _pair_crossings(self, left: int, right: int) -> int:
        """Count the crossings of the arrows of two adjacent vertices."""
        total = 0
        for around in (self.up, self.down):
            ends = sorted([self.place[other] for other in around[right]])
            total += sum([bisect_left(ends, self.place[other]) for other in around[left]])
        return total

    def _crossings(self) -> int:
        total = 0
        for row in self.rows:
            passed: list[int] = []
            for vertex in row:
                ends = [self.place[lower] for lower in self.down[vertex]]
                total += sum([len(passed) - bisect_right(passed, end) for end in ends])
                for end in ends:
                    insort(passed, end)
        return total

    def _relax(self) -> None:
        """Move each layer towards its neighbours above, then below, repeatedly."""
        levels = [
            (row, [self._min_distance(left, right) for left, right in pairwise(row)]) for row in self.rows
        ]
        for row, apart in levels:
            at = list(accumulate(apart, initial=0.0))
            for vertex, x in zip(row, at, strict=True):
                self.x[vertex] = x - at[-1] / 2
        for turn in range(self.sweeps):
            around = self.up if turn % 2 else self.down
            for row, apart in levels if turn % 2 else reversed(levels):
                targets = [self._median(vertex, around[vertex]) for vertex in row]
                weights = [
                    sum([_STRAIGHT[self._lanes_in(v, other)] for other in around[v]], 0.01) for v in row
                ]
                for vertex, x in zip(row, _nearest(targets, weights, apart), strict=True):
                    self.x[vertex] = x

    def _median(self, vertex: int, near: Sequence[int]) -> float:
        """Return the position where most arrows are straight. A mean would bend all of them a little."""
        boxes = [other for other in near if other < len(self.sizes)]
        at = sorted([self.x[other] for other in boxes or near]) or [self.x[vertex]]
        return (at[(len(at) - 1) // 2] + at[len(at) // 2]) / 2

    def _lanes_in(self, one: int, other: int) -> int:
        return (one >= len(self.sizes)) + (other >= len(self.sizes))

    def _min_distance(self, left: int, right: int) -> float:
        return (self.width[left] + self.width[right]) / 2 + _SPACE[self._lanes_in(left, right)]

    def _straighten(self) -> None:
        """Align boxes with their successors or predecessors, and lanes on one line, where there is room."""
        boxes = sorted(range(len(self.sizes)), key=self.layer.__getitem__)
        for box in reversed(boxes):
            self._move([box], self._median(box, self.down[box]))
        for box in boxes:
            if len(self.up[box]) >= len(self.down[box]):
                self._move([box], self._median(box, self.up[box]))
        for arrow, lanes in self.lanes.items():
            if lanes:
                source, target, _ = self.links[arrow]
                self._move(lanes, sorted((self.x[source], self.x[target], self.x[lanes[len(lanes) // 2]]))[1])

    def _move(self, vertices: Sequence[int], target: float) -> None:
        """Align vertices as near to the target as their neighbours allow, if they do."""
        low, high = -math.inf, math.inf
        for vertex in vertices:
            row, place = self.rows[self.layer[vertex]], self.place[vertex]
            if place > 0:
                low = max(low, self.x[row[place - 1]] + self._min_distance(row[place - 1], vertex))
            if place + 1 < len(row):
                high = min(high, self.x[row[place + 1]] - self._min_distance(vertex, row[place + 1]))
        if low <= high:
            for vertex in vertices:
                self.x[vertex] = min(max(target, low), high)

    def _finish(self) -> Layout:
        left = min(self.x[row[0]] - self.width[row[0]] / 2 for row in self.rows)
        self.x = [x - left for x in self.x]
        right = max(self.x[row[-1]] + self.width[row[-1]] / 2 for row in self.rows)
        heights = [0.0] * len(self.rows)
        for layer, (_, height) in zip(self.layer, self.sizes, strict=False):
            heights[layer] = max(heights[layer], height)
        tops = list(accumulate(map(sum, zip(heights, self._gaps(), strict=False)), initial=0.0))
        ends = [top + height for top, height in zip(tops, heights, strict=True)]
        boxes = [
            Box(x - width / 2, tops[layer] + (heights[layer] - height) / 2, width, height)
            for x, layer, (width, height) in zip(self.x, self.layer, self.sizes, strict=False)
        ]
        outside: dict[int, float] = {}
        routes: list[list[Column]] = []
        for arrow, (source, target, _) in enumerate(self.links):
            upper, lower = self.layer[source], self.layer[target]
            route = [Column(self.x[source], boxes[source].y + boxes[source].height, ends[upper])]
            if arrow in self.lanes:
                route += [
                    Column(self.x[v], tops[self.layer[v]], ends[self.layer[v]]) for v in self.lanes[arrow]
                ]
            else:  # Beside everything, on one line for all arrows of a box.
                side = outside.setdefault(source, right + _SPACE[2] * (len(outside) + 1))
                route.append(Column(side, tops[upper + 1], ends[lower - 1]))
            routes.append([*route, Column(self.x[target], tops[lower], boxes[target].y)])
        return Layout(max([right, *outside.values()]), ends[-1], boxes, routes)

    def _gaps(self) -> list[float]:
        """Return the gap below each layer but the last: wider for labels and long sideways arrows."""
        gaps = [_GAP] * (len(self.rows) - 1)
        for link in self.links:
            if link.label_width:
                gaps[self.layer[link.source]] = _LABELLED_GAP
        for layer, row in enumerate(self.rows[:-1]):
            far = max(
                [abs(self.x[upper] - self.x[lower]) for upper in row for lower in self.down[upper]],
                default=0.0,
            )
            gaps[layer] = min(_WIDEST_GAP, gaps[layer] + far * _SLOPE)
        return gaps


def _layers_of(count: int, links: Sequence[Link]) -> list[int]:
    """Return the layer of each box: the longest path from a root. Boxes with more arrows out move down."""
    after: list[list[int]] = [[] for _ in range(count)]
    before = [0] * count
    for link in links:
        after[link.source].append(link.target)
        before[link.target] += 1
    layer = [0] * count
    waiting = list(before)
    pending = [node for node in range(count) if not before[node]]
    order: list[int] = []
    while pending:
        node = pending.pop()
        order.append(node)
        for target in after[node]:
            layer[target] = max(layer[target], layer[node] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                pending.append(target)
    for node in reversed(order):
        if len(after[node]) > before[node]:
            layer[node] = min([layer[target] for target in after[node]]) - 1
    return layer


def _nearest(targets: Sequence[float], weights: Sequence[float], apart: Sequence[float]) -> list[float]:
    """Return the positions nearest to the targets (least squares) that keep order and distances.

    Less the distances this is isotonic regression: pooling those in each other's way solves it exactly, in
    linear time.
    """
    offsets = list(accumulate(apart, initial=0.0))
    pools: list[tuple[float, float, int]] = []
    for target, weight, offset in zip(targets, weights, offsets, strict=True):
        mean, total, size = target - offset, weight, 1
        while pools and pools[-1][0] > mean:
            other, more, members = pools.pop()
            mean = (mean * total + other * more) / (total + more)
            total, size = total + more, size + members
        pools.append((mean, total, size))
    level = [mean for mean, _, size in pools for _ in range(size)]
    return [mean + offset for mean, offset in zip(level, offsets, strict=True)]

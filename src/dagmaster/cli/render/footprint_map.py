"""Footprints on a map: land, a grid of degrees, each footprint in the colour of its status, and a legend."""

from __future__ import annotations

import json
import math
from collections import Counter
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from PIL import Image, ImageDraw, ImageFont

from dagmaster.application.views import NodeStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Point = tuple[float, float]

SEA, LAND, SHORE, GRID, INK, FAINT = "#eef3f7", "#fbfaf6", "#c3cbd3", "#d5dde4", "#1f2933", "#6b7783"
COLOURS: Final = {
    NodeStatus.COMPLETED: "#2a9d5c",
    NodeStatus.FAILED: "#d1495b",
    NodeStatus.RUNNING: "#2f7fd1",
    NodeStatus.CLAIMED: "#5f9cdc",
    NodeStatus.DISPATCHED: "#8fbce6",
    NodeStatus.READY: "#c9d3dc",
    NodeStatus.PENDING: "#c9d3dc",
    NodeStatus.WAITING: "#b08bd6",
    NodeStatus.SKIPPED: "#e3e7eb",
    NodeStatus.CANCELLED: "#7d8790",
}
_TOP, _BOTTOM, _SIDE = 56, 52, 56
_STEPS: Final = (30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
_LINES: Final = 4
# Drawn larger and scaled down: Pillow does not anti-alias lines.
_SCALE: Final = 2


def draw_map(features: Sequence[dict[str, Any]], title: str, *, width: int = 1200) -> Image.Image:
    view = View(features, width)
    image = Image.new("RGB", (width * _SCALE, view.height * _SCALE), "white")
    pen = ImageDraw.Draw(image, "RGBA")
    pen.rectangle(view.frame(), fill=SEA)
    for ring in json.loads(files("dagmaster.ui").joinpath("static", "land.json").read_text(encoding="utf-8")):
        if view.touches(ring):
            pen.polygon([view.to_pixel(*point) for point in ring], fill=LAND, outline=SHORE, width=_SCALE)
    _draw_grid(pen, view)
    # Failed ones last, on top of the others.
    for feature in sorted(features, key=lambda feature: feature["properties"]["status"] == NodeStatus.FAILED):
        colour = COLOURS.get(feature["properties"]["status"], "#999999")
        for ring in rings(feature["geometry"]):
            pixels = [view.to_pixel(*point) for point in ring]
            if len(pixels) > 1:
                pen.polygon(pixels, fill=f"{colour}b0", outline=f"{colour}ff", width=_SCALE)
            else:
                x, y = pixels[0]
                pen.ellipse((x - 4, y - 4, x + 4, y + 4), fill=colour)
    _cover_margins(pen, view)
    _write(pen, (_SIDE, 16), title, 20, INK)
    _draw_legend(pen, view, Counter(feature["properties"]["status"] for feature in features))
    return image.resize((width, view.height), Image.Resampling.LANCZOS)


class View:
    """The part of the Earth that is drawn. A degree of longitude is as long as at the middle latitude."""

    def __init__(self, features: Sequence[dict[str, Any]], width: int) -> None:
        points = [point for feature in features for ring in rings(feature["geometry"]) for point in ring]
        west, east = min(x for x, _ in points), max(x for x, _ in points)
        south, north = min(y for _, y in points), max(y for _, y in points)
        margin = max(east - west, north - south, 0.002) * 0.12
        self.west, self.east = west - margin, east + margin
        self.south, self.north = max(south - margin, -90.0), min(north + margin, 90.0)
        self.width = width
        inner = width - 2 * _SIDE
        squeeze = max(math.cos(math.radians((self.south + self.north) / 2)), 0.05)
        self._x = inner / (self.east - self.west)
        height = (self.north - self.south) * self._x / squeeze
        # Limits the aspect ratio: beyond it, degrees are stretched.
        self.inner_height = round(min(max(height, inner * 0.3), inner * 1.2))
        self._y = self.inner_height / (self.north - self.south)
        self.height = self.inner_height + _TOP + _BOTTOM

    def to_pixel(self, x: float, y: float, *_z: float) -> Point:
        return ((_SIDE + (x - self.west) * self._x) * _SCALE, (_TOP + (self.north - y) * self._y) * _SCALE)

    def frame(self) -> tuple[float, float, float, float]:
        return (*self.to_pixel(self.west, self.north), *self.to_pixel(self.east, self.south))

    def step(self) -> float:
        """Return the degrees between two lines of the grid."""
        return next((step for step in _STEPS if (self.east - self.west) / step >= _LINES), _STEPS[-1])

    def touches(self, ring: Sequence[Sequence[float]]) -> bool:
        xs, ys = [point[0] for point in ring], [point[1] for point in ring]
        return min(xs) < self.east and max(xs) > self.west and min(ys) < self.north and max(ys) > self.south


def rings(geometry: dict[str, Any]) -> Iterator[list[list[float]]]:
    """Yield the outer rings of a geometry; a line counts as a ring, a point as a ring of one point."""
    kind, coordinates = geometry["type"], geometry.get("coordinates") or []
    match kind:
        case "Point":
            yield [coordinates]
        case "LineString":
            yield coordinates
        case "Polygon":
            yield from coordinates[:1]
        case "MultiPoint":
            yield from ([point] for point in coordinates)
        case "MultiLineString":
            yield from coordinates
        case "MultiPolygon":
            yield from (polygon[0] for polygon in coordinates if polygon)


def _draw_grid(pen: ImageDraw.ImageDraw, view: View) -> None:
    step = view.step()
    for number in range(math.ceil(view.west / step), math.floor(view.east / step) + 1):
        x, _ = view.to_pixel(number * step, 0)
        pen.line([(x, _TOP * _SCALE), (x, (_TOP + view.inner_height) * _SCALE)], fill=GRID, width=_SCALE)
    for number in range(math.ceil(view.south / step), math.floor(view.north / step) + 1):
        _, y = view.to_pixel(0, number * step)
        pen.line([(_SIDE * _SCALE, y), ((view.width - _SIDE) * _SCALE, y)], fill=GRID, width=_SCALE)


def _cover_margins(pen: ImageDraw.ImageDraw, view: View) -> None:
    """Clear the area outside the map, and label the grid there."""
    left, top, right, bottom = view.frame()
    wide, high = view.width * _SCALE, view.height * _SCALE
    for box in (
        (0, 0, wide, top - 1),
        (0, bottom + 1, wide, high),
        (0, 0, left - 1, high),
        (right + 1, 0, wide, high),
    ):
        pen.rectangle(box, fill="white")
    pen.rectangle((left, top, right, bottom), outline=SHORE, width=_SCALE)
    step = view.step()
    for number in range(math.ceil(view.west / step), math.floor(view.east / step) + 1):
        x, _ = view.to_pixel(number * step, 0)
        _write(
            pen,
            (x / _SCALE, _TOP + view.inner_height + 4),
            _degrees(number * step, "EW"),
            11,
            FAINT,
            anchor="ma",
        )
    for number in range(math.ceil(view.south / step), math.floor(view.north / step) + 1):
        _, y = view.to_pixel(0, number * step)
        _write(pen, (_SIDE - 5, y / _SCALE), _degrees(number * step, "NS"), 11, FAINT, anchor="rm")


def _draw_legend(pen: ImageDraw.ImageDraw, view: View, counts: Counter[str]) -> None:
    x, y = float(_SIDE), view.height - 22.0
    for status in COLOURS:
        if not counts[status]:
            continue
        pen.rectangle((x * _SCALE, y * _SCALE, (x + 13) * _SCALE, (y + 13) * _SCALE), fill=COLOURS[status])
        text = f"{counts[status]:,} {status.lower()}"
        _write(pen, (x + 19, y + 6), text, 13, INK, anchor="lm")
        x += 19 + pen.textlength(text, font=_font(13)) / _SCALE + 22


def _degrees(value: float, sides: str) -> str:
    rounded = round(value, 4)
    return f"{abs(rounded):g}°{'' if rounded == 0 else sides[rounded < 0]}"


def _write(
    pen: ImageDraw.ImageDraw, at: Point, text: str, size: int, colour: str, *, anchor: str = "la"
) -> None:
    pen.text((at[0] * _SCALE, at[1] * _SCALE), text, font=_font(size), fill=colour, anchor=anchor)


def _font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size * _SCALE)

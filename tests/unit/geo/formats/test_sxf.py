"""SXF maps are read where GDAL places them right; others are refused, since GDAL would misplace them silently."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pyogrio
import pytest
import shapely

from dagmaster.errors import PermanentError
from tests.unit.geo.formats.handwritten_vectors import sxf_classes, write_sxf, write_sxf_3

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.geo.vector.vector_context import FolderServices

EPSG, ELLIPSOID, PROJECTION, UNIT, FLAGS, WEST, EAST, RECORDS, TEXT = (
    100,
    232,
    234,
    237,
    96,
    176,
    208,
    452,
    503,
)


def change(content: bytes, position: int, data: bytes) -> bytes:
    return content[:position] + data + content[position + len(data) :]


@pytest.fixture
def path(services: FolderServices) -> Path:
    path = services.folder / "x.sxf"
    write_sxf(path)
    return path


def prepare(services: FolderServices, path: Path) -> Any:
    return services.run("vector.prepare", href=str(path))


def refuse(services: FolderServices, path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(PermanentError, match=message) as caught:
        prepare(services, path)
    assert caught.value.kind == "invalid_input"


REFUSED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "epsg": (
        lambda old: change(old, EPSG, struct.pack("<I", 28407)),
        r"by the code EPSG:28407, and GDAL would place",
    ),
    "utm": (
        lambda old: change(change(old, ELLIPSOID, b"\x09"), PROJECTION, b"\x11"),
        "ellipsoid 9, projection 17",
    ),
    "unit": (lambda old: change(old, UNIT, b"\x41"), r"not in metres \(unit 65\)"),
    "longitude": (lambda old: change(old, EAST, struct.pack("<d", -10.0)), "lies around longitude"),
    "no longitude": (
        lambda old: change(old, WEST, struct.pack("<d", float("nan"))),
        "lies around longitude nan",
    ),
    "state": (lambda old: change(old, FLAGS, b"\x1b"), "not in its projection"),
    "device": (
        lambda old: change(change(old, FLAGS, b"\x07"), 312, struct.pack("<2i", 0, 5)),
        "device coordinates",
    ),
    "frame": (
        lambda old: change(change(old, FLAGS, b"\x07"), 312, struct.pack("<2i", 9, -5)),
        "device coordinates",
    ),
    "version": (lambda old: change(old, 10, b"\x05"), "has version 5: versions 3 and 4 are read"),
    "passport": (lambda old: old[:300], "truncated: it ends in its passport"),
    "head": (lambda old: old[:10], "truncated: it ends in its passport"),
    "objects": (lambda old: old[:-1], "truncated: 1 of its 2 objects are complete"),
    "object": (lambda old: old[: RECORDS + 20], "truncated: 0 of its 2 objects are complete"),
    "mark": (lambda old: change(old, RECORDS, b"\0"), "object 1 of the SXF map is damaged"),
    "long text": (
        lambda old: change(old, TEXT, b"\xff"),
        "object 1 of the SXF map is damaged, or has an attribute with",
    ),
    "kind": (
        lambda old: change(old, TEXT - 1, b"\x80"),
        "object 1 of the SXF map is damaged, or has an attribute with",
    ),
    "length": (
        lambda old: change(old, RECORDS + 4, struct.pack("<I", 33)),
        "object 1 of the SXF map is damaged",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_map_that_gdal_would_misplace_or_cut_is_refused(services, path, case):
    damage, message = REFUSED[case]
    refuse(services, path, damage(path.read_bytes()), message)


def test_gdal_still_misplaces_what_is_refused(path):
    """When GDAL reads these maps right, they need not be refused any longer."""
    content = path.read_bytes()
    path.write_bytes(change(content, EPSG, struct.pack("<I", 28407)))
    _, table = pyogrio.raw.read_arrow(path)
    assert [one.bounds for one in shapely.from_wkb(table["wkb_geometry"].to_pylist())] == [(0, 0, 0, 0)] * 2
    path.write_bytes(change(change(content, ELLIPSOID, b"\x09"), PROJECTION, b"\x11"))
    assert pyogrio.raw.read_arrow(path)[0]["crs"] == "EPSG:32737"
    path.write_bytes(content[:-1])
    assert pyogrio.raw.read_arrow(path)[1].num_rows == 2


def test_the_attributes_and_the_names_of_classes_are_read(services, path):
    output = prepare(services, path)
    assert output["source_crs"] == "EPSG:28407"
    rows = pq.read_table(output["chunks"][0]["href"].removeprefix("file://")).to_pylist()
    assert [(row["clcode"], row["sc_9"], row["sc_10"]) for row in rows] == [
        (53_110_000, "a", 1.5),
        (53_110_000, "a", 2.5),
    ]
    assert {row["clname"] for row in rows} == {"АЭРОПОРТ"}


def test_a_unit_does_not_matter_for_the_coordinates_of_a_digitiser(services):
    path = services.folder / "old.sxf"
    write_sxf_3(path)
    path.write_bytes(change(path.read_bytes(), 163, b"\x01"))
    assert prepare(services, path)["counts"]["rows"] == 2


def test_a_table_of_classes_next_to_a_map_names_its_layers(services, path):
    classes = path.with_suffix(".rsc")
    classes.write_bytes(sxf_classes())
    assert prepare(services, path)["counts"]["rows"] == 2
    assert pyogrio.list_layers(path)[:, 0].tolist() == ["fields"]


@pytest.mark.parametrize(
    ("position", "data", "message"),
    [
        (0, b"x", "the .rsc next to the SXF map is not a class table"),
        (128, b"\xff\xff\xff\xff", "the .rsc next to the SXF map is damaged or truncated"),
        (188, b"\xff\xff\xff\xff", "the .rsc next to the SXF map is damaged or truncated"),
        (328, b"\0", "the .rsc next to the SXF map is damaged or truncated"),
    ],
)
def test_a_damaged_table_of_classes_is_refused(services, path, position, data, message):
    path.with_suffix(".rsc").write_bytes(change(sxf_classes(), position, data))
    refuse(services, path, path.read_bytes(), message)

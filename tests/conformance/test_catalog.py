"""Every catalog keeps what it was given, finds it by place and time, and lets many register at once."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagmaster.errors import CatalogUnavailable, PermanentError
from dagmaster.ports.catalog import Registered, Search
from tests.conformance.catalogs import (
    a_collection,
    an_item,
    empty_pgstac,
    open_catalog,
)
from tests.conformance.postgis import postgis_server
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.ports.catalog import Catalog


@pytest.fixture(scope="module")
def pgstac_server() -> Iterator[str]:
    """Provide the URL of a database that has pgstac."""
    from dagmaster.geo.catalog.pgstac_catalog import migrate

    with postgis_server() as address:
        assert migrate(address) == migrate(address)
        yield address


@pytest.fixture(params=["directory", "pgstac"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "a catalog [of] scenes*")
    address: str = request.getfixturevalue("pgstac_server")
    empty_pgstac(address)
    return address


@pytest.fixture
def catalog(place: str) -> Catalog:
    result = open_catalog(place)
    result.ensure_collection(a_collection())
    return result


PROCESSES = 3


def names(result: list[dict[str, Any]]) -> list[str]:
    return [item["id"] for item in result]


def extent(catalog: Catalog, name: str = "scenes") -> tuple[list[float], list[str | None]]:
    result = (catalog.collection(name) or {})["extent"]
    assert len(result["spatial"]["bbox"]) == len(result["temporal"]["interval"]) == 1
    return result["spatial"]["bbox"][0], result["temporal"]["interval"][0]


# ── collections ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_collection_is_made_once_and_stays_as_it_is(catalog):
    assert catalog.ensure_collection(a_collection("b", title="first")) is True
    assert catalog.ensure_collection(a_collection("b", title="second")) is False
    assert catalog.collection("b") == a_collection("b", title="first")
    assert catalog.collection("none") is None
    assert [one["id"] for one in catalog.collections()] == ["b", "scenes"]
    assert catalog.counts() == {}


@pytest.mark.parametrize(
    "name", ["../x", "a/b", ".hidden", "..", "Ünïcødé 日本", "x" * 512, "a'b\"c", "%2E", "a b*[?]"]
)
def test_an_id_may_have_any_letters_that_can_be_seen(catalog, name):
    assert catalog.ensure_collection(a_collection(name))
    assert catalog.register([an_item(name, collection=name)]).created == 1
    assert catalog.item(name, name) == an_item(name, collection=name)
    assert catalog.search(Search(ids=(name,), collections=(name,))) == [an_item(name, collection=name)]
    assert (catalog.collection(name) or {})["id"] == name
    assert catalog.remove(name, [name]) == 1


@pytest.mark.parametrize("name", ["", "a\x00b", "a\nb", "x" * 513, "\ud800", None, 5])
def test_an_id_that_cannot_be_seen_is_refused(catalog, name):
    for wrong in (an_item(name), an_item(collection=name)):
        with pytest.raises(PermanentError) as caught:
            catalog.register([wrong])
        assert caught.value.kind == "invalid_input"
    with pytest.raises(PermanentError):
        catalog.ensure_collection(a_collection(name))
    if isinstance(name, str) and "\ud800" not in name:
        assert catalog.item("scenes", name) is None


def test_an_item_off_the_earth_is_kept_and_no_search_by_place_finds_it(catalog):
    place = {"proj:code": "IAU_2015:30100", "proj:bbox": [0, 0, 1, 1], "ssys:targets": ["Moon"]}
    moon = {**an_item("moon", properties=place), "geometry": None}
    del moon["bbox"]
    assert catalog.register([moon, an_item("earth")]) == Registered(created=2)
    assert catalog.register([moon]) == Registered(unchanged=1)
    assert catalog.item("scenes", "moon") == moon
    assert names(catalog.search(Search(collections=("scenes",)))) == ["earth", "moon"]
    assert names(catalog.search(Search(bbox=(-180, -90, 180, 90)))) == ["earth"]
    assert extent(catalog)[0] == [10, 50, 11, 51]
    catalog.ensure_collection(a_collection("lunar"))
    catalog.register([{**moon, "collection": "lunar"}])
    assert extent(catalog, "lunar")[0] == [-180, -90, 180, 90]
    # Without a place of its own an item is refused, as before.
    with pytest.raises(PermanentError, match="has no geometry"):
        catalog.register([{**moon, "id": "lost", "properties": {"datetime": "2026-01-01T00:00:00Z"}}])


def test_a_collection_grows_with_its_items(catalog):
    catalog.ensure_collection(a_collection("other"))
    catalog.register([an_item("a", box=(10.0, 50.0, 11.0, 51.0), when="2026-01-02T00:00:00Z")])
    assert extent(catalog) == ([10, 50, 11, 51], ["2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z"])
    span = {"start_datetime": "2025-05-01T00:00:00Z", "end_datetime": "2025-06-01T00:00:00Z"}
    catalog.register(
        [
            an_item("b", box=(-20.0, 50.5, -19.0, 52.0), when=None, properties=span),
            an_item("c", when="2026-03-01T12:00:00+02:00"),
        ]
    )
    assert extent(catalog) == ([-20, 50, 11, 52], ["2025-05-01T00:00:00Z", "2026-03-01T10:00:00Z"])
    catalog.register([an_item("a", box=(10.0, 50.0, 11.0, 51.0), when="2026-01-02T00:00:00Z")])
    assert extent(catalog) == ([-20, 50, 11, 52], ["2025-05-01T00:00:00Z", "2026-03-01T10:00:00Z"])
    assert catalog.collection("other") == a_collection("other")
    assert {key: one for key, one in catalog.collection("scenes").items() if key != "extent"} == {
        key: one for key, one in a_collection().items() if key != "extent"
    }


def test_a_given_extent_is_kept_where_it_is_larger(catalog):
    details = {
        "spatial": {"bbox": [[170.0, -25.0, -170.0, -10.0]]},
        "temporal": {"interval": [["2026-01-01T00:00:00Z", None]]},
    }
    catalog.ensure_collection(a_collection("reported", extent=details))
    catalog.register([an_item(box=(-179.0, -20.0, -178.0, -19.0), collection="reported")])
    assert (catalog.collection("reported") or {})["extent"] == details
    catalog.register([an_item("b", collection="reported", when="2020-01-01T00:00:00Z")])
    assert extent(catalog, "reported") == ([-180, -25, 180, 51], ["2020-01-01T00:00:00Z", None])


# ── registering ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_comes_out_equals_what_went_in(catalog):
    odd = an_item(
        "odd",
        when=None,
        properties={
            "start_datetime": "2026-01-01T00:00:00.123456789Z",
            "end_datetime": "2026-01-02T01:00:00+01:00",
            "nothing": None,
            "empty": {},
            "list": [1, "two", None, {"three": [None]}],
            "large": 12345678901234567890123,
            "tiny": 1e-300,
            "huge": 1e22,
            "text": "𒍟※ ünï \\u0000",
            "proj:geometry": {"type": "Point", "coordinates": [1, 2]},
        },
        geometry={"type": "Point", "coordinates": [10.123456789012345, 50.1, 7], "note": "kept"},
        bbox=[10, 50, 7, 11, 51, 7.5],
        extra={"private": None},
    )
    plain = an_item("plain", properties={"nothing": 1, "empty": "text", "list": 3.5, "large": False})
    catalog.register([odd, plain])
    catalog.register([an_item("other", properties={"nothing": ["x"]}, assets={})])
    assert catalog.item("scenes", "odd") == odd
    assert catalog.search(Search(ids=("odd",))) == [odd]
    assert list(catalog.items("scenes")) == [
        odd,
        an_item("other", properties={"nothing": ["x"]}, assets={}),
        plain,
    ]
    assert catalog.register([odd]) == Registered(unchanged=1)


def test_the_assets_of_a_collection_do_not_leak_into_its_items(catalog):
    shared = {
        "data": {"type": "image/tiff", "roles": ["data"], "title": None},
        "preview": {"title": "Preview"},
    }
    catalog.ensure_collection(a_collection("with_assets", item_assets=shared))
    item = an_item("a", collection="with_assets", assets={"data": {"href": "x.tif", "roles": ["data"]}})
    catalog.register([item])
    assert catalog.item("with_assets", "a") == item


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "é", "", "json"]), inner, max_size=3)
    ),
    max_leaves=6,
)
PROPERTIES = st.dictionaries(
    st.sampled_from(["a", "b", "c:d", "id", "geometry", "title", "created"]), JSON, max_size=4
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(PROPERTIES, st.dictionaries(st.sampled_from(["x", "y", "z"]), PROPERTIES, max_size=2)),
        min_size=1,
        max_size=4,
    )
)
def test_items_that_agree_about_nothing_come_out_as_they_went_in(catalog, rows):
    items = [
        an_item(
            f"i{number}",
            properties=properties,
            assets={name: {"href": "x", **own} for name, own in assets.items()},
        )
        for number, (properties, assets) in enumerate(rows)
    ]
    for item in items:
        item["properties"]["datetime"] = "2026-01-01T00:00:00Z"
    catalog.register(items)
    assert [catalog.item("scenes", item["id"]) for item in items] == items
    assert catalog.register(items) == Registered(unchanged=len(items))


def test_registering_tells_what_is_new_what_changed_and_what_was_there(catalog):
    assert catalog.register([]) == Registered()
    assert catalog.register([an_item("a"), an_item("b"), an_item("a")]) == Registered(created=2)
    changed = an_item("b", properties={"v": 2})
    assert catalog.register([an_item("a"), changed, an_item("c")]) == Registered(
        created=1, updated=1, unchanged=1
    )
    assert catalog.item("scenes", "b") == changed
    assert names(list(catalog.items("scenes"))) == ["a", "b", "c"]
    assert catalog.counts() == {"scenes": 3}


def test_true_is_not_one(catalog):
    catalog.register([an_item("a", properties={"v": True})])
    assert catalog.register([an_item("a", properties={"v": 1})]).updated == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (an_item("w", collection="none"), "no collection 'none'"),
        (an_item("w", geometry=None), "no geometry"),
        (an_item("w", geometry={"type": "Polygon", "coordinates": []}), "has no coordinates"),
        (an_item("w", geometry={"type": "Circle", "coordinates": [1, 2]}), "expected GeoJSON"),
        (an_item("w", geometry={"type": "Point", "coordinates": [1, float("nan")]}), "not JSON"),
        (
            an_item("w", geometry={"type": "Point", "coordinates": [50, 91]}),
            "longitude (-180 to 180), then latitude",
        ),
        (
            an_item("w", geometry={"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]}),
            "not closed",
        ),
        (an_item("w", bbox=None), "bbox of the item 'w' is missing"),
        (an_item("w", bbox=[0, 0, float("inf"), 1]), "not JSON"),
        (an_item("w", bbox=[0, 10, 1, 0]), "west,south,east,north"),
        (an_item("w", bbox=[0, 0, 1]), "four finite numbers"),
        (an_item("w", bbox=[0, 0, True, 1]), "four finite numbers"),
        (an_item("w", when=None), "has no datetime"),
        (an_item("w", when="yesterday"), "2026-11-16T05:00:00Z"),
        (an_item("w", when="2026-01-01T00:00:00"), "no time zone"),
        (an_item("w", when="2026-02-30T00:00:00Z"), "not in the calendar"),
        (
            an_item(
                "w",
                properties={"start_datetime": "2026-01-02T00:00:00Z", "end_datetime": "2026-01-01T00:00:00Z"},
            ),
            "ends before it starts",
        ),
        (an_item("w", properties={"v": float("nan")}), "not JSON"),
        (an_item("w", properties={"v": "a\x00b"}), "NUL"),
        (an_item("w", properties={"v": "x" * 4_000_000}), "MB of JSON"),
        (an_item("a", properties={"v": 2}), "two different items"),
        (an_item("w", links=None), "has no links"),
        ({"type": "Feature"}, "id of an item is missing"),
        ({"id": "w"}, "not a STAC item"),
    ],
)
def test_what_no_catalog_can_take_is_refused_with_all_that_came_with_it(catalog, wrong, message):
    with pytest.raises(PermanentError) as caught:
        catalog.register([an_item("a"), wrong, an_item("z")])
    assert caught.value.kind == "invalid_input"
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500
    assert list(catalog.items("scenes")) == []


def test_items_that_are_removed_are_gone_and_may_come_again(catalog):
    catalog.register([an_item(name) for name in "abc"])
    assert catalog.remove("scenes", ["a", "c", "c", "none"]) == 2
    assert catalog.remove("scenes", ["a"]) == 0
    assert catalog.remove("none", ["b"]) == 0
    assert names(catalog.search(Search())) == ["b"]
    assert catalog.register([an_item("a")]) == Registered(created=1)
    assert catalog.remove("scenes", ["a", "b"]) == 2
    assert catalog.search(Search()) == []


def test_an_item_of_another_collection_with_the_same_id_is_another_item(catalog):
    catalog.ensure_collection(a_collection("other"))
    catalog.register([an_item("a"), an_item("a", collection="other", properties={"v": 1})])
    assert catalog.register([an_item("a", properties={"v": 2})]) == Registered(updated=1)
    assert catalog.remove("other", ["a"]) == 1
    assert catalog.item("scenes", "a") == an_item("a", properties={"v": 2})


# ── searching ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def world(catalog: Catalog) -> Catalog:
    """Not to be confused with the world of the stores: four places on Earth, and one that spans the antimeridian."""
    fiji = {
        "type": "MultiPolygon",
        "coordinates": [
            [[[177.0, -20.0], [180.0, -20.0], [180.0, -16.0], [177.0, -16.0], [177.0, -20.0]]],
            [[[-180.0, -20.0], [-178.0, -20.0], [-178.0, -16.0], [-180.0, -16.0], [-180.0, -20.0]]],
        ],
    }
    # A triangle: its bounds reach where it does not.
    triangle = {"type": "Polygon", "coordinates": [[[30.0, 0.0], [40.0, 0.0], [30.0, 10.0], [30.0, 0.0]]]}
    catalog.register(
        [
            an_item("berlin", box=(13.0, 52.0, 14.0, 53.0), when="2026-01-02T00:00:00Z"),
            an_item("fiji", geometry=fiji, bbox=[177.0, -20.0, -178.0, -16.0], when="2026-01-03T00:00:00Z"),
            an_item("pole", box=(-180.0, 85.0, 180.0, 90.0), when="2026-01-04T00:00:00Z"),
            an_item("triangle", geometry=triangle, bbox=[30.0, 0.0, 40.0, 10.0], when="2026-01-01T00:00:00Z"),
            an_item(
                "year",
                box=(-60.0, -10.0, -50.0, 0.0),
                when=None,
                properties={"start_datetime": "2024-01-01T00:00:00Z", "end_datetime": "2024-12-31T23:59:59Z"},
            ),
        ]
    )
    return catalog


@pytest.mark.parametrize(
    ("box", "result"),
    [
        ((-180, -90, 180, 90), ["pole", "fiji", "berlin", "triangle", "year"]),
        ((13.5, 52.5, 13.6, 52.6), ["berlin"]),
        ((0, 51, 13, 52), ["berlin"]),
        ((179, -18, -179, -17), ["fiji"]),
        ((-179.5, -18, -179, -17), ["fiji"]),
        ((170, -90, -170, 90), ["pole", "fiji"]),
        ((0, -19, 10, -17), []),
        ((38, 8, 39, 9), []),
        ((31, 1, 32, 2), ["triangle"]),
        ((31, 1, 31, 1), ["triangle"]),
        ((31, 1, 31, 60), ["triangle"]),
        ((35, 5, 35, 5), ["triangle"]),
        ((-180, 90, 180, 90), ["pole"]),
    ],
)
def test_a_box_finds_the_geometries_that_it_meets(world, box, result):
    assert names(world.search(Search(bbox=box))) == result


@pytest.mark.parametrize(
    ("when", "result"),
    [
        ("2026-01-02T00:00:00Z", ["berlin"]),
        ("2026-01-02T01:00:00+01:00", ["berlin"]),
        ("2026-01-02", ["berlin"]),
        ("2026-01-01/2026-01-02", ["berlin", "triangle"]),
        ("2026-01-03T00:00:00Z/..", ["pole", "fiji"]),
        ("2026-01-03T00:00:00.000001Z/", ["pole"]),
        ("../2025-01-01T00:00:00Z", ["year"]),
        ("/2023-12-31", []),
        ("2024-06-01T00:00:00Z", ["year"]),
        ("2024-12-31T23:59:59Z/2025-06-01T00:00:00Z", ["year"]),
        ("2025-01-01/2025-12-31", []),
        ("2024", ["year"]),
        ("2025", []),
        ("../2026-01", ["pole", "fiji", "berlin", "triangle", "year"]),
        ("2026-02/..", []),
        ("2025/2025-12", []),
    ],
)
def test_a_span_finds_what_was_seen_in_it(world, when, result):
    assert names(world.search(Search(datetime=when))) == result


def test_conditions_add_up_and_the_newest_comes_first_then_the_id(world):
    world.register([an_item(name, when="2026-01-04T00:00:00Z") for name in ("b", "B", "a", "é", "_")])
    result = ["B", "_", "a", "b", "pole", "é", "fiji", "berlin", "triangle", "year"]
    assert names(world.search(Search())) == result
    assert names(world.search(Search(limit=3))) == result[:3]
    assert world.search(Search(limit=0)) == []
    assert names(world.search(Search(bbox=(9, 49, 12, 52), limit=2))) == ["B", "_"]
    assert names(world.search(Search(ids=("a", "fiji", "none"), datetime="2026-01-04"))) == ["a"]
    assert world.search(Search(collections=("other",))) == []
    assert names(
        world.search(
            Search(collections=("other", "scenes"), bbox=(13, 52, 14, 53), datetime="2026-01-02T00:00:00Z")
        )
    ) == ["berlin"]


@pytest.mark.parametrize(
    "wrong",
    [
        Search(bbox=(0, 10, 1, 0)),
        Search(bbox=(0, 0, 181, 1)),
        Search(bbox=(0, 0, float("nan"), 1)),
        Search(bbox=(0, 0, float("inf"), 1)),
        Search(datetime="2026-13"),
        Search(datetime="26"),
        Search(datetime="../.."),
        Search(datetime="2026-01-02/2026-01-01"),
        Search(datetime="a/b/c"),
        Search(limit=-1),
        Search(ids=("a\x00",)),
    ],
)
def test_an_invalid_search_is_rejected(world, wrong):
    with pytest.raises(PermanentError) as caught:
        world.search(wrong)
    assert caught.value.kind == "invalid_input"


BOXES = st.tuples(st.integers(-179, 178), st.integers(-89, 88), st.integers(1, 90), st.integers(1, 60)).map(
    lambda b: (float(b[0]), float(b[1]), float(min(b[0] + b[2], 180)), float(min(b[1] + b[3], 90)))
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(BOXES, min_size=1, max_size=8), BOXES, st.booleans())
def test_a_search_finds_what_a_plain_comparison_finds(catalog, boxes, expected, across):
    catalog.remove("scenes", [f"i{number}" for number in range(8)])
    catalog.register([an_item(f"i{number}", box=box) for number, box in enumerate(boxes)])
    west, south, east, north = expected
    asked = (east, south, west, north) if across and west < east else expected
    parts = [expected] if asked == expected else [(east, south, 180.0, north), (-180.0, south, west, north)]
    meets = [
        f"i{number}"
        for number, box in enumerate(boxes)
        if any(box[0] <= p[2] and box[2] >= p[0] and box[1] <= p[3] and box[3] >= p[1] for p in parts)
    ]
    assert names(catalog.search(Search(bbox=asked))) == meets


# ── many at once ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_many_processes_register_at_once_and_nothing_is_lost_or_there_twice(place):
    command = [sys.executable, str(Path(__file__).with_name("catalog_user.py")), place]
    users = [
        subprocess.Popen([*command, str(number), "5", "3"], stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    catalog = open_catalog(place)
    while any(user.poll() is None for user in users):
        with contextlib.suppress(subprocess.TimeoutExpired):
            users[0].wait(0.1)
        # Who reads meanwhile sees whole calls: of each call's common items, all or none.
        items = names(catalog.search(Search(limit=10_000)))
        assert len(items) == len(set(items))
        calls = [name.split("-")[1] for name in items if name.startswith("common")]
        assert all(calls.count(call) == 3 for call in set(calls))
    created = [int(user.communicate()[0]) for user in users]
    assert [user.returncode for user in users] == [0] * PROCESSES
    expected = {f"own-{n}-{c}-{i}" for n in range(PROCESSES) for c in range(5) for i in range(3)}
    expected |= {f"common-{c}-{i}" for c in range(5) for i in range(3)}
    assert sorted(names(list(catalog.items("shared")))) == sorted(expected)
    # Each item was made by exactly one of them.
    assert sum(created) == len(expected)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("postgresql://me:hunter2@/none?host=/nowhere", "is unavailable"),
        ("postgresql://me:%zzhunter2@host/x", "is not a PostgreSQL URL"),
        ("postgresql://me:secret@hunter2@host/x", "is not a PostgreSQL URL"),
    ],
)
def test_an_unreachable_server_is_reported_without_its_password(address, message):
    with pytest.raises(CatalogUnavailable, match=message) as caught:
        open_catalog(address).collections()
    details = "".join(traceback.format_exception(caught.value))
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in details.replace(address, "")


def test_the_error_of_a_database_without_pgstac_names_the_remedy(pgstac_server):
    with pytest.raises(CatalogUnavailable, match="dagmaster stac init"):
        open_catalog(pgstac_server.replace("/geo?", "/postgres?")).search(Search())


def test_a_connection_that_was_cut_is_opened_again(pgstac_server):
    empty_pgstac(pgstac_server)
    catalog = open_catalog(pgstac_server)
    catalog.ensure_collection(a_collection())
    with psycopg.connect(pgstac_server, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dagmaster'"
        )
    assert catalog.register([an_item("a")]) == Registered(created=1)


def test_first_items_of_many_collections_at_once_all_arrive(pgstac_server):
    """Each makes a partition, for which pgstac locks the others: they must not wait for each other."""
    empty_pgstac(pgstac_server)
    together = threading.Barrier(6)

    def first(number: int) -> Registered:
        catalog = open_catalog(pgstac_server)
        catalog.ensure_collection(a_collection(f"c{number}"))
        together.wait(PATIENCE_SECONDS)
        return catalog.register([an_item("a", collection=f"c{number}")])

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(first, range(6))) == [Registered(created=1)] * 6

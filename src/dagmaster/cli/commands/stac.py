"""`dagmaster stac`: look into the catalog."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import click

from dagmaster.cli.errors import CommandError
from dagmaster.cli.main import COMPLETED, LazyGroup
from dagmaster.cli.options import data_dir_option, json_option
from dagmaster.errors import CollectionNotFound, DagmasterError, ItemNotFound, PermanentError

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Sequence

    from dagmaster.ports.catalog import Catalog

ROOM = 10_000
"""Characters of a line that nobody's window cuts."""
SHOWN = 3
"""Entries of a list that are shown."""
FEW = 1000
"""Ids among which the nearest one to a wrong one is looked for."""


@click.group(cls=LazyGroup)
def stac() -> None:
    """Find what was made, by place and time, in the STAC catalog.

    The catalog is DAGMASTER_CATALOG_URL: a directory, or a server with pgstac. By default it is a directory beside the
    large outputs.
    """


def _box(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[float, float, float, float] | None:
    """Read west,south,east,north."""
    if value is None:
        return None
    from dagmaster.geo.bounding_boxes import parse_bbox

    try:
        return parse_bbox([float(edge) for edge in value.split(",")], repr(value))
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is no box: write west,south,east,north in degrees, as 13.0,52.3,13.8,52.7"
        ) from None
    except PermanentError as error:
        raise click.BadParameter(str(error)) from error


def _span(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Read a moment, or from/to."""
    if value is None:
        return None
    from dagmaster.geo.datetimes import parse_interval

    try:
        parse_interval(value)
    except PermanentError as error:
        raise click.BadParameter(
            f"{error}. A day is 2026-11-16, a year 2026, a span 2026-01-01/2026-12-31, `..` is open"
        ) from error
    return value


@stac.command(epilog="Exit codes: 0 searched, 2 bad usage, or no such collection, 3 the catalog does not answer.")
@click.option("--bbox", "box", callback=_box, metavar="W,S,E,N", help="Meets this box. West beyond east: across 180°.")
@click.option(
    "--datetime", "when", callback=_span, metavar="SPAN", help="A year, month, day, moment, or from/to; .. is open."
)
@click.option("--collection", "collections", multiple=True, metavar="ID", help="Only of this one. Repeatable.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this one. Repeatable.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="How many at most.")
@json_option
@data_dir_option
def search(
    *,
    box: tuple[float, float, float, float] | None,
    when: str | None,
    collections: tuple[str, ...],
    ids: tuple[str, ...],
    limit: int,
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """Find items by place and time, the newest first.

    With --json it is a GeoJSON FeatureCollection, which QGIS and geojson.io open.

    \b
    Examples:
      dagmaster stac search --bbox 13.0,52.3,13.8,52.7 --datetime 2026-01-01/..
      dagmaster stac search --collection landsat --limit 5
      dagmaster stac search --bbox 170,-25,-170,-10 --json > fiji.geojson
    """
    from dagmaster.ports.catalog import Search

    wanted = Search(bbox=box, datetime=when, collections=collections, ids=ids, limit=limit)
    with _opened(data_dir) as catalog:
        for name in collections:
            if catalog.collection(name) is None:
                raise CollectionNotFound(_no_collection(catalog, name))
        found = catalog.search(wanted)
        if as_json:
            click.echo(json.dumps({"type": "FeatureCollection", "features": found}, ensure_ascii=False))
        elif found:
            _print_items(found)
            more = f"the first {limit:,}: --limit shows more. " if len(found) == limit else ""
            first = found[0]
            click.echo(f"\n{more}One of them: dagmaster stac show {first['collection']} {first['id']}", err=True)
        else:
            _say_nothing(catalog, asked=wanted != Search(limit=limit))
    return COMPLETED


@stac.command()
@json_option
@data_dir_option
def collections(*, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """List the collections, and how many items each has.

    \b
    Examples:
      dagmaster stac collections
      dagmaster stac collections --json
    """
    with _opened(data_dir) as catalog:
        found, counts = catalog.collections(), catalog.counts()
    if as_json:
        click.echo(json.dumps({"collections": found}, ensure_ascii=False))
        return COMPLETED
    if not found:
        _say_empty()
        return COMPLETED
    rows = []
    for one in found:
        extent = one.get("extent") or {}
        begins, ends = ((extent.get("temporal") or {}).get("interval") or [[None, None]])[0]
        boxes = (extent.get("spatial") or {}).get("bbox") or [[]]
        when = "" if begins is None and ends is None else f"{_day(begins) or '..'}/{_day(ends) or '..'}"
        title = str(one.get("title") or "")
        count = f"{counts.get(one['id'], 0):,}"
        rows.append((str(one["id"]), count, title if title != one["id"] else "", when, _where(boxes[0])))
    _print_table(("collection", "items", "title", "when", "where"), rows, give_way=("title", "where"))
    return COMPLETED


@stac.command()
@click.argument("collection_id", metavar="COLLECTION")
@click.argument("item_id", metavar="ITEM")
@json_option
@data_dir_option
def show(collection_id: str, item_id: str, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show one item: when, where, its properties and its files.

    \b
    Examples:
      dagmaster stac show landsat olinda-1f0c2d3e
      dagmaster stac show landsat olinda-1f0c2d3e --json
    """
    with _opened(data_dir) as catalog:
        item = catalog.item(collection_id, item_id)
        if item is None:
            raise ItemNotFound(_not_there(catalog, collection_id, item_id))
    if as_json:
        click.echo(json.dumps(item, ensure_ascii=False))
        return COMPLETED
    click.echo(click.style(item["id"], bold=True) + f"  of {item['collection']}\n")
    click.echo(f"  when   {_when(item)}\n  where  {_spelled(item.get('bbox'))}")
    for title, rows in (("Properties", item["properties"]), ("Assets", item["assets"])):
        click.echo(f"\n{title}:")
        width = max((len(name) for name in rows), default=0)
        for name, value in rows.items():
            said = value.get("href", "") if title == "Assets" else _short(value)
            click.echo(f"  {name:<{width}}  {said}")
    return COMPLETED


@stac.command()
@data_dir_option
def init(*, data_dir: pathlib.Path | None) -> int:
    """Prepare a server: install or upgrade its pgstac.

    It needs a role that may create roles and extensions; workers need none of that. Nothing else changes the server's
    schema, so a pgstac that others use stays as it is until you say so. A directory needs no preparation.

    \b
    Examples:
      DAGMASTER_CATALOG_URL=postgresql://admin@server/stac dagmaster stac init
    """
    place = _place(data_dir)
    if "://" not in place:
        click.echo(f"the catalog is the directory {place}: it needs no preparation", err=True)
        return COMPLETED
    with _in_words():
        from dagmaster.adapters.catalog.pgstac_catalog import migrate

        version = migrate(place)
    click.echo(f"pgstac {version} is ready")
    return COMPLETED


# ── the catalog ─────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _opened(data_dir: pathlib.Path | None) -> Iterator[Catalog]:
    """Return the catalog that workers with these settings use. Errors become one sentence."""
    with _in_words():
        yield _lent(data_dir).open().catalog


def _place(data_dir: pathlib.Path | None) -> str:
    with _in_words():
        return str(_lent(data_dir).config["catalog"])


def _lent(data_dir: pathlib.Path | None) -> Any:
    from dagmaster.bootstrap import blob_directory, lending
    from dagmaster.settings import load_settings

    settings = load_settings()
    return lending(settings, blob_directory(settings, data_dir))


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except DagmasterError as error:
        raise CommandError(error) from error
    except ModuleNotFoundError as error:
        extra = "pgstac" if (error.name or "").startswith(("psycopg", "pypgstac")) else "stac"
        raise click.ClickException(
            f"the catalog needs {error.name}, which is not installed: pip install 'dagmaster[{extra}]'"
        ) from error


def _not_there(catalog: Catalog, collection_id: str, item_id: str) -> str:
    from dagmaster.authoring.suggestions import did_you_mean
    from dagmaster.ports.catalog import Search

    if catalog.collection(collection_id) is None:
        return _no_collection(catalog, collection_id)
    near = [item["id"] for item in catalog.search(Search(collections=(collection_id,), limit=FEW))]
    hint = did_you_mean(item_id, near)
    said = f"the collection {collection_id!r} has no item {item_id!r}{_ended(hint)}"
    return f"{said} `dagmaster stac search --collection {collection_id}` shows them"


def _no_collection(catalog: Catalog, collection_id: str) -> str:
    from dagmaster.authoring.suggestions import did_you_mean

    hint = did_you_mean(collection_id, [str(one["id"]) for one in catalog.collections()])
    return f"there is no collection {collection_id!r}{_ended(hint)} `dagmaster stac collections` shows what there is"


def _ended(hint: str) -> str:
    """Return a hint as the end of a sentence."""
    return f": {hint}{'' if hint.endswith('?') else '.'}" if hint else "."


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _say_nothing(catalog: Catalog, *, asked: bool) -> None:
    if asked and catalog.counts():
        click.echo("no item fits. `dagmaster stac collections` shows what there is, where and when.", err=True)
    else:
        _say_empty()


def _say_empty() -> None:
    click.echo(
        "the catalog is empty. Workflows fill it with stac.register_item; to try it with a GeoTIFF of yours:\n"
        "  dagmaster handlers test stac.register_item -p cog_url=scene.tif -p collection_id=scenes",
        err=True,
    )


def _print_items(found: list[dict[str, Any]]) -> None:
    rows = [
        (item["id"], str(item["collection"]), _when(item), _where(item.get("bbox") or []), _data(item))
        for item in found
    ]
    _print_table(("item", "collection", "when", "where", "data"), rows, give_way=("data", "collection", "where"))


def _data(item: dict[str, Any]) -> str:
    """Return the name of its file: of a long address, the end tells the most."""
    assets: dict[str, Any] = item.get("assets") or {}
    ordered = sorted(assets.values(), key=lambda asset: "data" not in (asset.get("roles") or ()))
    return str(ordered[0].get("href", "")).rstrip("/").rpartition("/")[2] if ordered else ""


def _print_table(names: Sequence[str], rows: Sequence[tuple[str, ...]], *, give_way: Sequence[str]) -> None:
    """Return the columns that fit: ids are never truncated, so that they can be copied.

    A file or a pipe has room for all.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=ROOM)
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    for name in give_way:
        if sum(max(len(one) for one in (head, *cells)) + 2 for head, cells in columns.items()) > console.width + 2:
            del columns[name]
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for number, name in enumerate(columns):
        side: Any = "right" if name == "items" else "left"
        table.add_column(name, no_wrap=True, justify=side, style="" if number else "bold")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*map(escape, cells))
    console.print(table)


def _when(item: dict[str, Any]) -> str:
    properties = item["properties"]
    if properties.get("start_datetime") and properties.get("end_datetime"):
        return f"{_day(properties['start_datetime'])}/{_day(properties['end_datetime'])}"
    return str(properties.get("datetime") or "")[:16].replace("T", " ")


def _day(moment: str | None) -> str:
    return (moment or "")[:10]


def _where(box: list[float]) -> str:
    """West, south, east, north to a kilometre, as --bbox takes it."""
    half = len(box) // 2
    flat = [*box[:2], *box[half : half + 2]]
    return ",".join(f"{edge:.2f}".rstrip("0").rstrip(".") for edge in flat)


def _short(value: Any) -> str:
    """Return a long list by its first entries: --json has all of it."""
    if isinstance(value, list) and len(value) > SHOWN and not isinstance(value[0], int | float):
        first = ", ".join(_spelled(one) for one in value[:SHOWN])
        return f"[{first}, … and {len(value) - SHOWN:,} more]"
    return _spelled(value)


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

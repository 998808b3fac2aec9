"""`dagmaster stac`: search and show the STAC catalog."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

import click

from dagmaster.errors import CollectionNotFound, ItemNotFound, PermanentError
from dagmaster.sdk.command_line import CommandGroup, data_dir_option, json_option, services_config
from dagmaster.sdk.terminal import echo, echo_json, open_console, style

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Sequence

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.catalog import Catalog

UNLIMITED_WIDTH = 10_000
"""The width of a table that is not printed on a terminal."""
MAX_ENTRIES = 3
"""How many entries of a list are shown."""
MAX_CANDIDATES = 1000
"""How many ids are compared with a wrong one, to suggest the most similar."""


@click.group(cls=CommandGroup)
def stac() -> None:
    """Find data by place and time in the STAC catalog.

    The catalog is DAGMASTER_CATALOG_URL: a directory, or a server with pgstac. The default is a directory
    next to the large outputs.
    """


def _parse_box(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[float, float, float, float] | None:
    """Parse west,south,east,north."""
    if value is None:
        return None
    from dagmaster.geo.rules.bounding_boxes import parse_bbox

    try:
        return parse_bbox([float(edge) for edge in value.split(",")], repr(value))
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a box: write west,south,east,north in degrees, such as 13.0,52.3,13.8,52.7"
        ) from None
    except PermanentError as error:
        raise click.BadParameter(str(error)) from error


def _parse_interval(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Check a point in time, or an interval from/to."""
    if value is None:
        return None
    from dagmaster.geo.rules.datetimes import parse_interval

    try:
        parse_interval(value)
    except PermanentError as error:
        raise click.BadParameter(
            f"{error}. A day is 2026-11-16, a year 2026, an interval 2026-01-01/2026-12-31, `..` is open"
        ) from error
    return value


@stac.command(epilog="Exit codes: 0 done, 2 bad usage or no such collection, 3 the catalog is unavailable.")
@click.option(
    "--bbox",
    "box",
    callback=_parse_box,
    metavar="W,S,E,N",
    help="Only items that intersect this box. West greater than east: across 180°.",
)
@click.option(
    "--datetime",
    "when",
    callback=_parse_interval,
    metavar="TIME",
    help="A year, month, day, time, or from/to; .. is open.",
)
@click.option(
    "--collection",
    "collections",
    multiple=True,
    metavar="ID",
    help="Only items of this collection. Repeatable.",
)
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only the item with this id. Repeatable.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="The maximum number of items.",
)
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
) -> None:
    """Find items by place and time, newest first.

    --json prints a GeoJSON FeatureCollection, which QGIS and geojson.io open.

    \b
    Examples:
      dagmaster stac search --bbox 13.0,52.3,13.8,52.7 --datetime 2026-01-01/..
      dagmaster stac search --collection landsat --limit 5
      dagmaster stac search --bbox 170,-25,-170,-10 --json > fiji.geojson
    """
    from dagmaster.ports.catalog import Search

    query = Search(bbox=box, datetime=when, collections=collections, ids=ids, limit=limit)
    with _open_catalog(data_dir) as catalog:
        for name in collections:
            if catalog.collection(name) is None:
                raise CollectionNotFound(_no_collection(catalog, name))
        items = catalog.search(query)
        if as_json:
            echo_json({"type": "FeatureCollection", "features": items})
        elif items:
            _print_items(items)
            more = f"the first {limit:,}: --limit shows more. " if len(items) == limit else ""
            first = items[0]
            echo(f"\n{more}To show one: dagmaster stac show {first['collection']} {first['id']}", err=True)
        else:
            _print_no_match(catalog, has_filters=query != Search(limit=limit))


@stac.command()
@json_option
@data_dir_option
def collections(*, as_json: bool, data_dir: pathlib.Path | None) -> None:
    """List the collections with the number of their items.

    \b
    Examples:
      dagmaster stac collections
      dagmaster stac collections --json
    """
    with _open_catalog(data_dir) as catalog:
        records, counts = catalog.collections(), catalog.counts()
    if as_json:
        echo_json({"collections": records})
        return
    if not records:
        _print_empty_catalog()
        return
    rows = []
    for record in records:
        extent = record.get("extent") or {}
        start, end = ((extent.get("temporal") or {}).get("interval") or [[None, None]])[0]
        boxes = (extent.get("spatial") or {}).get("bbox") or [[]]
        when = "" if start is None and end is None else f"{_day(start) or '..'}/{_day(end) or '..'}"
        title = str(record.get("title") or "")
        count = f"{counts.get(record['id'], 0):,}"
        rows.append(
            (str(record["id"]), count, title if title != record["id"] else "", when, _format_box(boxes[0]))
        )
    _print_table(("collection", "items", "title", "when", "where"), rows, optional=("title", "where"))


@stac.command()
@click.argument("collection_id", metavar="COLLECTION")
@click.argument("item_id", metavar="ITEM")
@json_option
@data_dir_option
def show(collection_id: str, item_id: str, *, as_json: bool, data_dir: pathlib.Path | None) -> None:
    """Show one item: its time, place, properties and assets.

    \b
    Examples:
      dagmaster stac show landsat olinda-1f0c2d3e
      dagmaster stac show landsat olinda-1f0c2d3e --json
    """
    with _open_catalog(data_dir) as catalog:
        item = catalog.item(collection_id, item_id)
        if item is None:
            raise ItemNotFound(_item_not_found(catalog, collection_id, item_id))
    if as_json:
        echo_json(item)
        return
    echo(style(item["id"], bold=True) + f"  of {item['collection']}\n")
    echo(f"  when   {_format_time(item)}\n  where  {_format_value(item.get('bbox'))}")
    for title, rows in (("Properties", item["properties"]), ("Assets", item["assets"])):
        echo(f"\n{title}:")
        width = max((len(name) for name in rows), default=0)
        for name, value in rows.items():
            text = value.get("href", "") if title == "Assets" else _format_short(value)
            echo(f"  {name:<{width}}  {text}")


@stac.command()
@data_dir_option
def init(*, data_dir: pathlib.Path | None) -> None:
    """Install or upgrade pgstac on the server of the catalog.

    It needs a role that may create roles and extensions; workers do not. No other command changes the
    server's schema, so a pgstac that is shared with other systems is upgraded only by this command. A
    directory needs no preparation.

    \b
    Examples:
      DAGMASTER_CATALOG_URL=postgresql://admin@server/stac dagmaster stac init
    """
    url = _catalog_url(data_dir)
    if "://" not in url:
        echo(f"the catalog is the directory {url}: it needs no preparation", err=True)
        return
    with _catalog_errors():
        from dagmaster.geo.catalog.pgstac_catalog import migrate

        version = migrate(url)
    echo(f"pgstac {version} is ready")


# ── The catalog ─────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _open_catalog(data_dir: pathlib.Path | None) -> Iterator[Catalog]:
    """Open the catalog that workers with these settings use; name the extra that it needs."""
    if os.environ.get("DAGMASTER_URL"):
        echo("the catalog of this machine (DAGMASTER_CATALOG_URL); DAGMASTER_URL is not asked", err=True)
    with _catalog_errors():
        from dagmaster.geo.catalog import open_catalog

        yield open_catalog(_catalog_url(data_dir))


def _catalog_url(data_dir: pathlib.Path | None) -> str:
    return str(services_config(data_dir)["catalog"])


@contextlib.contextmanager
def _catalog_errors() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        extra = "pgstac" if (error.name or "").startswith(("psycopg", "pypgstac")) else "stac"
        raise click.ClickException(
            f"the catalog needs {error.name}, which is not installed: pip install 'dagmaster[{extra}]'"
        ) from error


def _item_not_found(catalog: Catalog, collection_id: str, item_id: str) -> str:
    from dagmaster.errors.suggestions import did_you_mean
    from dagmaster.ports.catalog import Search

    if catalog.collection(collection_id) is None:
        return _no_collection(catalog, collection_id)
    ids = [item["id"] for item in catalog.search(Search(collections=(collection_id,), limit=MAX_CANDIDATES))]
    hint = did_you_mean(item_id, ids)
    sentence = f"the collection {collection_id!r} has no item {item_id!r}{_end_sentence(hint)}"
    return f"{sentence} `dagmaster stac search --collection {collection_id}` lists its items"


def _no_collection(catalog: Catalog, collection_id: str) -> str:
    from dagmaster.errors.suggestions import did_you_mean

    hint = did_you_mean(collection_id, [str(record["id"]) for record in catalog.collections()])
    sentence = f"there is no collection {collection_id!r}{_end_sentence(hint)}"
    return f"{sentence} `dagmaster stac collections` lists the collections"


def _end_sentence(hint: str) -> str:
    if hint.endswith("?"):
        return f": {hint}"
    return f": {hint}." if hint else "."


# ── Output ──────────────────────────────────────────────────────────────────────────────────────────────────


def _print_no_match(catalog: Catalog, *, has_filters: bool) -> None:
    if has_filters and catalog.counts():
        echo(
            "no item matches. `dagmaster stac collections` lists the collections with their extents.",
            err=True,
        )
    else:
        _print_empty_catalog()


def _print_empty_catalog() -> None:
    echo(
        "the catalog is empty. Workflows fill it with stac.register_item; to try it with your own GeoTIFF:\n"
        "  dagmaster handlers test stac.register_item -p cog_url=scene.tif -p collection_id=scenes",
        err=True,
    )


def _print_items(items: list[dict[str, Any]]) -> None:
    rows = [
        (
            item["id"],
            str(item["collection"]),
            _format_time(item),
            _format_box(item.get("bbox") or []),
            _data_file(item),
        )
        for item in items
    ]
    _print_table(
        ("item", "collection", "when", "where", "data"), rows, optional=("data", "collection", "where")
    )


def _data_file(item: dict[str, Any]) -> str:
    assets: dict[str, Any] = item.get("assets") or {}
    ordered = sorted(assets.values(), key=lambda asset: "data" not in (asset.get("roles") or ()))
    return str(ordered[0].get("href", "")).rstrip("/").rpartition("/")[2] if ordered else ""


def _print_table(names: Sequence[str], rows: Sequence[tuple[str, ...]], *, optional: Sequence[str]) -> None:
    """Print a table.

    If it is too wide for the terminal, optional columns are left out: no cell is truncated.
    """
    from rich.table import Table

    console = open_console()
    if not console.is_terminal:
        console = open_console(width=UNLIMITED_WIDTH)
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    for name in optional:
        if (
            sum(max(len(cell) for cell in (head, *cells)) + 2 for head, cells in columns.items())
            > console.width + 2
        ):
            del columns[name]
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for number, name in enumerate(columns):
        table.add_column(
            name, no_wrap=True, justify="right" if name == "items" else "left", style="" if number else "bold"
        )
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    console.print(table)


def _format_time(item: dict[str, Any]) -> str:
    properties = item["properties"]
    if properties.get("start_datetime") and properties.get("end_datetime"):
        return f"{_day(properties['start_datetime'])}/{_day(properties['end_datetime'])}"
    return str(properties.get("datetime") or "")[:16].replace("T", " ")


def _day(timestamp: str | None) -> str:
    return (timestamp or "")[:10]


def _format_box(box: list[float]) -> str:
    half = len(box) // 2
    flat = [*box[:2], *box[half : half + 2]]
    return ",".join(f"{edge:.2f}".rstrip("0").rstrip(".") for edge in flat)


def _format_short(value: JsonValue) -> str:
    """Format a value; of a long list only the first entries: --json prints all."""
    if isinstance(value, list) and len(value) > MAX_ENTRIES and not isinstance(value[0], int | float):
        first = ", ".join(_format_value(entry) for entry in value[:MAX_ENTRIES])
        return f"[{first}, … and {len(value) - MAX_ENTRIES:,} more]"
    return _format_value(value)


def _format_value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

"""Catalogs to try: a directory, and pgstac on a server. And items to put there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from dagmaster.ports.catalog import Catalog


def empty_pgstac(place: str) -> None:
    """Take all collections away, and with them their items. A new database takes 300 ms, this 10 (November 2026)."""
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("SET search_path TO pgstac, public")
        connection.execute("DELETE FROM collections")


def open_catalog(place: str) -> Catalog:
    """As the services of a worker open it."""
    from dagmaster.adapters.handler_services import OpenServices

    return OpenServices({"catalog": place}).catalog


def a_collection(name: str = "scenes", **more: Any) -> dict[str, Any]:
    return {
        "type": "Collection",
        "id": name,
        "stac_version": "1.1.0",
        "description": "Scenes",
        "license": "CC0-1.0",
        "links": [],
        "extent": {"spatial": {"bbox": [[-180, -90, 180, 90]]}, "temporal": {"interval": [[None, None]]}},
        **more,
    }


def an_item(
    name: str = "a",
    *,
    box: tuple[float, float, float, float] = (10.0, 50.0, 11.0, 51.0),
    when: str | None = "2026-01-01T00:00:00Z",
    collection: str = "scenes",
    properties: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    west, south, east, north = box
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {
        "type": "Feature",
        "stac_version": "1.1.0",
        "stac_extensions": [],
        "id": name,
        "collection": collection,
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "bbox": [*box],
        "properties": {"datetime": when, **(properties or {})},
        "links": [],
        "assets": {"data": {"href": f"file:///silver/{name}.tif", "roles": ["data"]}},
        **more,
    }

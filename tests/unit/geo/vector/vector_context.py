"""Services of vector handlers in a test: storage and tables in a folder, a catalog in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dagmaster.adapters.storage.router import ObjectStorage
from dagmaster.geo.tables.parquet_tables import ParquetTables
from dagmaster.ports.catalog import Registered
from dagmaster.ports.handler_services import Share
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import discover

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dagmaster.ports.handler_reports import Checkpoint
    from dagmaster.ports.tables import Tables

REGISTRY = discover(["dagmaster.geo.vector.handlers"], entry_points=False)


class MemoryCatalog:
    """The part of a catalog that vector handlers use."""

    def __init__(self) -> None:
        self.collections: dict[str, dict[str, Any]] = {}
        self.registered: dict[tuple[str, str], dict[str, Any]] = {}

    def ensure_collection(self, collection: dict[str, Any]) -> bool:
        is_new = collection["id"] not in self.collections
        self.collections.setdefault(collection["id"], collection)
        return is_new

    def register(self, items: Sequence[dict[str, Any]]) -> Registered:
        for item in items:
            assert item["collection"] in self.collections
            self.registered[item["collection"], item["id"]] = item
        return Registered(created=len(items))

    def item(self, collection_id: str, item_id: str) -> dict[str, Any] | None:
        return self.registered.get((collection_id, item_id))

    def remove(self, collection_id: str, item_ids: Sequence[str]) -> int:
        return sum(self.registered.pop((collection_id, item_id), None) is not None for item_id in item_ids)


class FolderServices:
    """Services in one folder. Handlers may read its files."""

    def __init__(self, folder: Path, tables: Tables | None = None) -> None:
        self.folder = folder
        zones = {zone: (folder / zone).as_uri() for zone in ("bronze", "silver", "gold")}
        self.blobs = ObjectStorage(zones, roots=[folder])
        self.catalog: Any = MemoryCatalog()
        self.tables: Tables = tables or ParquetTables(folder / "tables")
        self.pool: Any = None
        self.share = Share(scratch=folder / "scratch")

    def run(
        self, handler: str, checkpoint: Checkpoint | None = None, reporter: Any = None, **params: Any
    ) -> Any:
        """Call a handler as a worker does; return its output as JSON."""
        spec = REGISTRY.get(handler)
        ctx = HandlerContext(
            params=params,
            services=self,
            handler=spec.name,
            handler_version=spec.version,
            workflow="vector_etl v1",
            last_checkpoint=checkpoint,
            reporter=reporter,
        )
        try:
            return json.loads(spec.call(ctx).model_dump_json(by_alias=True))
        finally:
            ctx.close()
            assert not [path for path in (self.folder / "scratch").rglob("*") if path.is_file()]

    def put(self, name: str, text: str | bytes | dict[str, Any]) -> str:
        """Write a file; return its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(text) if isinstance(text, dict) else text
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

"""The manifest of the file catalog: which parts are current, and how they change atomically.

    parts.json           the manifest of current parts; renaming it is the commit
    collections/*.json   STAC collections
    items/*.parquet      the items as stac-geoparquet, for other readers
    index/*.parquet      the same rows in the same order: search columns and each item's exact JSON

A part never changes. Writers are serialised by a file lock, so commits need no clock; the kernel releases the
lock of a dead writer. Files that the manifest does not name are left-overs of a dead writer, removed by the
next one. Readers take no lock: a part that disappears while they read means that there is a newer manifest.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import CatalogUnavailable
from dagmaster.geo.rules.stac_items import collection_file_name
from dagmaster.host.atomic_files import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

FORMAT: Final = 1
MANIFEST: Final = "parts.json"
"""Not catalog.json, which STAC reserves for a catalog document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows that were written together. `size` is the size of their JSON."""

    name: str
    rows: int
    size: int


class Manifest:
    """The directory of a catalog, and the manifest in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.items, self.index, self.collections = root / "items", root / "index", root / "collections"

    def current(self) -> tuple[Part, ...]:
        """Return the parts that make up the catalog now."""
        try:
            document = json.loads((self.root / MANIFEST).read_bytes())
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            raise CatalogUnavailable(f"the catalog in {self.root} cannot be read: {error}") from error
        if document.get("format") != FORMAT:
            raise CatalogUnavailable(
                f"the catalog in {self.root} has the format {document.get('format')!r}, and this version of"
                f" dagmaster reads {FORMAT}"
            )
        return tuple(Part(**part) for part in document["parts"])

    @contextlib.contextmanager
    def lock_for_writing(self) -> Iterator[tuple[Part, ...]]:
        """Lock the catalog for writing and yield the current parts, after removing left-overs."""
        with self._translate_errors():
            for folder in (self.items, self.index, self.collections):
                folder.mkdir(parents=True, exist_ok=True)
            with (self.root / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                parts = self.current()
                self._remove_leftovers(parts)
                yield parts

    def new_name(self, parts: Sequence[Part]) -> str:
        """Return a unique part name. Names sort by age."""
        newest = max((part.name for part in parts), default="0")
        return f"{int(newest.partition('-')[0]) + 1:09d}-{secrets.token_hex(4)}.parquet"

    def write(self, path: Path, fill: Callable[[str], None]) -> None:
        """Fill a temporary file, sync it, and rename it."""
        temp_path = path.with_name(f".{path.name}.new")
        try:
            fill(str(temp_path))
            with temp_path.open("rb") as file:
                os.fsync(file.fileno())
            temp_path.replace(path)
        except OSError:
            # The disk may be full: free the space.
            temp_path.unlink(missing_ok=True)
            raise

    def commit(self, parts: Sequence[Part], replaced: Sequence[Part] = ()) -> None:
        """Commit these parts atomically, and remove the replaced ones."""
        for folder in (self.items, self.index):
            sync_folder(folder)
        text = json.dumps({"format": FORMAT, "parts": [asdict(part) for part in parts]}, indent=1)
        self.write(self.root / MANIFEST, lambda path: _write_text(path, text))
        sync_folder(self.root)
        for part in replaced:
            for folder in (self.items, self.index):
                (folder / part.name).unlink(missing_ok=True)

    def collection_path(self, collection_id: str) -> Path:
        return self.collections / collection_file_name(collection_id)

    def write_collection(self, collection: dict[str, Any], text: str) -> None:
        self.write(self.collection_path(collection["id"]), lambda path: _write_text(path, text))
        sync_folder(self.collections)

    def _remove_leftovers(self, parts: Sequence[Part]) -> None:
        named = {part.name for part in parts}
        for folder in (self.items, self.index):
            for file in folder.iterdir():
                if file.name not in named:
                    file.unlink(missing_ok=True)
        for folder in (self.root, self.collections):
            for file in folder.glob(".*.new"):
                file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CatalogUnavailable(
                f"the catalog in {self.root} cannot be written: {error.strerror or error}"
            ) from error


def _write_text(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - a path as text, as for pyarrow
        file.write(text)

"""The four storages that one suite runs on, and how to look behind them."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pytest

from dagmaster.adapters.storage.router import ObjectStorage
from tests.conformance.object_servers import azurite, make_bucket, make_container, moto, why_no_azurite

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKENDS = ("local", "memory", "s3", "az")
_NUMBERS = itertools.count(1)


@dataclass
class Place:
    """A storage with zones of its own. `url` is bronze's."""

    storage: ObjectStorage
    url: str
    env: dict[str, str] = field(default_factory=dict)

    def again(self) -> ObjectStorage:
        """Another process's view of the same zones. Memory is one process's, so there it is the same."""
        return self.storage if self.url.startswith("memory") else zones_at(self.url)

    def everything(self) -> list[str]:
        """All names that are truly there, below the zones, also those that no list shows."""
        home = self.storage.in_zone("bronze")
        if home.scheme == "file":
            return sorted(str(path) for path in Path(f"/{home.name}").parent.rglob("*") if path.is_file())
        stores: Any = self.storage._backend(home)
        return sorted(
            meta["path"]
            for batch in obstore.list(stores._store(home), home.name.removesuffix("bronze"))
            for meta in batch
        )


def zones_at(url: str) -> ObjectStorage:
    """Return a storage whose zones lie side by side."""
    beside = url.removesuffix("/bronze")
    return ObjectStorage({zone: f"{beside}/{zone}" for zone in ("bronze", "silver", "gold")})


@contextlib.contextmanager
def served(backend: str) -> Iterator[dict[str, str]]:
    """Provide the environment of a backend, with its server if it has one and the container `box-of-tests`."""
    if backend == "s3":
        with moto() as server:
            make_bucket(server, "box-of-tests")
            yield server.env
    elif backend == "az":
        if reason := why_no_azurite():
            pytest.skip(reason)
        with azurite() as server:
            make_container(server, "box-of-tests")
            yield server.env
    else:
        yield {}


def place_of(backend: str, folder: Path, env: dict[str, str]) -> Place:
    """Create new, empty zones."""
    number = next(_NUMBERS)
    urls = {"local": f"file://{folder}/bronze", "memory": f"memory://box-of-tests/{number}/bronze"}
    url = urls.get(backend, f"{backend}://box-of-tests/{number}/bronze")
    return Place(zones_at(url), url, env)

"""Blobs by container and path, as handlers of the source systems use them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from dagmaster.errors import BlobNameInvalid, BlobNotFound
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.testing import local_services

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.sdk.blob_repository import BlobRepository


@pytest.fixture(params=["file", "memory"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> BlobRepository:
    """Provide the repository of a context whose zones are folders, or in memory."""
    memory = {"zones": {zone: f"memory://{zone}/data" for zone in ("bronze", "silver", "gold")}}
    services = local_services(tmp_path, **(memory if request.param == "memory" else {}))
    return HandlerContext(services=services).blob_repository


def test_a_blob_is_written_read_described_and_deleted(repository: BlobRepository):
    written = repository.write_blob("silver", "tiles/a.bin", b"one")
    assert (written["name"], written["size"]) == ("tiles/a.bin", 3)
    assert repository.read_blob("silver", "tiles/a.bin") == b"one"
    properties = repository.get_blob_properties("silver", "tiles/a.bin")
    assert (properties["etag"], properties["uri"]) == (written["etag"], written["uri"])
    assert properties["last_modified"].endswith("Z")
    assert repository.blob_exists("silver", "tiles/a.bin")
    assert not repository.blob_exists("bronze", "tiles/a.bin")
    assert repository.delete_blob("silver", "tiles/a.bin")
    assert not repository.delete_blob("silver", "tiles/a.bin")
    with pytest.raises(BlobNotFound, match=r"tiles/a\.bin"):
        repository.get_blob_properties("silver", "tiles/a.bin")
    with pytest.raises(BlobNotFound):
        repository.read_blob("silver", "tiles/a.bin")


def test_a_write_replaces_unless_overwrite_is_off(repository: BlobRepository):
    repository.write_blob("silver", "a", io.BytesIO(b"one"))
    repository.write_blob("silver", "a", b"two")
    with pytest.raises(FileExistsError, match="silver"):
        repository.write_blob("silver", "a", b"three", overwrite=False)
    assert repository.read_blob("silver", "a") == b"two"


def test_a_list_has_the_blobs_of_a_prefix_by_path(repository: BlobRepository):
    for path in ("tiles/b", "tiles/a", "tiles-old/a", "tiles/sub/c", "other"):
        repository.write_blob("bronze", path, b"x")

    def paths(prefix: str = "", limit: int | None = None) -> list[str]:
        return [properties["name"] for properties in repository.list_blobs("bronze", prefix, limit)]

    assert paths() == ["other", "tiles-old/a", "tiles/a", "tiles/b", "tiles/sub/c"]
    assert paths("tiles/") == ["tiles/a", "tiles/b", "tiles/sub/c"]
    assert paths("tiles") == ["tiles-old/a", "tiles/a", "tiles/b", "tiles/sub/c"]
    assert paths("tiles/", limit=1) == ["tiles/a"]
    assert paths("none") == paths("none/") == []


def test_files_are_streamed_to_a_mount_and_back(repository: BlobRepository, tmp_path: Path):
    repository.write_blob("bronze", "in.bin", b"content")
    mounted = tmp_path / "mount" / "in.bin"
    copied = repository.stream_blob_to_mount("bronze", "in.bin", str(mounted))
    assert (copied["success"], copied["bytes_transferred"], mounted.read_bytes()) == (True, 7, b"content")
    stored = repository.stream_mount_to_blob("silver", "out.bin", str(mounted))
    assert stored["destination_uri"].endswith("out.bin")
    mounted.write_bytes(b"changed")
    repository.stream_mount_to_blob("silver", "out.bin", str(mounted), overwrite_existing=False)
    assert repository.read_blob("silver", "out.bin") == b"content"
    repository.stream_mount_to_blob("silver", "out.bin", str(mounted))
    assert repository.read_blob("silver", "out.bin") == b"changed"


def test_a_path_that_leaves_its_container_is_rejected(repository: BlobRepository):
    for path in ("../secret", "/etc/passwd"):
        with pytest.raises(BlobNameInvalid):
            repository.read_blob("bronze", path)

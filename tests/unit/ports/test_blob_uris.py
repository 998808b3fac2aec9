"""Names of blobs: what a user may write, and that nothing of it leads elsewhere."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dagmaster.adapters.storage.router import ObjectStorage
from dagmaster.bootstrap.services_config import handler_services_config
from dagmaster.errors import BlobNameInvalid, SettingsInvalid
from dagmaster.ports.blob_uris import SCHEMES, BlobUri, check_name
from dagmaster.settings import load_settings

WORDS = st.sampled_from(
    ["a", "..", ".", "", "b c", "%2e%2e", "%00", "~", "C:", "vsicurl", "link", "inside", "\x00", "\\", "ü"]
)
PATHS = st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=6).map("/".join))
TEXTS = st.one_of(PATHS, st.builds("{}://{}".format, st.sampled_from([*SCHEMES, "http", "vsis3"]), PATHS))


@given(TEXTS)
def test_a_uri_that_can_be_read_is_written_as_it_was(text):
    try:
        uri = BlobUri.parse(text)
    except BlobNameInvalid:
        return
    assert str(uri) == text
    assert not {"..", ".", ""} & set(uri.name.split("/"))


@pytest.mark.parametrize(
    ("uri", "root", "is_below"),
    [
        ("s3://box/a/b", "s3://box/a", True),
        ("s3://box/a", "s3://box/a", True),
        ("s3://box/ab", "s3://box/a", False),
        ("s3://other/a/b", "s3://box/a", False),
        ("az://box/a/b", "s3://box/a", False),
    ],
)
def test_a_blob_is_below_its_folder_and_not_below_a_prefix_of_its_name(uri, root, is_below):
    assert BlobUri.parse(uri).is_below(BlobUri.parse(root)) is is_below
    assert BlobUri.parse(uri).is_below(BlobUri("s3", "box", "")) is uri.startswith("s3://box/")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../x", r"'..' part"),
        ("a/../../x", r"'..' part"),
        ("a//b", "empty"),
        ("/etc/passwd", "absolute"),
        ("C:/x", "absolute"),
        ("c:x", "absolute"),
        ("a\\b", "backslash"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        ("a\x85b", "control character"),
        ("vsicurl/http:x", "GDAL"),
        ("VSIZIP/x.zip", "GDAL"),
        ("", "1 to 1,024 bytes, not 0"),
        ("ü" * 513, "1 to 1,024 bytes, not 1,026"),
        ("a\ud800", "lone surrogate"),
        (".publishing-0/x", "unfinished files"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused_with_its_reason(name, message):
    with pytest.raises(BlobNameInvalid, match=message) as error:
        check_name(name)
    assert error.value.kind == "invalid_input"


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIAKEY:hunter2secret@bucket/x.tif",
        "https://account.blob.core.windows.net/c/x.tif?sv=2020&sig=hunter2secret",
        "az://c/x.tif?sig=hunter2secret",
        "s3://bucket/x.tif?X-Amz-Credential=a&X-Amz-Signature=hunter2secret",
        "https://user:hunter2secret@host/x.tif",
    ],
)
def test_keys_in_a_place_of_data_are_refused_and_not_repeated(text):
    with pytest.raises(BlobNameInvalid) as error:
        BlobUri.parse(text)
    assert "hunter2secret" not in str(error.value)
    assert "x.tif" in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://host/x.tif", "has to begin with one of file://, az://, s3://, gs://, memory://"),
        ("/vsicurl/http://host/x.tif", "has to begin with one of"),
        ("file://host/x.tif", "three slashes"),
        ("s3:///x.tif", "a container or bucket is missing"),
        ("s3://bucket", "1 to 1,024 bytes"),
        ("s3://bu cket/x", "letters, digits"),
    ],
)
def test_an_invalid_uri_is_rejected_with_the_reason(text, message):
    with pytest.raises(BlobNameInvalid, match=message):
        BlobUri.parse(text)


@pytest.fixture(scope="module")
def world():
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        for name in ("zones/bronze/inside", "root/inside", "secret"):
            (base / name).mkdir(parents=True)
            (base / name / "a").write_text(name)
        (base / "zones/bronze/link").symlink_to(base / "secret")
        (base / "root/link").symlink_to(base / "secret")
        (base / "zones/bronze/good").symlink_to(base / "root" / "inside")
        yield base


@given(
    text=TEXTS, container=st.one_of(st.none(), PATHS, st.sampled_from(["bronze", "silver", "inside", "link"]))
)
@example(text="link/a", container=None)
@example(text="a", container="link")
@example(text="../secret/a", container=None)
def test_nothing_that_resolves_leaves_its_zone_or_roots(world, text, container):
    zones = {zone: f"file://{world}/zones/{zone}" for zone in ("bronze", "silver", "gold")}
    storage = ObjectStorage(zones, roots=[world / "root"])
    try:
        uri = storage.resolve(text, container=container)
    except BlobNameInvalid:
        return
    if uri.scheme == "file":
        real = os.path.realpath(f"/{uri.name}")
        assert real.startswith((f"{os.path.realpath(world)}/zones/", f"{os.path.realpath(world)}/root/"))
    else:
        assert text.startswith(f"{uri.scheme}://")


def test_a_link_that_stays_inside_is_followed_and_one_that_leaves_is_not(world):
    zones = {zone: f"file://{world}/zones/{zone}" for zone in ("bronze", "silver", "gold")}
    storage = ObjectStorage(zones, roots=[world / "root"])
    assert storage.read(storage.resolve("good/a")) == b"root/inside"
    assert storage.read(storage.resolve(f"{world}/root/inside/a")) == b"root/inside"
    for text in (
        "link/a",
        f"{world}/root/link/a",
        f"file://{world}/zones/bronze/link/a",
        f"{world}/secret/a",
    ):
        with pytest.raises(BlobNameInvalid, match="outside the allowed directories"):
            storage.resolve(text)
    sneaked = storage.in_zone("bronze", "link/a")
    for touch in (storage.read, storage.find, storage.delete, storage.local_path, storage.gdal_path):
        with pytest.raises(BlobNameInvalid, match="outside the allowed directories"):
            touch(sneaked)
    with pytest.raises(BlobNameInvalid, match="in a read-only directory"):
        storage.write(storage.resolve(f"{world}/root/inside/a"), b"changed")
    listed = [
        info.uri.name.rpartition("/bronze/")[2] for info in storage.list_blobs(storage.in_zone("bronze"))
    ]
    assert listed == ["inside/a"]


def test_a_container_is_used_only_if_a_zone_or_the_operator_names_it():
    zones = {zone: f"s3://ours/{zone}" for zone in ("bronze", "silver", "gold")}
    storage = ObjectStorage(zones, containers=["s3://theirs", "az://box"], closed=["s3://ours/outputs"])
    for text in ("s3://ours/anything", "s3://theirs/a", "az://box/a", "a", "s3://ours/outputs-of-others/a"):
        assert storage.resolve(text).name
    assert str(storage.resolve("a", container="theirs")) == "s3://theirs/a"
    for text in ("s3://others/a", "az://ours/a", "gs://theirs/a", "memory://ours/a"):
        with pytest.raises(BlobNameInvalid, match="DAGMASTER_STORAGE_CONTAINERS does not name it"):
            storage.resolve(text)
        with pytest.raises(BlobNameInvalid, match="may not be used here"):
            storage.gdal_path(BlobUri.parse(text))
    with pytest.raises(BlobNameInvalid, match="s3://others may not be used here"):
        storage.resolve("a", container="others")
    for text in ("s3://ours/outputs/a", "s3://ours/outputs"):
        with pytest.raises(BlobNameInvalid, match="outputs of jobs"):
            storage.resolve(text)


def test_what_the_operator_names_reaches_the_handlers(monkeypatch, tmp_path):
    monkeypatch.setenv("DAGMASTER_STORAGE_CONTAINERS", "s3://public, az://partner/")
    monkeypatch.setenv("DAGMASTER_OUTPUTS_URL", "s3://public/outputs")
    blobs = handler_services_config(load_settings(), tmp_path).open().blobs
    assert str(blobs.resolve("az://partner/a")) == "az://partner/a"
    for text in ("s3://public/outputs/a", "s3://private/a"):
        with pytest.raises(BlobNameInvalid, match="may not be used here"):
            blobs.resolve(text)


@pytest.mark.parametrize("wrong", ["s3://bucket/folder", "bucket", "file:///data", "https://x", "s3://a,b"])
def test_containers_are_named_as_containers(monkeypatch, wrong):
    monkeypatch.setenv("DAGMASTER_STORAGE_CONTAINERS", wrong)
    with pytest.raises(SettingsInvalid, match="containers without a path"):
        load_settings()

"""How object stores are reached, and what is told when they are not: a sentence of its own, and never a key."""

from __future__ import annotations

import http.server
import socketserver
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from dagmaster.adapters.storage.config import gdal_path, redact_secrets
from dagmaster.adapters.storage.router import ObjectStorage
from dagmaster.errors import BlobsUnavailable
from dagmaster.ports.blob_uris import BlobUri
from dagmaster.ports.storage import IN_PLACE

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "wJalrXUtnFEMI-K7MDENG-hunter2secret"
NAMES = ("AWS_", "AZURE_", "GOOGLE_")


@pytest.fixture(autouse=True)
def no_keys_of_this_machine(monkeypatch):
    import os

    for name in [name for name in os.environ if name.startswith(NAMES)]:
        monkeypatch.delenv(name)


@contextmanager
def a_server(status: int, body: str) -> Iterator[tuple[int, list[str]]]:
    """Serve every request alike, or with status 0 close the connection; count the requests."""
    came: list[str] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def handle(self) -> None:
            if status == 0:
                came.append("")
                return
            super().handle()

        def answer(self) -> None:
            came.append(f"{self.command} {self.path}")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body.encode())

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - names of http.server

        def log_message(self, *_said: object) -> None:
            pass

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1], came
        finally:
            server.shutdown()


def s3_at(port: int, monkeypatch) -> tuple[ObjectStorage, BlobUri]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    return ObjectStorage({"bronze": "s3://bucket"}), BlobUri.parse("s3://bucket/x.tif")


def every_way(storage: ObjectStorage, uri: BlobUri, folder) -> list[str]:
    target = folder / "made"
    target.write_bytes(bytes(10))
    collected = []
    for do in (
        lambda: storage.find(uri),
        lambda: storage.read(uri),
        lambda: storage.fetch(uri, folder / "got"),
        lambda: list(storage.list_blobs(uri)),
        lambda: storage.write(uri, b"1"),
        lambda: storage.publish(target, uri),
        lambda: storage.delete(uri),
    ):
        with pytest.raises(BlobsUnavailable) as error:
            do()
        collected.append(str(error.value))
    assert not (folder / "got").exists()
    return collected


def test_wrong_keys_have_their_own_sentence_that_does_not_show_them(tmp_path, monkeypatch):
    body = f"<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIAEXAMPLE</AWSAccessKeyId><StringToSign>{KEY}</StringToSign></Error>"
    with a_server(403, body) as (port, _):
        for target in every_way(*s3_at(port, monkeypatch), tmp_path):
            assert "the storage rejected the credentials, which are read from AWS_ACCESS_KEY_ID and" in target
            assert "AKIAEXAMPLE" not in target
            assert KEY not in target


@pytest.mark.slow
def test_a_storage_that_fails_is_asked_a_few_times_and_told_about_without_keys(tmp_path, monkeypatch):
    with a_server(
        503, f"<Error><Code>SlowDown</Code><AWSAccessKeyId>AKIAEXAMPLE</AWSAccessKeyId>{KEY}</Error>"
    ) as (
        port,
        came,
    ):
        storage, uri = s3_at(port, monkeypatch)
        with pytest.raises(BlobsUnavailable, match="unexpected response from the storage") as error:
            storage.read(uri)
    assert 2 <= len(came) <= 4
    assert "SlowDown" in str(error.value)
    assert "AKIAEXAMPLE" not in str(error.value)
    assert KEY not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_storage_that_hangs_up_is_asked_a_few_times(monkeypatch):
    with a_server(0, "") as (port, came):
        storage, uri = s3_at(port, monkeypatch)
        with pytest.raises(
            BlobsUnavailable,
            match=r"s3://bucket/x\.tif cannot be read: there is no connection to the storage at 127",
        ):
            storage.find(uri)
    assert 2 <= len(came) <= 8


def test_a_key_that_is_no_key_is_reported_without_it(monkeypatch):
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING",
        "AccountName=me;AccountKey=!hunter2secret!;EndpointSuffix=core.windows.net",
    )
    storage = ObjectStorage({"bronze": "az://box"})
    with pytest.raises(BlobsUnavailable, match="az://box cannot be opened") as error:
        storage.find(BlobUri.parse("az://box/x"))
    assert "hunter2secret" not in str(error.value)


@pytest.mark.parametrize(
    "message",
    [
        f"GET https://me.blob.core.windows.net/c/x?sv=2020&se=1&sig={KEY} failed",
        f"AccountName=me;AccountKey={KEY};x",
        f"http://user:{KEY}@host/x",
        f"Authorization: SharedKey me:{KEY}",
        f"GET http://h/x?X-Amz-Credential=A&X-Amz-Signature={KEY}",
    ],
)
def test_what_looks_like_a_key_is_not_told(message):
    assert KEY not in redact_secrets(message)


def test_gdal_gets_the_options_of_s3_under_its_own_names(monkeypatch):
    uri = BlobUri.parse("s3://bucket/a/b.tif")
    assert gdal_path(uri).options == {IN_PLACE: "YES", "AWS_VIRTUAL_HOSTING": "FALSE"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://minio.example:9000/")
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert gdal_path(uri).path == "/vsis3/bucket/a/b.tif"
    assert gdal_path(uri).options == {
        IN_PLACE: "YES",
        "AWS_VIRTUAL_HOSTING": "TRUE",
        "AWS_S3_ENDPOINT": "minio.example:9000",
        "AWS_HTTPS": "YES",
        "AWS_NO_SIGN_REQUEST": "YES",
    }


def test_gdal_gets_the_options_of_azure_and_google_under_its_own_names(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "me")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    options = gdal_path(BlobUri.parse("az://box/x.tif")).options
    assert options == {IN_PLACE: "YES", "AZURE_STORAGE_ACCOUNT": "me", "AZURE_STORAGE_ACCESS_KEY": KEY}
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:1/me")
    text = gdal_path(BlobUri.parse("az://box/x.tif")).options["AZURE_STORAGE_CONNECTION_STRING"]
    assert (
        text
        == f"DefaultEndpointsProtocol=http;AccountName=me;AccountKey={KEY};BlobEndpoint=http://127.0.0.1:1/me"
    )
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "/keys.json")
    path = gdal_path(BlobUri.parse("gs://bucket/x.tif"))
    assert (path.path, path.options) == (
        "/vsigs/bucket/x.tif",
        {IN_PLACE: "YES", "GOOGLE_APPLICATION_CREDENTIALS": "/keys.json"},
    )

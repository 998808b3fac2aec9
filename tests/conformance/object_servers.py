"""Object stores on this machine: moto is S3, Azurite is Azure. Each process of a test run has its own, when it asks."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import http.client
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
AZURITE_VERSION: Final = "3.37.0"
AZURITE: Final = ROOT / ".azurite"
# What every Azurite is born with.
ACCOUNT: Final = "devstoreaccount1"
KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


# On a condition moto looks and then writes, and it has threads: of twins both find nothing. S3 does both in one, and so
# does a moto that takes one request at a time.
_ONE_AT_A_TIME: Final = """
import threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

app, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

def one_at_a_time(environ, start_response):
    with lock:
        return list(app(environ, start_response))

server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
print(f"listens on http://127.0.0.1:{server.port}", flush=True)
server.serve_forever()
"""


@dataclass(frozen=True)
class ObjectServer:
    """A server, and the environment by which it is reached."""

    port: int
    env: dict[str, str]


@contextlib.contextmanager
def moto() -> Iterator[ObjectServer]:
    """S3. Buckets are made with `make_bucket`."""
    with _running([sys.executable, "-c", _ONE_AT_A_TIME]) as port:
        yield ObjectServer(
            port,
            {
                "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
                "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY",
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_EC2_METADATA_DISABLED": "true",
            },
        )


def make_bucket(server: ObjectServer, name: str) -> None:
    """Provide a bucket in moto, which accepts any credentials."""
    _ask(
        server.port,
        "PUT",
        f"/{name}",
        {"Authorization": "AWS4-HMAC-SHA256 Credential=x/20200101/us-east-1/s3/aws4_request"},
    )


@contextlib.contextmanager
def azurite() -> Iterator[ObjectServer]:
    """Azure. Containers are made with `make_container`."""
    program = installed_azurite()
    options = ("--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence", "--silent")
    node = shutil.which("node") or "node"
    with _running([node, str(program), "--blobHost", "127.0.0.1", "--blobPort", "0", *options]) as port:
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        message = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};"
        )
        yield ObjectServer(port, {"AZURE_STORAGE_CONNECTION_STRING": message})


def make_container(server: ObjectServer, name: str) -> None:
    """Provide a container in Azurite, with its key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06", "Content-Length": "0"}
    signed = "\n".join(
        [
            "PUT",
            *[""] * 11,
            f"x-ms-date:{headers['x-ms-date']}",
            f"x-ms-version:{headers['x-ms-version']}",
            f"/{ACCOUNT}/{ACCOUNT}/{name}",
            "restype:container",
        ]
    )
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    _ask(server.port, "PUT", f"/{ACCOUNT}/{name}?restype=container", headers)


def why_no_azurite() -> str:
    """Why there is no Azure here; empty if there is."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "Azurite comes from npm: install Node.js to test Azure"
    try:
        installed_azurite()
    except (subprocess.SubprocessError, OSError) as error:
        return f"Azurite {AZURITE_VERSION} cannot be installed with npm: {error}"
    return ""


def installed_azurite() -> Path:
    """Where Azurite's blob service is; installed once for all processes and runs."""
    program = AZURITE / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    stamp = AZURITE / f"installed-{AZURITE_VERSION}"
    AZURITE.mkdir(exist_ok=True)
    with (AZURITE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            options = ("--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts", "--omit=optional")
            command = ["npm", "install", "--prefix", str(AZURITE), *options, f"azurite@{AZURITE_VERSION}"]
            subprocess.run(command, check=True, capture_output=True, timeout=240)
            stamp.touch()
    return program


def main() -> None:
    """Install Azurite before the tests, which skip those of Azure if there is none."""
    if reason := why_no_azurite():
        sys.stderr.write(f"{reason}\n")


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[int]:
    """Run a server that chooses its port, and says where it listens once it serves; provide the port."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_calm(), cwd="/"
    ) as process:
        assert process.stdout is not None
        try:
            address = next((line for line in process.stdout if "listens on" in line), None)
            if address is None:
                raise RuntimeError(f"{command[1:3]} ended with {process.wait()} before it served")
            yield int(address.rpartition(":")[2])
        finally:
            process.kill()


def _calm() -> dict[str, str]:
    """Return the environment without the settings of tests."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "AZURE_", "PYTEST_"))
    }


def _ask(port: int, method: str, path: str, headers: dict[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.read()[:500]!r}")
    finally:
        connection.close()


if __name__ == "__main__":
    main()

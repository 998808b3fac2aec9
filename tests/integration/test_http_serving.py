"""How the server serves: next to an orchestrator, with TLS, behind a proxy, several on one database, and its stop."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr
from starlette.responses import JSONResponse

from dagmaster.adapters.output_blobs_local import LocalBlobs
from dagmaster.bootstrap import make_orchestrator
from dagmaster.bootstrap.http_server import ServerService
from dagmaster.bootstrap.service_group import ServiceGroup
from dagmaster.cli.http_address import check_tls_files
from dagmaster.client.async_client import AsyncClient
from dagmaster.http.app import create_app
from dagmaster.http.server import HttpServer
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.settings import load_settings
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import memory_application
from tests.unit.http.api_client import memory_services

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.requests import Request

ADMIN_KEY = "an-admin-key-of-the-settings-0123456789"
FLOW = "{workflow_id: rest, version: 1, nodes: {a: {type: wait, seconds: 0.01}}}"


def settings() -> Any:
    return load_settings().model_copy(update={"admin_key": SecretStr(ADMIN_KEY)})


@contextlib.asynccontextmanager
async def running(
    service: Any, listener: socket.socket, scheme: str = "http", **options: Any
) -> AsyncIterator[Any]:
    """Run a service, and provide a client of it."""
    run = service.run_until_stopped if isinstance(service, HttpServer) else service.run
    task = asyncio.create_task(run())
    url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    ready = asyncio.create_task(service.ready.wait())
    await asyncio.wait([task, ready], timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    assert ready.done(), task
    try:
        async with httpx.AsyncClient(
            base_url=url, headers={"X-API-Key": ADMIN_KEY}, timeout=PATIENCE_SECONDS, **options
        ) as http:
            yield http
    finally:
        service.stop()
        await asyncio.wait_for(task, PATIENCE_SECONDS)


def a_listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


# ── On a database ──


def test_an_orchestrator_that_serves_runs_the_jobs_that_are_submitted_to_it(dsn, tmp_path):
    async def main() -> None:
        config, listener = DatabaseConfig(dsn=dsn), a_listener()
        server = ServerService(config, settings(), tmp_path, listener)
        orchestrator = make_orchestrator(config, LocalBlobs(tmp_path), settings())
        group = ServiceGroup([orchestrator, server])
        async with running(group, listener) as http:
            assert (await http.get("/readyz")).json()["is_ready"]
            assert (await http.post("/api/v1/workflows", json={"text": FLOW})).status_code == 201
            job = (await http.post("/api/v1/jobs", json={"workflow_id": "rest"})).json()["job_id"]
            url = str(http.base_url)
            async with AsyncClient(url, ADMIN_KEY) as client:
                assert (await client.wait(job, timeout_seconds=60)).status == "COMPLETED"
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/livez")  # noqa: ASYNC210 - nothing else runs any more

    asyncio.run(main())


def test_several_servers_on_one_database_are_one_service(dsn, tmp_path):
    async def main() -> None:
        config, listeners = DatabaseConfig(dsn=dsn), [a_listener() for _ in range(3)]
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    running(ServerService(config, settings(), tmp_path, listener), listener)
                )
                for listener in listeners
            ]
            first, second, third = clients
            assert (await first.post("/api/v1/workflows", json={"text": FLOW})).status_code == 201
            created = await second.post("/api/v1/keys", json={"name": "ci", "scopes": ["submit", "read"]})
            headers = {"X-API-Key": created.json()["key"], "Idempotency-Key": "once"}
            submits = [
                http.post("/api/v1/jobs", json={"workflow_id": "rest"}, headers=headers)
                for http in clients * 8
            ]
            answers = await asyncio.gather(*submits)
            assert {answer.status_code for answer in answers} == {202}
            (job_id,) = {answer.json()["job_id"] for answer in answers}
            assert sum(answer.json()["is_new"] for answer in answers) == 1
            for http in clients:
                assert [job["job_id"] for job in (await http.get("/api/v1/jobs")).json()["items"]] == [job_id]
            # A page of one server continues at another.
            await first.post("/api/v1/jobs", json={"workflow_id": "rest"})
            page = (await second.get("/api/v1/jobs?limit=1")).json()
            rest = (await third.get("/api/v1/jobs", params={"cursor": page["next_cursor"]})).json()
            assert [job["job_id"] for job in rest["items"]] == [job_id]

    asyncio.run(main())


# ── Sockets ──


@contextlib.asynccontextmanager
async def serving(
    endpoint: Any, scheme: str = "http", *, verify: Any = True, **options: Any
) -> AsyncIterator[Any]:
    """Serve one endpoint with the server of the API; provide the server and a client."""
    listener = a_listener()
    app = create_app(memory_services(memory_application()))
    app.add_route("/", endpoint)
    server = HttpServer(app, listener, **options)
    async with running(server, listener, scheme, verify=verify) as http:
        yield server, http


async def show_peer(request: Request) -> JSONResponse:
    assert request.client is not None
    return JSONResponse({"scheme": request.url.scheme, "client": request.client.host})


FORWARDED = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}


@pytest.mark.parametrize(
    ("proxies", "expected"),
    [
        (None, {"scheme": "http", "client": "127.0.0.1"}),
        ("192.0.2.1", {"scheme": "http", "client": "127.0.0.1"}),
        ("127.0.0.1", {"scheme": "https", "client": "203.0.113.9"}),
    ],
)
def test_the_headers_of_a_proxy_are_believed_only_if_it_is_trusted(proxies, expected, monkeypatch):
    # The variable of uvicorn does not make a proxy trusted.
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")

    async def main() -> None:
        async with serving(show_peer, trusted_proxies=proxies) as (_, http):
            assert (await http.get("/", headers=FORWARDED)).json() == expected

    asyncio.run(main())


def test_a_request_that_runs_when_the_server_stops_is_answered(monkeypatch):
    async def main() -> None:
        started, stopping, finish = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def wait(_request: Request) -> JSONResponse:
            started.set()
            await finish.wait()
            return JSONResponse({"done": True})

        async with serving(wait) as (server, http):
            shut_down = server.shutdown

            async def note_shutdown(sockets: Any = None) -> None:
                stopping.set()
                await shut_down(sockets)

            monkeypatch.setattr(server, "shutdown", note_shutdown)
            answer = asyncio.create_task(http.get("/"))
            await started.wait()
            server.stop()
            await asyncio.wait_for(stopping.wait(), PATIENCE_SECONDS)
            assert not answer.done()
            finish.set()
            assert (await answer).json() == {"done": True}

    asyncio.run(main())


def test_the_api_is_served_with_tls(tmp_path):
    certificate, key_file = a_certificate(tmp_path)
    check_tls_files(certificate, key_file)

    async def main() -> None:
        trust = ssl.create_default_context(cafile=certificate)
        async with serving(show_peer, "https", verify=trust, certificate=certificate, key_file=key_file) as (
            _,
            http,
        ):
            assert (await http.get("/")).json() == {"scheme": "https", "client": "127.0.0.1"}
            with pytest.raises(httpx.HTTPError):
                await http.get(str(http.base_url).replace("https", "http"))

    asyncio.run(main())


def a_certificate(folder: Path) -> tuple[str, str]:
    """Write a certificate for 127.0.0.1 that is its own authority, and its key; return the files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    encoding, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "cert.pem").write_bytes(certificate.public_bytes(encoding))
    (folder / "key.pem").write_bytes(key.private_bytes(encoding, pkcs8, plain))
    return str(folder / "cert.pem"), str(folder / "key.pem")

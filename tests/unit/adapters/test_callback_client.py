"""A callback is sent to the address that was checked, once; what is refused never reaches a listener."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dagmaster.adapters.callback_client import MAX_SHOWN, CallbackClient
from dagmaster.adapters.pinned_connections import PinnedConnections
from dagmaster.errors import CallbackUrlInvalid
from tests.patience import PATIENCE_SECONDS
from tests.unit.ports.test_callback_urls import REFUSED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from dagmaster.ports.callbacks import Delivery

pytestmark = pytest.mark.process
OK = b"HTTP/1.1 204 No Content\r\n\r\n"


class Listener:
    """A server that answers every request with the same bytes, and counts connections."""

    def __init__(self, answer: bytes, *, hangs: bool = False) -> None:
        self.answer, self.hangs = answer, hangs
        self.connections = 0
        self.requests: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
            )
            self.requests.append(head + await reader.readexactly(length))
            writer.write(self.answer)
            await writer.drain()
            if self.hangs:
                await reader.read()
        writer.close()


@contextlib.asynccontextmanager
async def listening(
    answer: bytes = OK, *, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[Listener]:
    listener = Listener(answer, **options)
    server = await asyncio.start_server(listener.serve, ["127.0.0.1"], ssl=tls)
    listener.port = server.sockets[0].getsockname()[1]
    async with server:
        yield listener


def sent(
    url: str, *, answer: bytes = OK, client: CallbackClient | None = None, **options: Any
) -> tuple[Delivery, Listener]:
    """Send to a listener; {port} is its port."""

    async def main() -> tuple[Delivery, Listener]:
        async with listening(answer, **options) as listener, asyncio.timeout(PATIENCE_SECONDS):
            sender = client or CallbackClient(PinnedConnections(allows_loopback=True))
            delivery = await sender.send(url.format(port=listener.port), {"webhook-id": "msg_1"}, b"{}")
            return delivery, listener

    return asyncio.run(main())


def test_a_callback_is_one_request_with_its_headers_and_body():
    delivery, listener = sent("http://localhost:{port}/a/b?c=d")
    assert delivery.status == 204
    head, _, body = listener.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /a/b?c=d HTTP/1.1"
    assert {f"host: localhost:{listener.port}", "webhook-id: msg_1", "connection: close"} <= set(lines)
    assert body == b"{}"


def test_no_address_of_the_list_reaches_a_listener(monkeypatch):
    """Neither by its text, nor behind a public name, nor where a name changes between two questions."""
    leads = [
        *(
            "127.0.0.1",
            "::1",
            "10.1.2.3",
            "192.168.0.1",
            "172.31.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
        ),
        *(
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::7f00:1",
            "2002:7f00:1::",
            "fd00:ec2::254",
            "fe80::1%lo",
        ),
        *(
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "::",
            "2001::1",
            "168.63.129.16",
        ),
    ]
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")

    async def main() -> None:
        async with listening() as listener:

            async def resolve(host: str, port: int) -> Sequence[str]:
                return next(lists)

            opened = []
            monkeypatch.setattr(asyncio, "open_connection", lambda *given, **_: opened.append(given))
            client = CallbackClient(PinnedConnections(resolve=resolve))
            for lead in leads:
                for answers in ([lead], ["93.184.215.14", lead], [lead, "93.184.215.14"]):
                    lists = iter([answers])
                    delivery = await client.send(f"https://rebinding.example.com:{listener.port}/", {}, b"{}")
                    assert delivery.status is None
                    assert "not public" in (delivery.error or ""), (lead, delivery)
            for url in REFUSED:
                with pytest.raises(CallbackUrlInvalid):
                    await client.send(url, {}, b"{}")
            assert (opened, listener.connections) == ([], 0)

    asyncio.run(main())


def test_a_name_is_resolved_once_and_the_connection_is_to_that_address(tmp_path):
    """A second answer, which would lead elsewhere, is never asked for; the certificate is that of the name."""
    server, authority = certificates(tmp_path, "receiver.example.com")
    asked = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"]

    connections = PinnedConnections(allows_loopback=True, resolve=resolve, tls=authority)
    delivery, listener = sent(
        "https://receiver.example.com:{port}/x", client=CallbackClient(connections), tls=server
    )
    assert (delivery.status, asked) == (204, ["receiver.example.com"])
    assert f"host: receiver.example.com:{listener.port}".encode() in listener.requests[0]


def test_the_certificate_of_another_name_is_refused_before_anything_is_sent(tmp_path):
    server, authority = certificates(tmp_path, "other.example.com")

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    connections = PinnedConnections(allows_loopback=True, resolve=resolve, tls=authority)
    delivery, listener = sent(
        "https://receiver.example.com:{port}/x", client=CallbackClient(connections), tls=server
    )
    assert delivery.status is None
    assert "certificate" in (delivery.error or "")
    assert listener.requests == []


def test_a_redirect_is_a_failure_and_is_not_followed():
    async def main() -> None:
        async with listening() as inner:
            location = f"http://127.0.0.1:{inner.port}/secret".encode()
            answer = b"HTTP/1.1 307 Moved\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
            async with listening(answer) as outer:
                client = CallbackClient(PinnedConnections(allows_loopback=True))
                delivery = await client.send(f"http://127.0.0.1:{outer.port}/", {}, b"{}")
            assert delivery.status == 307
            assert "redirects are not followed" in (delivery.error or "")
            assert inner.connections == 0

    asyncio.run(main())


def test_an_answer_is_read_to_a_limit_and_shown_in_one_short_printable_line():
    body = "no\r\n\x1b[31m\u202e way " + "x" * 1_000_000
    raw = body.encode()
    answer = b"HTTP/1.1 500 Oops\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw
    delivery, _ = sent("http://127.0.0.1:{port}/", answer=answer)
    error = delivery.error or ""
    assert error.startswith("answered 500: no [31m way xxx")
    assert error.isprintable()
    assert len(error) <= MAX_SHOWN + 20


@pytest.mark.parametrize(
    ("headers", "body", "shown"),
    [
        ("", "no such hook", "answered 500: no such hook"),
        ("Content-Type: application/json\r\n", '{"error": "no"}', 'answered 500: {"error": "no"}'),
        ("Content-Type: text/plain; charset=utf-8\r\n", "no <script>x</script>", "answered 500: no"),
        ("Content-Type: text/html\r\n", "<h1>Oops</h1>", "answered 500"),
        ("Content-Type: Text/HTML; charset=utf-8\r\n", "no markup", "answered 500"),
        ("", "<!doctype html><p>Oops", "answered 500"),
    ],
)
def test_an_error_shows_plain_text_and_no_page(headers, body, shown):
    answer = f"HTTP/1.1 500 Oops\r\n{headers}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    delivery, _ = sent("http://127.0.0.1:{port}/", answer=answer)
    assert delivery.error == shown


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x01\x02",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
    ],
)
def test_an_answer_that_is_not_http_is_a_failure(answer):
    delivery, _ = sent("http://127.0.0.1:{port}/", answer=answer)
    assert delivery.status is None


def test_an_endpoint_that_never_ends_its_answer_is_left():
    client = CallbackClient(PinnedConnections(allows_loopback=True), total_seconds=0.3)
    delivery, _ = sent(
        "http://127.0.0.1:{port}/",
        answer=b"HTTP/1.1 500 Oops\r\nContent-Length: 9\r\n\r\n",
        client=client,
        hangs=True,
    )
    assert delivery.error == "no answer within 0.3 s"


def test_an_endpoint_where_nobody_listens_is_a_failure():
    async def main() -> Delivery:
        async with listening() as listener:
            port = listener.port
        return await CallbackClient(PinnedConnections(allows_loopback=True)).send(
            f"http://127.0.0.1:{port}/", {}, b"{}"
        )

    assert (asyncio.run(main()).error or "").startswith("cannot be reached")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("x", None),
        ("-5", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("9" * 400, None),
    ],
)
def test_an_endpoint_says_when_to_come_again(value, seconds):
    answer = f"HTTP/1.1 503 Busy\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n".encode()
    delivery, _ = sent("http://127.0.0.1:{port}/", answer=answer)
    assert delivery.retry_after_seconds == seconds


def certificates(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server's context with a certificate of a name, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName(
        [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("10.0.0.1"))]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + certificate.public_bytes(pem))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cafile=str(file))

"""An OpenID Connect issuer on loopback, with keys that a test rotates and a switch that breaks it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

if TYPE_CHECKING:
    from collections.abc import Iterator

AUDIENCE = "dagmaster"
DISCOVERY = "/.well-known/openid-configuration"


@cache
def rsa_key(number: int = 0, bits: int = 2048) -> Any:
    """Return a private key; the same number is the same key, because making one takes a tenth of a second."""
    return rsa.generate_private_key(65_537, bits)


@cache
def ec_key() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> Any:
    return ed25519.Ed25519PrivateKey.generate()


def public_jwk(private: Any, key_id: str | None, **more: str) -> dict[str, Any]:
    algorithm = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    encoder: Any = next((value for kind, value in algorithm.items() if isinstance(private, kind)), OKPAlgorithm)
    document: dict[str, Any] = json.loads(encoder.to_jwk(private.public_key()))
    return document | ({} if key_id is None else {"kid": key_id}) | more


class LocalIssuer:
    """Serves a discovery document and keys. `requests` has the path of every request."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.keys: list[Any] = [public_jwk(rsa_key(), "first", use="sig", alg="RS256")]
        self.discovery: dict[str, Any] = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        self.is_down = False
        self.requests: list[str] = []

    def answer(self, path: str) -> tuple[int, bytes]:
        self.requests.append(path)
        if self.is_down:
            return 503, b"down"
        document = {DISCOVERY: self.discovery, "/keys": {"keys": self.keys}}.get(path)
        return (404, b"") if document is None else (200, json.dumps(document).encode())

    def token(
        self, *, key: Any = None, algorithm: str = "RS256", headers: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """Return a token; a claim that is None is left out."""
        now = time.time()
        payload = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "user-1",
            "iat": int(now),
            "exp": int(now) + 600,
            "scope": "read",
        } | claims
        return jwt.encode(
            {name: value for name, value in payload.items() if value is not None},
            rsa_key() if key is None else key,
            algorithm,
            headers={"kid": "first"} if headers is None else headers,
        )


@contextlib.contextmanager
def served_issuer() -> Iterator[LocalIssuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = issuer.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base class
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = LocalIssuer(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()

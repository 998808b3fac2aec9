"""An OpenID Connect issuer on loopback: keys that a test rotates, logins of a user who agrees, a switch that breaks it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

if TYPE_CHECKING:
    from collections.abc import Iterator

AUDIENCE = "dagmaster"
CLIENT_ID = "dagmaster-page"
CLIENT_SECRET = "s3cret:of+the client"
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
    encoder: Any = next(
        (value for kind, value in algorithm.items() if isinstance(private, kind)), OKPAlgorithm
    )
    document: dict[str, Any] = json.loads(encoder.to_jwk(private.public_key()))
    return document | ({} if key_id is None else {"kid": key_id}) | more


class LocalIssuer:
    """Serves a discovery document, keys and logins. `requests` has the path of every request.

    `id_claims`, `access_claims`: of the tokens of a login. An access token whose claims are None is a text that only
    the issuer understands.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.url = f"http://{host}:{port}"
        self.keys: list[Any] = [public_jwk(rsa_key(), "first", use="sig", alg="RS256")]
        self.discovery: dict[str, Any] = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize?tenant=1",
            "token_endpoint": f"{self.url}/token",
            "end_session_endpoint": f"{self.url}/logout",
        }
        self.is_down = False
        self.requests: list[str] = []
        self.client_secret: str | None = CLIENT_SECRET
        self.codes: dict[str, dict[str, str]] = {}
        self.id_claims: dict[str, Any] = {}
        self.access_claims: dict[str, Any] | None = {}

    def answer(self, path: str) -> tuple[int, bytes]:
        self.requests.append(path)
        if self.is_down:
            return 503, b"down"
        document = {DISCOVERY: self.discovery, "/keys": {"keys": self.keys}}.get(path)
        return (404, b"") if document is None else (200, json.dumps(document).encode())

    def authorize(self, address: str, **more: str) -> str:
        """Return where a browser goes that was sent here with an address: its user logs in and agrees."""
        asked = dict(parse_qsl(urlsplit(address).query))
        assert asked["tenant"] == "1", "the query of the endpoint is kept"
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        assert (asked["client_id"], asked["scope"]) == (CLIENT_ID, "openid profile")
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state'], **more})}"

    def exchange(self, fields: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Return the tokens for a code, which is valid once and for the verifier of its challenge."""
        self.requests.append("/token")
        if self.is_down:
            return 503, {}
        if self._client_of(fields, authorization) != (CLIENT_ID, self.client_secret):
            return 401, {"error": "invalid_client"}
        asked = self.codes.pop(fields["code"], None)
        digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or (challenge, fields["redirect_uri"]) != (
            asked["code_challenge"],
            asked["redirect_uri"],
        ):
            return 400, {"error": "invalid_grant"}
        id_token = self.token(**{"aud": CLIENT_ID, "nonce": asked["nonce"], "scope": None} | self.id_claims)
        access_token = "opaque" if self.access_claims is None else self.token(**self.access_claims)
        return 200, {"id_token": id_token, "access_token": access_token, "token_type": "Bearer"}

    def _client_of(self, fields: dict[str, str], authorization: str) -> tuple[str | None, str | None]:
        if not authorization:
            return fields.get("client_id"), fields.get("client_secret")
        client_id, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        return unquote_plus(client_id), unquote_plus(secret)

    def token(
        self,
        *,
        key: Any = None,
        algorithm: str = "RS256",
        headers: dict[str, Any] | None = None,
        **claims: Any,
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
def served_issuer(host: str = "127.0.0.1") -> Iterator[LocalIssuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/authorize"):
                self.reply(302, b"", Location=issuer.authorize(self.path))
            elif self.path.startswith("/logout"):
                self.reply(
                    302, b"", Location=dict(parse_qsl(urlsplit(self.path).query))["post_logout_redirect_uri"]
                )
            else:
                self.reply(*issuer.answer(self.path))

        def do_POST(self) -> None:
            fields = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            status, document = issuer.exchange(fields, self.headers.get("Authorization", ""))
            self.reply(status, json.dumps(document).encode())

        def reply(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base class
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = LocalIssuer(server.server_port, host)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()

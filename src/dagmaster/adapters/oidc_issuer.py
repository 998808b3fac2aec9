"""Requests to an OpenID Connect issuer: its discovery document, and others that the document leads to."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx

from dagmaster.errors import IssuerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_DOCUMENT_BYTES: Final = 512 * 1024
FETCH_SECONDS: Final = 5.0
DISCOVERY_SECONDS: Final = 600.0
"""How long a discovery document is used."""
RETRY_SECONDS: Final = 5.0
"""The shortest time between two fetches of a discovery document: everyone can start a login."""


class IssuerClient:
    """Reads documents of one issuer. Every method raises `IssuerUnavailable` if that fails."""

    def __init__(
        self,
        url: str,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url
        self._monotonic = monotonic
        self._http = httpx.AsyncClient(timeout=FETCH_SECONDS, follow_redirects=False, transport=transport)
        self._discovery: dict[str, Any] = {}
        self._discovered_at = self._tried_at = float("-inf")
        self._discovering = asyncio.Lock()

    async def close(self) -> None:
        await self._http.aclose()

    async def discovery(self) -> Mapping[str, Any]:
        """Return the discovery document, at most `DISCOVERY_SECONDS` old."""
        async with self._discovering:
            now = self._monotonic()
            if now - self._discovered_at > DISCOVERY_SECONDS:
                if now - self._tried_at < RETRY_SECONDS:
                    raise IssuerUnavailable(f"the issuer {self.url} could not be reached a moment ago")
                self._tried_at = now
                await self.fetch_discovery()
            return self._discovery

    async def fetch_discovery(self) -> Mapping[str, Any]:
        document = await self.get(f"{self.url.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != self.url:
            raise IssuerUnavailable(f"the discovery document of {self.url} is that of another issuer")
        self._discovery, self._discovered_at = document, self._monotonic()
        return document

    async def get(self, address: str) -> dict[str, Any]:
        status, document = await self._request("GET", address)
        if status != httpx.codes.OK:
            raise IssuerUnavailable(f"{address} of the issuer answers with status {status}")
        return document

    async def post(
        self, address: str, fields: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """Send a form; return the JSON object and its status: 200, or that of a refusal."""
        return await self._request("POST", address, data=dict(fields), headers=headers)

    async def _request(
        self,
        method: str,
        address: str,
        *,
        data: dict[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        all_headers = {"Accept": "application/json", **(headers or {})}
        try:
            async with (
                asyncio.timeout(FETCH_SECONDS),
                self._http.stream(method, address, data=data, headers=all_headers) as response,
            ):
                if response.is_server_error or response.is_redirect:
                    raise IssuerUnavailable(
                        f"{address} of the issuer answers with status {response.status_code}"
                    )
                content = bytearray()
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > MAX_DOCUMENT_BYTES:
                        raise IssuerUnavailable(f"{address} has more than {MAX_DOCUMENT_BYTES:,} bytes")
            document = json.loads(content)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, RecursionError) as error:
            raise IssuerUnavailable(
                f"{address} of the issuer cannot be read ({type(error).__name__})"
            ) from error
        if not isinstance(document, dict):
            raise IssuerUnavailable(f"{address} is not a JSON object")
        return response.status_code, document


def secure_address(document: Mapping[str, Any], name: str) -> str:
    address = document.get(name)
    if not isinstance(address, str) or not _is_secure(address):
        raise IssuerUnavailable(
            f"the discovery document of {document['issuer']} has no https address as {name}"
        )
    return address


def _is_secure(address: str) -> bool:
    """Return whether an address is https or of this machine: other keys could be replaced on their way."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return False
    is_local = host in ("127.0.0.1", "::1", "localhost")
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_local))

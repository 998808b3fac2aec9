"""One server: sends requests with the key, repeats those that may be repeated, and raises our errors."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import httpx

from dagmaster.application.time_points import parse_time
from dagmaster.client.problems import error_of_response
from dagmaster.client.retries import Retries, may_retry
from dagmaster.errors import QueryInvalid, ServerAnswerInvalid, ServerUnavailable, SettingsInvalid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from dagmaster.client.methods import Request

API: Final = "/api/v1"
TIME_HEADER: Final = "x-server-time"
DEFAULT_TIMEOUT_SECONDS: Final = 30.0
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class Answer:
    """The JSON of an answer, and when the server made it."""

    document: Any
    at: float


class Connection:
    """Requests to one server. The key is sent with each of them, and appears nowhere else."""

    def __init__(
        self,
        url: str | None,
        key: str | None,
        *,
        retries: Retries | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = check_url(url or os.environ.get("DAGMASTER_URL", ""))
        self._retries = retries or Retries()
        self._timeout_seconds = timeout_seconds
        key = key or os.environ.get("DAGMASTER_KEY")
        if key is not None and not (key.isascii() and key.isprintable()):
            raise SettingsInvalid(
                "the key has characters that no key has: is it complete, and nothing but the key?"
            )
        headers = {"User-Agent": f"dagmaster/{version('dagmaster')}"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self.http = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=timeout_seconds,
            transport=transport,
            # A proxy of the environment cannot reach this machine's loopback address.
            trust_env=not _is_loopback(self.url),
        )

    def __repr__(self) -> str:
        """Return the address, without the key."""
        return f"{type(self).__name__}({self.url!r})"

    async def close(self) -> None:
        """Close all connections."""
        await self.http.aclose()

    async def send(self, request: Request) -> Answer:
        """Send a request until it is answered or may not be sent again; raise the error of the answer."""
        address = path_of(*request.path)
        query = {name: value for name, value in request.params.items() if value is not None}
        # A long request connects as fast as any.
        timeout = httpx.Timeout(self._timeout_seconds, read=request.timeout_seconds or self._timeout_seconds)
        attempt = 0
        while True:
            attempt += 1
            is_last = attempt >= self._retries.attempts
            response = None
            try:
                response = await self.http.request(
                    request.method,
                    address,
                    params=query,
                    json=request.body,
                    content=request.content,
                    headers=request.headers,
                    timeout=timeout,
                )
            except httpx.TransportError as error:
                if is_last or not (request.is_repeatable or isinstance(error, _NOT_SENT)):
                    raise self.unavailable(error) from error
            if response is not None:
                if response.is_success:
                    return _answer(response)
                if is_last or not may_retry(response, is_repeatable=request.is_repeatable):
                    raise error_of_response(response)
            await asyncio.sleep(self._retries.pause_after(attempt, response))

    async def check_health(self) -> Answer:
        """Return the health of the server.

        One that is not healthy says so in the same form, with status 503.
        """
        try:
            response = await self.http.get("/health")
        except httpx.TransportError as error:
            raise self.unavailable(error) from error
        if not response.is_success and response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            raise error_of_response(response)
        return _answer(response)

    @contextlib.asynccontextmanager
    async def stream(
        self,
        path: tuple[str, ...],
        *,
        params: Mapping[str, Any],
        headers: Mapping[str, str],
        silent_seconds: float,
    ) -> AsyncIterator[httpx.Response]:
        """Open an answer that is read as it comes. `silent_seconds`: how long nothing may come."""
        query = {name: value for name, value in params.items() if value is not None}
        timeout = httpx.Timeout(self._timeout_seconds, read=silent_seconds)
        async with self.http.stream(
            "GET", path_of(*path), params=query, headers=dict(headers), timeout=timeout
        ) as response:
            yield response

    def unavailable(self, error: httpx.TransportError) -> ServerUnavailable:
        """Return the error for a request without an answer."""
        if isinstance(error, httpx.TimeoutException) and not isinstance(error, _NOT_SENT):
            return ServerUnavailable(f"the server at {self.url} did not answer in time")
        return ServerUnavailable(
            f"cannot reach the server at {self.url}: {_reason(error)}. Is it running, and is this its"
            " address? `dagmaster dev` and `dagmaster server` print it"
        )


def path_of(*parts: str) -> str:
    """Return the path of a route, with each part quoted."""
    for part in parts:
        if part in ("", ".", "..") or "/" in part:
            raise QueryInvalid(f"there is nothing with the id {part[:100]!r}")
    return "/".join([API, *(quote(part, safe="") for part in parts)])


def check_url(url: str) -> str:
    """Return the address of a server without a slash at its end; raise `SettingsInvalid` if it is not one."""
    if not url:
        raise SettingsInvalid(
            "there is no address of a server: set DAGMASTER_URL, such as http://127.0.0.1:8420"
        )
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        # The address is not repeated: it may contain the key.
        raise SettingsInvalid(
            "the address of a server has no user or password: the key goes into DAGMASTER_KEY"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SettingsInvalid(f"{url[:100]!r} is not the address of a server: write it as https://host:port")
    return url.rstrip("/").removesuffix(API)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _answer(response: httpx.Response) -> Answer:
    try:
        document = response.json()
    except ValueError as error:
        address = response.request.url.copy_with(query=None)
        raise ServerAnswerInvalid(
            f"the answer of {address} is not JSON: is it a dagmaster server?"
        ) from error
    now = time.time()
    made_at = response.headers.get(TIME_HEADER)
    return Answer(document, now if made_at is None else parse_time(made_at, now))


def _reason(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return "it does not accept the connection in time"
    causes: list[BaseException] = [error]
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not valid ({cause.verify_message})"
        if isinstance(cause, ssl.SSLError):
            return "it does not answer with TLS, so its address may begin with http://"
        if isinstance(cause, socket.gaierror):
            return "no host has this name"
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno).lower()
        # Several addresses were tried: their errors are a group.
        inner = cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
        causes += [reason for reason in (*inner, cause.__cause__, cause.__context__) if reason is not None]
    return "it does not answer as a server does"

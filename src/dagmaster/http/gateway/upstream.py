"""The server behind a gateway, to which changes are forwarded with the credential of their caller."""

from __future__ import annotations

from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx

from dagmaster.errors.requests import ServerAnswerInvalid, ServerUnavailable
from dagmaster.json_types import read_json
from dagmaster.telemetry.prometheus import ProcessMetrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SUBMIT: Final = "/api/v1/submit"
SUBMIT_BATCH: Final = "/api/v1/submit/batch"
STATUS: Final = "/api/v1/requests/{request_id}/status"
ANSWER_SECONDS: Final = 30.0


def make_client(transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """Return the client of a gateway: it follows no redirects, and keeps no cookies between callers."""
    return httpx.AsyncClient(
        # Neither the proxies nor the certificates of the environment.
        trust_env=False,
        follow_redirects=False,
        timeout=ANSWER_SECONDS,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        transport=transport or httpx.AsyncHTTPTransport(retries=1, trust_env=False),
    )


class Forwarded(NamedTuple):
    """An answer of the server."""

    status: int
    document: Any
    retry_after: str | None


class Upstream:
    """Sends requests to a server. It has no credential."""

    def __init__(
        self, base_url: str, client: httpx.AsyncClient, metrics: ProcessMetrics | None = None
    ) -> None:
        self._base_url = base_url
        self._client = client
        self._metrics = metrics or ProcessMetrics()

    async def submit(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Forwarded:
        """Forward a submit; raise `ServerUnavailable` if it is not known what became of it."""
        return await self._send("POST", SUBMIT, headers, body)

    async def submit_batch(
        self, bodies: Sequence[Mapping[str, Any]], headers: Mapping[str, str]
    ) -> Forwarded:
        """Forward several submits; raise `ServerUnavailable` if it is not known what became of them."""
        return await self._send("POST", SUBMIT_BATCH, headers, {"requests": bodies})

    async def status(self, request_id: str, headers: Mapping[str, str]) -> Forwarded:
        """Return the status of a request as the server answers it, with a result that is stored apart."""
        return await self._send("GET", STATUS.format(request_id=request_id), headers)

    async def is_alive(self) -> bool:
        """Return whether the server answers."""
        try:
            response = await self._client.get(f"{self._base_url}/livez")
        except httpx.HTTPError:
            return False
        return response.status_code == httpx.codes.OK

    async def _send(self, method: str, path: str, headers: Mapping[str, str], body: Any = None) -> Forwarded:
        try:
            response = await self._client.request(
                method, f"{self._base_url}{path}", json=body, headers=dict(headers), timeout=ANSWER_SECONDS
            )
        except httpx.HTTPError as error:
            self._count_failure("no_answer")
            raise ServerUnavailable(f"the server did not answer: {type(error).__name__}") from error
        try:
            document = read_json(response.text)
        except ValueError as error:
            self._count_failure("no_json")
            raise ServerAnswerInvalid(f"the server answered {response.status_code} without JSON") from error
        if response.is_server_error:
            self._count_failure(str(response.status_code))
        return Forwarded(response.status_code, document, response.headers.get("Retry-After"))

    def _count_failure(self, reason: str) -> None:
        self._metrics.count("dagmaster_gateway_forward_failures_total", reason)

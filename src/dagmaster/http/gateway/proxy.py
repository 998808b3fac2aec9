"""The proxy for administrators: requests to a fixed list of targets, with few headers, in bounded time."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Annotated, Final
from urllib.parse import quote

import httpx
from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dagmaster.http.gateway.answers import answer_admin, passed_on
from dagmaster.http.gateway.closed_problems import problem
from dagmaster.http.gateway.routes import GatewayRoutes, ProxyRoute, credential_text
from dagmaster.http.gateway.services import TARGETS, GatewayServices, InstallationAdmin, Services
from dagmaster.ports.api_keys import Scope
from dagmaster.records.gateway import ProxyHealthResponse, TargetHealth

routes = GatewayRoutes("proxy", ProxyRoute)
PROXY_SECONDS: Final = 30.0
"""How long a target may take for its whole answer."""
HEALTH_SECONDS: Final = 5.0
METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
SENT_HEADERS: Final = (
    *("accept", "content-type", "idempotency-key", "if-match", "if-none-match", "last-event-id"),
    *("traceparent", "x-correlation-id"),
)
"""The headers of a request that a target gets, besides the credential and the id of the request."""
RETURNED_HEADERS: Final = (
    *("allow", "cache-control", "content-disposition", "content-type", "deprecation", "etag"),
    *("last-modified", "link", "ratelimit", "retry-after"),
)
_CORRELATION_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_UNSAFE: Final = re.compile(r"[\x00-\x20\x7f\\]")
_SAFE: Final = "/:@!$&'()*+,;=-._~"


@routes.get("/proxy/health", Scope.ADMIN, ProxyHealthResponse, name="get_proxy_health")
async def proxy_health(request: Request, services: Services, _caller: InstallationAdmin) -> Response:
    """Show whether each target answers."""
    names = [name for name in TARGETS if name in services.targets]
    answers = await asyncio.gather(*(_ping(services, name) for name in names))
    is_healthy = all(target.is_reachable for target in answers)
    view = ProxyHealthResponse(status="healthy" if is_healthy else "unhealthy", targets=tuple(answers))
    return answer_admin(request, view)


for method in METHODS:

    @routes.add(
        [method],
        "/proxy/{target}/{path:path}",
        Scope.ADMIN,
        None,
        name=f"proxy_{method.lower()}",
        fails=(400, 404, 502, 504),
    )
    async def proxy(
        request: Request,
        services: Services,
        _caller: InstallationAdmin,
        target: Annotated[str, Path(max_length=32)],
        path: Annotated[str, Path(max_length=2_000)],
    ) -> Response:
        """Forward a request to a target with the caller's own credential; return its answer.

        Targets: `orchestrator` (ORCHESTRATOR_URL) and `worker` (WORKER_URL). Redirects are not followed. A
        target has 30 s.
        """
        base_url = services.targets.get(target)
        if base_url is None:
            return problem("target_not_found")
        url = target_url(base_url, path, request.url.query)
        if url is None:
            return problem("path_rejected")
        return await _forward(request, services, url)


def target_url(base_url: str, path: str, query: str) -> httpx.URL | None:
    """Return the address of a path of a target; None if the path does not stay below it."""
    if _UNSAFE.search(path) or any(part in {".", ".."} for part in path.split("/")):
        return None
    base = httpx.URL(base_url)
    url = httpx.URL(f"{base_url}/{quote(path, safe=_SAFE)}", query=query.encode("ascii", "ignore") or None)
    same = (url.scheme, url.host, url.port, url.userinfo) == (base.scheme, base.host, base.port, b"")
    return url if same and url.path.startswith(f"{base.path.rstrip('/')}/") else None


async def _forward(request: Request, services: GatewayServices, url: httpx.URL) -> Response:
    body = await request.body()
    deadline = asyncio.get_running_loop().time() + PROXY_SECONDS
    async with AsyncExitStack() as stack:
        sent = services.client.build_request(
            request.method, url, headers=_sent_headers(request), content=body or None
        )
        try:
            async with asyncio.timeout_at(deadline):
                response = await services.client.send(sent, stream=True)
        except (TimeoutError, httpx.TimeoutException):
            return problem("target_timed_out")
        except httpx.HTTPError:
            return problem("target_unreachable")
        stack.push_async_callback(response.aclose)
        if response.has_redirect_location:
            return problem("target_redirects")
        # The answer is read, and closed, while it is sent.
        close = stack.pop_all()
        headers = {name: response.headers[name] for name in RETURNED_HEADERS if name in response.headers}
        content = _read(response, deadline, close)
        return passed_on(request, StreamingResponse(content, response.status_code, headers))


async def _read(response: httpx.Response, deadline: float, stack: AsyncExitStack) -> AsyncIterator[bytes]:
    """Yield the body of a target's answer; raise `TimeoutError` if it takes too long."""
    async with stack:
        chunks = response.aiter_bytes()
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            yield chunk


def _sent_headers(request: Request) -> Mapping[str, str]:
    headers = {name: request.headers[name] for name in SENT_HEADERS if name in request.headers}
    if not _CORRELATION_ID.fullmatch(headers.get("x-correlation-id", "-")):
        del headers["x-correlation-id"]
    return {
        **headers,
        "authorization": f"Bearer {credential_text(request)}",
        "x-request-id": request.state.request_id,
        # The answer is passed on as it is.
        "accept-encoding": "identity",
    }


async def _ping(services: GatewayServices, name: str) -> TargetHealth:
    started, status = time.monotonic(), None
    try:
        response = await services.client.get(f"{services.targets[name]}/livez", timeout=HEALTH_SECONDS)
        status = response.status_code
    except httpx.HTTPError:
        pass
    duration_ms = round((time.monotonic() - started) * 1_000, 1)
    return TargetHealth(
        target=name, is_reachable=status is not None, status_code=status, duration_ms=duration_ms
    )

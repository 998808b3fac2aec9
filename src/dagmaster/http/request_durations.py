"""How long the requests of a server or of a gateway take, by route and status."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from dagmaster.telemetry.prometheus import ProcessMetrics

    Message = MutableMapping[str, Any]


class RequestDurations:
    """Measures each request of a route. The label is the route, not the path: a path has ids in it."""

    def __init__(self, app: Callable[..., Awaitable[None]], metrics: ProcessMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), "500"

        async def send_measured(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, send_measured)
        finally:
            # A request that no route matches has none: paths of scanners would be labels without end.
            route = getattr(scope.get("route"), "path", "none")
            labels = (scope["method"] if route != "none" else "any", route, status)
            seconds = time.perf_counter() - started
            self._metrics.observe("dagmaster_http_request_duration_seconds", *labels, seconds=seconds)

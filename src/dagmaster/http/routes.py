"""Declares routes: method, path, the scope a caller needs, and the view that is the answer.

One table, `Routes.scopes`, says which route needs which scope; a test walks all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dagmaster.application.context import Application
from dagmaster.authoring.inputs import read_json
from dagmaster.errors import Problem, RequestInvalid
from dagmaster.http.auth import require
from dagmaster.ports.api_keys import ApiKeyRecord, Scope

F = TypeVar("F", bound=Callable[..., Any])
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem (RFC 9457)",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}


class Body(BaseModel):
    """The body of a request. Unknown fields are rejected, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class StrictRequest(Request):
    """A request whose JSON is parsed strictly: no NaN, no duplicate keys, no unpaired surrogates, no NUL."""

    async def json(self) -> Any:
        """Return the body; raise `RequestInvalid` if it is not strict JSON."""
        try:
            text = (await self.body()).decode()
            value = read_json(text)
            _check_storable(value)
        except (ValueError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            message = f"the body is not valid JSON: {reason}"[:300]
            raise RequestInvalid([Problem(message=message, path="body")]) from None
        return value


def _check_storable(value: Any) -> None:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if "\0" in item:
                raise ValueError("a text has the character NUL, which PostgreSQL cannot store")
            item.encode()
        elif isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            pending += item


class StrictRoute(APIRoute):
    """A route whose requests are `StrictRequest`s."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return the handler of the route."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return handle_strictly


class Routes:
    """A router whose routes all name a scope; None: the route is open to everyone."""

    def __init__(self, tag: str) -> None:
        self.router = APIRouter(route_class=StrictRoute, tags=[tag])
        self.scopes: dict[tuple[str, str], Scope | None] = {}

    def get(self, path: str, scope: Scope | None, returns: str, **options: Any) -> Callable[[F], F]:
        """Declare a route that reads. `returns`: the name of a view."""
        return self._add("GET", path, scope, returns, 200, **options)

    def post(self, path: str, scope: Scope | None, returns: str, status: int = 200, **options: Any) -> Callable[[F], F]:
        """Declare a route that changes something."""
        return self._add("POST", path, scope, returns, status, **options)

    def _add(
        self, method: str, path: str, scope: Scope | None, returns: str, status: int, **options: Any
    ) -> Callable[[F], F]:
        self.scopes[method, path] = scope
        answer = {"description": returns, "content": {"application/json": {"schema": schema_of(returns)}}}
        return self.router.api_route(
            path,
            methods=[method],
            status_code=status,
            response_class=JSONResponse,
            response_model=None,
            responses={status: answer, **PROBLEMS},
            dependencies=[] if scope is None else [Depends(require(scope))],
            openapi_extra={} if scope is None else {"security": [{"key": []}], "x-scope": scope.value},
            **options,
        )


def schema_of(returns: str) -> dict[str, Any]:
    """Return the reference to the schema of a view; `[X]` is a list of X."""
    if returns.startswith("["):
        return {"type": "array", "items": schema_of(returns[1:-1])}
    return {"$ref": f"#/components/schemas/{returns}"}


def application(request: Request) -> Application:
    """Return the application layer."""
    app: Application = request.app.state.application
    return app


async def caller(request: Request) -> ApiKeyRecord:
    """Return who sent the request. The scope was checked by the route."""
    record: ApiKeyRecord = await request.app.state.keys.caller(request)
    return record


App = Annotated[Application, Depends(application)]
Caller = Annotated[ApiKeyRecord, Depends(caller)]
Cursor = Annotated[str | None, Query(max_length=2_000, description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=1_000, description="The number of items of a page.")]

"""Declares routes of a gateway: method, path, the scope a caller needs, and the record that is the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dagmaster.errors import ApiKeyRejected
from dagmaster.http.auth import Credential, Need, find_allowed, need_of
from dagmaster.http.strict_requests import StrictRoute
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.records.record import Record

F = TypeVar("F", bound=Callable[..., Any])
_PROBLEM: Final = "ProblemResponse"
_PROBLEM_TYPE: Final = "application/problem+json"
_SENTENCES: Final = {
    400: "The request cannot be read.",
    401: "The key or token is missing or not valid.",
    403: "The key or token may not do this.",
    404: "There is no such thing, or it is not yours.",
    409: "The idempotency key was used for another request.",
    410: "The link has expired.",
    413: "The body is too large.",
    422: "The request is not valid, or cannot be carried out.",
    429: "Too many requests, or the quota is used up.",
    502: "The target cannot be reached.",
    503: "The gateway, or a service that it needs, is not ready.",
    504: "The target did not answer in time.",
}


class GatewayRoutes:
    """A router whose routes all name a scope; None: the route is open to everyone."""

    def __init__(self, tag: str, route_class: type[APIRoute] | None = None) -> None:
        self.router = APIRouter(route_class=route_class or GatewayRoute, tags=[tag])
        self.scopes: dict[tuple[str, str], Scope | None] = {}

    def get(self, path: str, scope: Scope | None, returns: type[Record], **options: Any) -> Callable[[F], F]:
        """Declare a route that reads."""
        return self.add(["GET"], path, scope, returns, **options)

    def post(self, path: str, scope: Scope | None, returns: type[Record], **options: Any) -> Callable[[F], F]:
        """Declare a route that forwards a change."""
        return self.add(["POST"], path, scope, returns, **options)

    def add(
        self,
        methods: list[str],
        path: str,
        scope: Scope | None,
        returns: type[Record] | None,
        *,
        name: str,
        status: int = 200,
        reach: Reach = Reach.ALL,
        fails: tuple[int, ...] = (),
        also: Mapping[int, str] | None = None,
        text: str = "The answer of the target, with its own status.",
        **options: Any,
    ) -> Callable[[F], F]:
        """Declare a route. `name`: of its operation. `fails`: the statuses of its problems.

        `also`: other statuses with the same answer. `returns`: None if it answers with anything, as `text`
        says.
        """
        for method in methods:
            self.scopes[method, path] = scope
        statuses = {*fails, *((401, 403, 429) if scope is not None else ()), 503} - (also or {}).keys()
        responses: dict[int | str, dict[str, Any]] = {
            code: answer_schema(_PROBLEM, _SENTENCES[code], _PROBLEM_TYPE) for code in sorted(statuses)
        }
        if returns is not None:
            summary = " ".join((returns.__doc__ or "").split())
            responses[status] = answer_schema(returns.documented_name, summary)
            responses |= {
                code: answer_schema(returns.documented_name, text) for code, text in (also or {}).items()
            }
        else:
            responses[status] = {"description": text}
        declared = {} if scope is None else {"x-scope": scope.value, "x-reach": reach.value}
        security: dict[str, Any] = {} if scope is None else {"security": [{"key": []}]}
        return self.router.api_route(
            path,
            methods=methods,
            status_code=status,
            response_class=JSONResponse,
            response_model=None,
            responses=responses,
            operation_id=name,
            openapi_extra=declared | security,
            **options,
        )


def invalid_request() -> dict[str, Any]:
    """Return the description of the answer to a request that is not valid."""
    return answer_schema(_PROBLEM, _SENTENCES[422], _PROBLEM_TYPE)


def answer_schema(schema: str, description: str, media_type: str = "application/json") -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"description": description, "content": {media_type: {"schema": reference}}}


async def check_key(request: Request, need: Need) -> None:
    """Find the caller of a request by its key or token; raise why it may not use the route.

    Cookies count for nothing: no page of a browser logs in here.
    """
    credential = Credential(credential_text(request))
    request.state.caller = await find_allowed(request, credential, need)


def credential_text(request: Request) -> str:
    """Return the key or token of a request; raise `ApiKeyRejected` if it has none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    text = key if scheme.lower() == "bearer" and key else request.headers.get("x-api-key", "")
    if not text.strip():
        raise ApiKeyRejected("the request has no key: send `Authorization: Bearer dm_…`")
    return text.strip()


class GatewayRoute(StrictRoute):
    """A strict route whose caller has a key or a token."""

    check_caller = staticmethod(check_key)


class ProxyRoute(APIRoute):
    """A route that checks its caller, and passes everything else on."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handle, need = super().get_route_handler(), need_of(self.openapi_extra)

        async def handle_checked(request: Request) -> Response:
            if need is not None:
                await check_key(request, need)
            response: Response = await handle(request)
            return response

        return handle_checked

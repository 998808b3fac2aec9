"""How a method is written once for both clients: it returns a request, its decorator names the answer.

`AsyncClient` sends the request when it is awaited, `Client` sends it and waits.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from dagmaster.errors import ServerAnswerInvalid
from dagmaster.records.parsing import parse_page, parse_record
from dagmaster.records.record import Record

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping

    from dagmaster.client.blocking_client import Client
    from dagmaster.client.connection import Answer
    from dagmaster.records.page import Page

P = ParamSpec("P")
V = TypeVar("V", bound=Record)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client sends. A parameter that is None is left out."""

    method: str = "POST"
    path: tuple[str, ...]
    params: Mapping[str, Any]
    body: Mapping[str, Any] | None = None
    content: bytes | None = None
    headers: Mapping[str, str] | None = None
    is_repeatable: bool = False
    """Whether the same request again has no other effect."""
    timeout_seconds: float | None = None


def get(*path: str, **params: Any) -> Request:
    """Read something."""
    return Request(method="GET", path=path, params=params, is_repeatable=True)


def post(
    *path: str, body: Mapping[str, Any] | None = None, is_repeatable: bool = False, **params: Any
) -> Request:
    """Change something."""
    return Request(path=path, params=params, body=body, is_repeatable=is_repeatable)


# ── What an answer is ──


def view_of(view: type[V], answer: Answer) -> V:
    """Return the view that an answer is."""
    return parse_record(view, answer.document, read_at=answer.at)


def views_of(view: type[V], answer: Answer) -> list[V]:
    """Return the views that an answer is a list of."""
    if not isinstance(answer.document, list):
        raise ServerAnswerInvalid(f"the answer is not a list of {view.__name__}")
    return [parse_record(view, item, read_at=answer.at) for item in answer.document]


def page_of(view: type[V], answer: Answer) -> Page[V]:
    """Return the page of views that an answer is."""
    return parse_page(view, answer.document, read_at=answer.at)


# ── Methods ──


class Method(Protocol[P, T_co]):
    """A method as type checkers see it: an `AsyncClient` returns an awaitable, a `Client` the answer."""

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T_co]: ...
    @overload
    def __get__(self, client: object, owner: type) -> Callable[P, Coroutine[Any, Any, T_co]]: ...


class Stream(Protocol[P, T_co]):
    """A method that yields: an `AsyncClient` returns an asynchronous generator, a `Client` an iterator."""

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Iterator[T_co]]: ...
    @overload
    def __get__(self, client: object, owner: type) -> Callable[P, AsyncGenerator[T_co, None]]: ...


def method(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Method[P, T]:
    """Declare a method that sends more than one request, or reads its answer itself."""
    declared: Any = function
    return declared  # type: ignore[no-any-return]


def stream(function: Callable[Concatenate[Any, P], AsyncGenerator[T, None]]) -> Stream[P, T]:
    """Declare a method that yields."""
    declared: Any = function
    return declared  # type: ignore[no-any-return]


def returns(view: type[V]) -> Callable[[Callable[Concatenate[Any, P], Request]], Method[P, V]]:
    """Declare a method whose answer is a view."""
    return _sending(functools.partial(view_of, view), view.__name__)


def returns_list(view: type[V]) -> Callable[[Callable[Concatenate[Any, P], Request]], Method[P, list[V]]]:
    """Declare a method whose answer is a list of views."""
    return _sending(functools.partial(views_of, view), f"list[{view.__name__}]")


def returns_page(view: type[V]) -> Callable[[Callable[Concatenate[Any, P], Request]], Method[P, Page[V]]]:
    """Declare a method whose answer is a page of views."""
    return _sending(functools.partial(page_of, view), f"Page[{view.__name__}]")


def returns_nothing(function: Callable[Concatenate[Any, P], Request]) -> Method[P, None]:
    """Declare a method whose answer says nothing."""
    declared: Method[P, None] = _sending(lambda _: None, "None")(function)
    return declared


def _sending(read: Callable[[Answer], T], type_name: str) -> Callable[[Callable[..., Request]], Any]:
    def declare(function: Callable[..., Request]) -> Any:
        @functools.wraps(function)
        async def send(self: Any, *args: Any, **kwargs: Any) -> T:
            return read(await self.connection.send(function(self, *args, **kwargs)))

        # What `help` shows: the answer, not the request.
        declared: Any = send
        declared.__signature__ = inspect.signature(function).replace(return_annotation=type_name)
        return send

    return declare

"""Type hints of handlers: resolve postponed annotations, unwrap unions.

It knows typing and pydantic models; of handlers it knows only what they may yield besides a result.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, RootModel

from dagmaster.ports.handler_reports import Checkpoint, HandlerResult, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_ITERATORS = (
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.Generator,
    collections.abc.Iterator,
    collections.abc.Iterable,
)
# Types in a return annotation that are not the result.
_NOT_RESULTS = (Progress, Checkpoint, HandlerResult)
_RETURN_OF_GENERATOR = 2


@dataclass(frozen=True, slots=True)
class Unresolved:
    """An annotation that could not be resolved: its source text and the reason."""

    text: str
    reason: str


def resolve_annotations(function: Callable[..., Any], local_names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations of a function as objects. One that cannot be resolved is `Unresolved`."""
    plain: Any = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    plain = inspect.unwrap(plain)
    global_names = getattr(plain, "__globals__", {})
    hints: dict[str, Any] = {}
    for name, annotation in getattr(plain, "__annotations__", {}).items():
        # One at a time: get_type_hints over all of them fails as a whole on one import under TYPE_CHECKING.
        alone = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints.update(typing.get_type_hints(alone, global_names, dict(local_names), include_extras=True))
        except (NameError, AttributeError, TypeError, SyntaxError) as error:
            hints[name] = Unresolved(str(annotation), str(error))
    return hints


def output_type(annotation: Any) -> tuple[type[BaseModel] | None, frozenset[str] | None]:
    """Return the model and the keys of a return annotation; None if unknown."""
    results = [one for one in _returned(annotation) if one not in _NOT_RESULTS]
    if len(results) != 1:
        return None, None
    if is_model(results[0]):
        return results[0], _keys_of(results[0])
    if typing.is_typeddict(results[0]):
        return None, frozenset(results[0].__annotations__)
    return None, None


def alternatives(annotation: Any) -> Iterator[Any]:
    """Return the members of a union, or the type itself; `Annotated` is unwrapped."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from alternatives(typing.get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for member in typing.get_args(annotation):
            yield from alternatives(member)
    else:
        yield annotation


def is_model(annotation: Any) -> typing.TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _returned(annotation: Any) -> Iterator[Any]:
    """Return the types that a function returns, or a generator yields and returns."""
    if typing.get_origin(annotation) not in _ITERATORS:
        yield from alternatives(annotation)
        return
    arguments = typing.get_args(annotation)
    yield from alternatives(arguments[0])
    if len(arguments) > _RETURN_OF_GENERATOR and arguments[_RETURN_OF_GENERATOR] not in (None, type(None)):
        yield from alternatives(arguments[_RETURN_OF_GENERATOR])


def _keys_of(model: type[BaseModel]) -> frozenset[str] | None:
    open_ended = model.model_config.get("extra") == "allow" or issubclass(model, RootModel)
    if open_ended or model.__pydantic_decorators__.model_serializers:
        return None
    fields = model.model_fields.items()
    names = {field.serialization_alias or name for name, field in fields if not field.exclude}
    return frozenset(names | {field.alias or name for name, field in model.model_computed_fields.items()})

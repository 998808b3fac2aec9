"""The base of all views: a frozen dataclass whose `to_dict()` is JSON.

Keys are the names of the fields. Times are `Timestamp`: seconds since the epoch in Python, RFC 3339 in UTC in
JSON. A number has its unit in its name. Ids are text, enums their values, numbered enums their names. Values
of jobs (inputs, outputs) are JSON already and are passed through.
"""

from __future__ import annotations

from dataclasses import fields
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_args, get_type_hints

from dagmaster.errors import Problem
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

E = TypeVar("E", bound=StrEnum)

Timestamp = Annotated[float, "timestamp"]
"""Seconds since the epoch; `to_dict()` writes RFC 3339."""

INTERNAL: Final = {"internal": True}
"""Metadata of a field that is for renderers only and is not part of `to_dict()`."""


class View:
    """A frozen dataclass that is sent to programs as JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the view as JSON values."""
        return {
            name: value if convert is None or value is None else convert(value)
            for name, convert in _converters(type(self))
            for value in (getattr(self, name),)
        }


def view_types(view: type[Any]) -> dict[str, Any]:
    """Return the types of a view's fields. JSON values, whose type is recursive, are Any."""
    return get_type_hints(view, localns={"JsonValue": Any, "JsonObject": dict[str, Any]}, include_extras=True)


def as_member(of: type[E], value: str) -> E | str:
    """Return the member of an enum; a value that only a newer version knows stays as it is."""
    try:
        return of(value)
    except ValueError:
        return value


_Converters = tuple[tuple[str, "Callable[[Any], Any] | None"], ...]
_known: dict[type[Any], _Converters] = {}


def _converters(view: type[Any]) -> _Converters:
    converters = _known.get(view)
    if converters is None:
        hints = view_types(view)
        shown = [field.name for field in fields(view) if not field.metadata.get("internal")]
        converters = _known[view] = tuple((name, _converter(hints[name])) for name in shown)
    return converters


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    """Return what turns a value of a type into JSON; None if it is JSON already."""
    arguments = [argument for argument in get_args(hint) if argument is not type(None)]
    types = {hint, *arguments}
    if Timestamp in types:
        return format_rfc3339
    classes = [type_ for type_ in types if isinstance(type_, type)]
    if any(issubclass(type_, View | StrEnum | IntEnum) for type_ in classes) or tuple in _origins(hint):
        return _to_json
    return None


def _origins(hint: Any) -> set[Any]:
    return {getattr(part, "__origin__", None) for part in (hint, *get_args(hint))}


def _to_json(value: Any) -> Any:
    if isinstance(value, View | Problem):
        return value.to_dict()
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(key): _to_json(item) for key, item in value.items()}
    return value

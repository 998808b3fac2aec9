"""The base of all records: a frozen dataclass whose `to_dict()` is JSON.

Keys are the names of the fields, and of properties that are marked with `shown`. Times are `Timestamp`:
seconds since the epoch in Python, RFC 3339 in UTC in JSON. A number has its unit in its name. Ids are text,
enums their values, numbered enums their names. Values of jobs (inputs, outputs) are JSON already and are
passed through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import IntEnum, StrEnum
from operator import methodcaller
from types import UnionType
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from dagmaster.errors import Problem
from dagmaster.text_format import format_rfc3339

E = TypeVar("E", bound=StrEnum)
F = TypeVar("F", bound=Callable[..., Any])

Timestamp = Annotated[float, "timestamp"]
"""Seconds since the epoch; `to_dict()` writes RFC 3339."""

INTERNAL: Final = {"internal": True}
"""Metadata of a field that is not part of the JSON. A record that is parsed has its default."""


def derived(by: Callable[[Mapping[str, Any], float], Any]) -> dict[str, Any]:
    """Return the metadata of a field that is not part of the JSON, but follows from it.

    `by` gets the parsed fields, and the time at which the JSON was made.
    """
    return {"internal": True, "derived": by}


SECRETS: Final = {"secrets": "values"}
"""Metadata of a field whose value may contain secrets; `redacted` replaces them."""
SECRET_INPUTS: Final = {"secrets": "inputs"}
"""Metadata of a field with the inputs of a job, of which some are declared secret."""

READ_AT: Final = derived(lambda _values, read_at: read_at)
"""Metadata of a field that says when the record was read."""


def shown(*, after: str) -> Callable[[F], F]:
    """Make a property part of the JSON, after a field or another such property; `@property` goes above it."""

    def mark(getter: F) -> F:
        setattr(getter, _SHOWN_AFTER, after)
        return getter

    return mark


class Record:
    """A frozen dataclass that is sent to programs as JSON.

    It is documented under its name, where `Record` at the end is written `View`, or under `documented`.
    """

    __slots__ = ()
    documented_name: ClassVar = "Record"
    order: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, *, documented: str = "", order: Mapping[str, str] | None = None) -> None:
        """Name the schema. A dataclass with slots makes its class twice: what the first was told stays.

        `order`: keys, each with the one that it stands after in the JSON, or "" for the top; the others
        have the order of the fields, base classes first.
        """
        if order is not None:
            cls.order = {**cls.order, **order}
        if "documented_name" not in cls.__dict__:
            cls.documented_name = documented or _view_name(cls.__name__)

    @classmethod
    def of(cls, source: object, **more: Any) -> Self:
        """Return a record with the fields that another object has under the same names, and `more`."""
        names = {field.name for field in fields(cls) if field.init} - more.keys()  # type: ignore[arg-type]
        return cls(**{name: getattr(source, name) for name in names if hasattr(source, name)}, **more)

    def to_dict(self) -> dict[str, Any]:
        return {
            name: value if convert is None or value is None else convert(value)
            for name, convert in _converters(type(self))
            for value in (getattr(self, name),)
        }

    @classmethod
    def complete_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of the JSON: of its fields, unless `to_dict` is another than that of records."""
        return schema

    @classmethod
    def parse_fields(cls, document: Any) -> Any:
        """Return the object that has the fields: the document, unless `to_dict` is overridden."""
        return document


def shown_types(record: type[Any]) -> dict[str, Any]:
    """Return the types of what is part of a record's JSON, by name and in order.

    JSON values, whose type is recursive, are Any.
    """
    hints = _type_hints(record)
    types = {part.name: hints[part.name] for part in fields(record) if not part.metadata.get("internal")}
    for name, after in getattr(record, "order", {}).items():
        types = _inserted(types, after, name, types.pop(name))
    for name, getter in _shown_properties(record).items():
        types = _inserted(types, getattr(getter, _SHOWN_AFTER), name, _type_hints(getter)["return"])
    return types


def _inserted(types: dict[str, Any], after: str, name: str, hint: Any) -> dict[str, Any]:
    position, items = list(types).index(after) + 1 if after else 0, list(types.items())
    return dict([*items[:position], (name, hint), *items[position:]])


def as_member(of: type[E], value: str) -> E | str:
    """Return the member of an enum; a value that only a newer version knows stays as it is."""
    try:
        return of(value)
    except ValueError:
        return value


_SHOWN_AFTER: Final = "shown_after"
_Converter = Callable[[Any], Any]
_Converters = tuple[tuple[str, _Converter | None], ...]
_known: dict[type[Any], _Converters] = {}


def _view_name(name: str) -> str:
    return name.removesuffix("Record") + "View" if name.endswith("Record") else name


def _type_hints(of: Any) -> dict[str, Any]:
    return get_type_hints(of, localns={"JsonValue": Any, "JsonObject": dict[str, Any]}, include_extras=True)


def _shown_properties(record: type[Any]) -> dict[str, Any]:
    """Return the getters of shown properties by name, base classes first."""
    members = {name: member for base in reversed(record.__mro__) for name, member in vars(base).items()}
    getters = {name: member.fget for name, member in members.items() if isinstance(member, property)}
    return {name: getter for name, getter in getters.items() if hasattr(getter, _SHOWN_AFTER)}


def _converters(record: type[Any]) -> _Converters:
    converters = _known.get(record)
    if converters is None:
        types = shown_types(record)
        converters = _known[record] = tuple((name, _converter(hint)) for name, hint in types.items())
    return converters


def _converter(hint: Any) -> _Converter | None:
    """Return what turns a value of a type into JSON; None if it is JSON already."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Timestamp:
        return format_rfc3339
    if origin in (Union, UnionType):
        return _union_converter(arguments)
    if origin is tuple:
        return _tuple_converter(_converter(arguments[0]))
    if origin is Mapping:
        return _mapping_converter(_converter(arguments[1]))
    if not isinstance(hint, type):
        return None
    if issubclass(hint, StrEnum):
        return str
    if issubclass(hint, IntEnum):
        return _lower_name
    return methodcaller("to_dict") if issubclass(hint, Record | Problem) else None


def _union_converter(arguments: tuple[Any, ...]) -> _Converter | None:
    """Return the converter of a union's members that have one; text that may be an enum stays text."""
    converters = {converter for argument in arguments if (converter := _converter(argument)) is not None}
    if len(converters) > 1:
        raise TypeError(f"a value of {arguments} has more than one form in JSON")
    return next(iter(converters), None)


def _tuple_converter(convert: _Converter | None) -> _Converter:
    return list if convert is None else lambda items: [convert(item) for item in items]


def _mapping_converter(convert: _Converter | None) -> _Converter:
    if convert is None:
        return lambda items: {str(key): item for key, item in items.items()}
    return lambda items: {str(key): convert(item) for key, item in items.items()}


def _lower_name(value: IntEnum) -> str:
    return value.name.lower()

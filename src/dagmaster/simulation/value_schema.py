"""The shape of a value: what is known of it, from those who read it or from a schema, and a value of that shape.

This module does not know workflows: who reads what is in `shapes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

MOST_ITEMS: Final = 4
MAX_LEVELS: Final = 8
LONG_AGO: Final = "2026-01-31T06:00:00Z"

NUMBERS: Final = (0, 1, 50, 150, 1000)
TEXTS: Final = ("a", "tiles/tile-1.tif", "a text that is longer than most of the others")


class Kind(StrEnum):
    """The kinds of JSON values that an expression can ask for."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    OBJECT = "object"


GUESS, SAID, TYPED = 1, 2, 3
"""How sure it is: a literal beside it, an operator that needs it, a model or a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one place asks of a value."""

    kind: Kind | None = None
    sure: int = SAID
    choices: tuple[Any, ...] = ()
    only: bool = False
    least: int = 0
    nonzero: bool = False


@dataclass(slots=True)
class Shape:
    """A value, as far as something is known of it."""

    kind: Kind | None = None
    sure: int = 0
    choices: list[Any] = field(default_factory=list)
    only: bool = False
    least: int = 0
    nonzero: bool = False
    keys: dict[str, Shape] = field(default_factory=dict)
    items: Shape | None = None

    def want(self, wanted: Wanted) -> None:
        """Learn more of it. What is surer counts."""
        if wanted.kind is not None and wanted.sure > self.sure:
            self.kind, self.sure = wanted.kind, wanted.sure
        if wanted.only and not self.only:
            self.choices, self.only = list(wanted.choices), True
        elif not self.only:
            self.choices += [each for each in wanted.choices if each not in self.choices]
        self.least = max(self.least, wanted.least)
        self.nonzero = self.nonzero or wanted.nonzero

    def at(self, key: str | int) -> Shape:
        """Return the shape of what is inside it."""
        if isinstance(key, str):
            self.want(Wanted(kind=Kind.OBJECT))
            return self.keys.setdefault(key, Shape())
        self.want(Wanted(kind=Kind.LIST, least=key + 1 if key >= 0 else -key))
        return self.inside()

    def inside(self) -> Shape:
        """Return the shape of the items of a list."""
        if self.items is None:
            self.items = Shape()
        return self.items

    def absorb(self, other: Shape) -> None:
        """Learn all that is known of another."""
        self.want(Wanted(kind=other.kind, sure=other.sure, choices=tuple(other.choices), only=other.only))
        self.want(Wanted(least=other.least, nonzero=other.nonzero))
        for key, inner in other.keys.items():
            self.keys.setdefault(key, Shape()).absorb(inner)
        if other.items is not None:
            self.inside().absorb(other.items)

    def draw(self, chance: random.Random, place: int | None = None) -> Any:
        """Draw a value of this shape. `place`: which item of a list it is."""
        match self.kind:
            case Kind.OBJECT:
                return {key: inner.draw(chance) for key, inner in self.keys.items()}
            case Kind.LIST:
                count = chance.randint(self.least, max(MOST_ITEMS, self.least))
                return [self.inside().draw(chance, each) for each in range(count)]
            case _ if self.choices and (self.only or chance.random() < 0.7):  # noqa: PLR2004 - and others at times
                return chance.choice([each for each in self.choices if each or not self.nonzero] or [1])
            case Kind.TEXT:
                return chance.choice(TEXTS)
            case Kind.BOOLEAN:
                return chance.choice((True, False))
            case None if place is not None:
                return place
            case _:
                return chance.choice(NUMBERS[1:] if self.nonzero else NUMBERS)


_TYPES: Final = {
    "string": Kind.TEXT,
    "integer": Kind.NUMBER,
    "number": Kind.NUMBER,
    "boolean": Kind.BOOLEAN,
    "array": Kind.LIST,
    "object": Kind.OBJECT,
}


def kind_of(value: Any) -> Kind | None:
    """Return the kind of a literal."""
    if isinstance(value, bool):
        return Kind.BOOLEAN
    return Kind.TEXT if isinstance(value, str) else Kind.NUMBER if isinstance(value, int | float) else None


def wanted_by(schema: Mapping[str, Any]) -> Wanted:
    """Return what the JSON schema of one value asks for."""
    choices = tuple(schema["enum"]) if "enum" in schema else (schema["const"],) if "const" in schema else ()
    lowest = [schema[key] for key in ("minimum", "maximum") if key in schema]
    kind = _TYPES.get(str(schema.get("type"))) or (kind_of(choices[0]) if choices else None)
    if not choices and kind is Kind.NUMBER and lowest:
        choices = tuple(lowest)
    if kind is Kind.TEXT and schema.get("format") == "date-time":
        choices = (LONG_AGO,)
    return Wanted(kind=kind, sure=TYPED, choices=choices, only=bool(choices), least=int(schema.get("minItems", 0)))


def learn(shape: Shape, schema: Mapping[str, Any]) -> None:
    """Learn what a JSON schema says, which is surer than all else."""
    _learn(shape, schema, schema.get("$defs", {}), 0)


def _learn(shape: Shape, schema: Mapping[str, Any], defs: Mapping[str, Any], level: int) -> None:
    schema = _plain(schema, defs)
    if level > MAX_LEVELS:
        return
    shape.want(wanted_by(schema))
    if shape.kind is Kind.OBJECT:
        for key, inner in schema.get("properties", {}).items():
            _learn(shape.keys.setdefault(key, Shape()), inner, defs, level + 1)
    elif shape.kind is Kind.LIST and isinstance(schema.get("items"), dict):
        _learn(shape.inside(), schema["items"], defs, level + 1)


def _plain(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema itself where it is named, and the first that is not null where there are several."""
    for several in _ways(schema):
        return _plain(several, defs)
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return _plain(defs[name], {key: one for key, one in defs.items() if key != name}) if name in defs else schema


def _ways(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    ways = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    yield from (each for each in ways if each.get("type") != "null")

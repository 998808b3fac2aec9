"""The shape of a value, inferred from its readers or from a JSON schema, and random values of that shape.

This module does not know workflows: `output_inference` collects what they require.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

    from dagmaster.json_types import JsonValue

MAX_ITEMS: Final = 4
MAX_LEVELS: Final = 8
PAST_TIME: Final = "2026-01-31T06:00:00Z"
_PAST: Final = {"date": "2026-01-31", "date-time": PAST_TIME}

NUMBERS: Final = (0, 1, 50, 150, 1000)
TEXTS: Final = ("a", "tiles/tile-1.tif", "a text that is longer than the others")


class Kind(StrEnum):
    """The kinds of JSON values that an expression can require."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    OBJECT = "object"


GUESSED, REQUIRED, TYPED = 1, 2, 3
"""How certain a kind is: by a literal next to it, by an operator that requires it, by a model or a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What one reader requires of a value."""

    kind: Kind | None = None
    certainty: int = REQUIRED
    choices: tuple[JsonValue, ...] = ()
    only: bool = False
    min_items: int = 0
    nonzero: bool = False

    def merge(self, more: Requirement) -> Requirement:
        """Return both as one. Of two kinds, the more certain one counts."""
        is_surer = more.kind is not None and more.certainty > self.certainty
        surer = more if is_surer else self
        if more.only and not self.only:
            choices = more.choices
        elif self.only:
            choices = self.choices
        else:
            choices = (*self.choices, *(one for one in more.choices if one not in self.choices))
        return Requirement(
            kind=surer.kind,
            certainty=surer.certainty,
            choices=choices,
            only=self.only or more.only,
            min_items=max(self.min_items, more.min_items),
            nonzero=self.nonzero or more.nonzero,
        )


@dataclass(slots=True)
class Shape:
    """What is known of a value: what all its readers require."""

    known: Requirement = field(default_factory=lambda: Requirement(certainty=0))
    keys: dict[str, Shape] = field(default_factory=dict)
    items: Shape | None = None

    def require(self, requirement: Requirement) -> None:
        self.known = self.known.merge(requirement)

    def at(self, key: str | int) -> Shape:
        if isinstance(key, str):
            self.require(Requirement(kind=Kind.OBJECT))
            return self.keys.setdefault(key, Shape())
        self.require(Requirement(kind=Kind.LIST, min_items=key + 1 if key >= 0 else -key))
        return self.inside()

    def inside(self) -> Shape:
        if self.items is None:
            self.items = Shape()
        return self.items

    def absorb(self, other: Shape) -> None:
        self.require(other.known)
        for key, inner in other.keys.items():
            self.keys.setdefault(key, Shape()).absorb(inner)
        if other.items is not None:
            self.inside().absorb(other.items)

    def draw(self, rng: random.Random, index: int | None = None) -> Any:
        """Draw a value of this shape. `index`: of an item of a list."""
        known = self.known
        match known.kind:
            case Kind.OBJECT:
                return {key: inner.draw(rng) for key, inner in self.keys.items()}
            case Kind.LIST:
                count = rng.randint(known.min_items, max(MAX_ITEMS, known.min_items))
                return [self.inside().draw(rng, number) for number in range(count)]
        if known.choices and (known.only or rng.random() < _CHOICE_SHARE):
            return self._draw_choice(rng)
        match known.kind:
            case Kind.TEXT:
                return rng.choice(TEXTS)
            case Kind.BOOLEAN:
                return rng.choice((True, False))
            case None if index is not None:
                return index
            case _:
                return rng.choice(NUMBERS[1:] if known.nonzero else NUMBERS)

    def _draw_choice(self, rng: random.Random) -> Any:
        known = self.known
        choices = [choice for choice in known.choices if choice] if known.nonzero else known.choices
        return rng.choice(choices or [1])


_CHOICE_SHARE: Final = 0.7
"""How often a value is one of the choices that a comparison gives; otherwise it is any other."""

_TYPES: Final = {
    "string": Kind.TEXT,
    "integer": Kind.NUMBER,
    "number": Kind.NUMBER,
    "boolean": Kind.BOOLEAN,
    "array": Kind.LIST,
    "object": Kind.OBJECT,
}


def kind_of(value: JsonValue) -> Kind | None:
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, str):
        return Kind.TEXT
    return Kind.NUMBER if isinstance(value, int | float) else None


def requirement_of(schema: Mapping[str, Any]) -> Requirement:
    choices: tuple[Any, ...] = tuple(schema.get("enum", ()))
    if not choices and "const" in schema:
        choices = (schema["const"],)
    bounds = [schema[key] for key in ("minimum", "maximum") if key in schema]
    kind = _TYPES.get(str(schema.get("type"))) or (kind_of(choices[0]) if choices else None)
    if not choices and kind is Kind.NUMBER and bounds:
        choices = tuple(bounds)
    if not choices and kind is Kind.TEXT and schema.get("format") in _PAST:
        choices = (_PAST[schema["format"]],)
    return Requirement(
        kind=kind,
        certainty=TYPED,
        choices=choices,
        only=bool(choices),
        min_items=int(schema.get("minItems", 0)),
    )


def learn(shape: Shape, schema: Mapping[str, Any]) -> None:
    """Add what a JSON schema requires, which is more certain than everything else."""
    _learn(shape, schema, schema.get("$defs", {}), 0)


def _learn(shape: Shape, schema: Mapping[str, Any], defs: Mapping[str, Any], level: int) -> None:
    schema = _resolved(schema, defs)
    if level > MAX_LEVELS:
        return
    shape.require(requirement_of(schema))
    if shape.known.kind is Kind.OBJECT:
        for key, inner in schema.get("properties", {}).items():
            _learn(shape.keys.setdefault(key, Shape()), inner, defs, level + 1)
    elif shape.known.kind is Kind.LIST and isinstance(schema.get("items"), dict):
        _learn(shape.inside(), schema["items"], defs, level + 1)


def _resolved(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema behind a reference; of several alternatives, the first that is not null."""
    for alternative in _alternatives(schema):
        return _resolved(alternative, defs)
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return (
        _resolved(defs[name], {key: one for key, one in defs.items() if key != name})
        if name in defs
        else schema
    )


def _alternatives(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    alternatives = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    yield from (alternative for alternative in alternatives if alternative.get("type") != "null")

"""Secrets in resolved values: typed parts without a value, which a worker fills in.

`secrets.NAME` is a name of the worker's environment. A secret input has a stored value, which only the
caller of `fill_secrets` can read. Both follow one rule (`SecretInputs`): they are whole values or parts
of a text, and nothing is computed from them. This module does not know how a stored value is protected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.engine.expressions.json_values import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MAX_LEVELS: Final = 64
"""Levels of nested lists and mappings, as in a workflow file."""
REDACTED: Final = "***"
_INPUT: Final = "inputs."
"""What the name of a secret input begins with in stored parts; a name of the environment has no point."""


@dataclass(frozen=True, slots=True)
class SecretInputs:
    """Which inputs of a workflow are secret, and what a place may do with them.

    `is_stored`: a definition that an earlier version accepted; what is refused fails its node when it is
    evaluated.
    """

    names: frozenset[str] = frozenset()
    is_allowed: bool = False
    is_stored: bool = False


NO_SECRET_INPUTS: Final = SecretInputs()
_NO_NAMES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class SecretName:
    """A secret of the worker's environment, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class SecretInput:
    """A secret input: its name, and its value as it is stored."""

    name: str
    stored: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class SecretText:
    """A resolved string without its secrets."""

    parts: tuple[str | SecretName | SecretInput, ...]


class DetachedSecrets(NamedTuple):
    """A resolved value as it is stored: null for each secret, their places, and the inputs in them."""

    value: Any
    places: list[list[Any]]
    inputs: dict[str, Any]


def secret_names(declarations: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the inputs that are declared secret."""
    if not declarations:
        return _NO_NAMES
    return frozenset(name for name, declared in declarations.items() if (declared or {}).get("secret"))


def typed_inputs(names: frozenset[str], inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inputs for the scope of expressions: secret ones as typed parts."""
    if not names:
        return inputs
    return {name: SecretInput(name, value) if name in names else value for name, value in inputs.items()}


def has_secrets(value: Any) -> bool:
    """Return whether a resolved value still lacks a secret."""
    waiting = [(value, 0)]
    while waiting:
        item, level = waiting.pop()
        if isinstance(item, SecretText | SecretInput):
            return True
        if level <= MAX_LEVELS and isinstance(item, list | dict):
            children = item.values() if isinstance(item, dict) else item
            waiting.extend((child, level + 1) for child in children)
    return False


def fill_secrets(
    value: Any, lookup: Callable[[str], str], open_input: Callable[[SecretInput], Any] | None = None
) -> Any:
    """Return the value with its secrets filled in. Strings that only look like a secret are unchanged.

    `open_input` returns the value of a secret input.
    """
    return _fill(value, lookup, open_input or _refuse_input, 0)


def fill_inputs(value: Any, is_filled: Callable[[SecretInput], bool]) -> Any:
    """Return the value with some of its secret inputs filled in with what is stored of them."""

    def walk(item: Any, level: int) -> Any:
        if isinstance(item, SecretInput):
            return item.stored if is_filled(item) else item
        if isinstance(item, SecretText):
            parts = [
                text_of(part.stored) if isinstance(part, SecretInput) and is_filled(part) else part
                for part in item.parts
            ]
            texts = [part for part in parts if isinstance(part, str)]
            return "".join(texts) if len(texts) == len(parts) else SecretText(tuple(parts))
        if level > MAX_LEVELS:
            return item
        if isinstance(item, dict):
            return {key: walk(value, level + 1) for key, value in item.items()}
        return [walk(value, level + 1) for value in item] if isinstance(item, list) else item

    return walk(value, 0)


def detach_secrets(value: Any) -> DetachedSecrets:
    """Return the value without its secrets, and what `attach_secrets` needs to put them back."""
    places: list[list[Any]] = []
    inputs: dict[str, Any] = {}

    def stored_part(part: str | SecretName | SecretInput) -> Any:
        if isinstance(part, SecretInput):
            inputs[part.name] = part.stored
            return {"secret": f"{_INPUT}{part.name}"}
        return {"secret": part.name} if isinstance(part, SecretName) else part

    def walk(item: Any, path: list[str | int], level: int) -> Any:
        if isinstance(item, SecretInput):
            # Alone: it keeps its type. A text has at least one more part.
            places.append([path, [stored_part(item)]])
            return None
        if isinstance(item, SecretText):
            places.append([path, [stored_part(part) for part in item.parts]])
            return None
        if level > MAX_LEVELS:
            return item
        if isinstance(item, dict):
            return {key: walk(value, [*path, key], level + 1) for key, value in item.items()}
        if isinstance(item, list):
            return [walk(value, [*path, index], level + 1) for index, value in enumerate(item)]
        return item

    return DetachedSecrets(walk(value, [], 0), places, inputs)


def attach_secrets(
    value: Any,
    places: Iterable[Sequence[Any]],
    inputs: Mapping[str, Any] | None = None,
) -> Any:
    """Undo `detach_secrets`, in place. `inputs`: the stored values of secret inputs."""
    stored = inputs or {}
    return _put(value, places, lambda parts: _typed(parts, stored))


def hide_secrets(value: Any, places: Iterable[Sequence[Any]]) -> Any:
    """Return a stored value for readers, changed in place: *** for each secret."""
    return _put(value, places, lambda parts: "".join(p if isinstance(p, str) else REDACTED for p in parts))


def names_in(places: Iterable[Sequence[Any]]) -> tuple[set[str], set[str]]:
    """Return the secrets of the environment, and the secret inputs, that stored places name."""
    names = {part["secret"] for _, parts in places for part in parts if not isinstance(part, str)}
    inputs = {name for name in names if name.startswith(_INPUT)}
    return names - inputs, {name.removeprefix(_INPUT) for name in inputs}


def _typed(parts: Sequence[Any], stored: Mapping[str, Any]) -> SecretText | SecretInput:
    typed: list[str | SecretName | SecretInput] = []
    for part in parts:
        if isinstance(part, str):
            typed.append(part)
        elif part["secret"].startswith(_INPUT):
            name = part["secret"].removeprefix(_INPUT)
            typed.append(SecretInput(name, stored[name]))
        else:
            typed.append(SecretName(part["secret"]))
    return typed[0] if len(typed) == 1 and isinstance(typed[0], SecretInput) else SecretText(tuple(typed))


def _put(value: Any, places: Iterable[Any], make: Callable[[Sequence[Any]], Any]) -> Any:
    for path, parts in places:
        if not path:
            return make(parts)
        into = value
        for step in path[:-1]:
            into = into[step]
        into[path[-1]] = make(parts)
    return value


def _fill(
    value: Any, lookup: Callable[[str], str], open_input: Callable[[SecretInput], Any], level: int
) -> Any:
    if isinstance(value, SecretInput):
        return open_input(value)
    if isinstance(value, SecretText):
        return "".join(_text(part, lookup, open_input) for part in value.parts)
    # No template is deeper, so no secret is; deeper values came from an expression.
    if level > MAX_LEVELS:
        return value
    if isinstance(value, dict):
        return {key: _fill(item, lookup, open_input, level + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, lookup, open_input, level + 1) for item in value]
    return value


def _text(
    part: str | SecretName | SecretInput,
    lookup: Callable[[str], str],
    open_input: Callable[[SecretInput], Any],
) -> str:
    if isinstance(part, SecretInput):
        return text_of(open_input(part))
    return lookup(part.name) if isinstance(part, SecretName) else part


def _refuse_input(secret: SecretInput) -> Any:
    raise LookupError(f"secret input {secret.name!r} cannot be filled in here")

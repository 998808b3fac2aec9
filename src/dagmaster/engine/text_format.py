"""How sentences say a span of time, a number of things, and an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"))
_NAMED: Final = 3


def age(seconds: float) -> str:
    """Spell how long ago something was: one unit is enough."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Say how many there are of something."""
    return f"1 {noun}" if count == 1 else f"{count:,} {plural or f'{noun}s'}"


def listed(names: Sequence[str], total: int | None = None, *, joint: str = "and") -> str:
    """Name the first few, and say how many more there are."""
    count = len(names) if total is None else total
    if count <= _NAMED:
        return f" {joint} ".join((", ".join(names[:-1]), names[-1])) if count > 1 else "".join(names)
    return f"{', '.join(names[:_NAMED])} and {count - _NAMED:,} more"


def spell_error(error: dict[str, Any]) -> str:
    """Say an error in one line: the exception by its name, unless the handler chose the kind."""
    name, message = str(error.get("type", "")), str(error.get("message", "")).split("\n", 1)[0]
    is_named = error.get("kind") != "error" or message.startswith(name)
    return message if is_named else f"{name}: {message}"


def storable_text(text: str) -> str:
    """Escape what JSON and PostgreSQL cannot hold: lone surrogates and NUL. Return a plain str."""
    return str.encode(text, "utf-8", "backslashreplace").decode().replace("\0", "\\x00")

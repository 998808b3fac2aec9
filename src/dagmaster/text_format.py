"""Format durations, counts, lists of names and errors for sentences. Used by every layer."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"))
_KILO: Final = 1000
_NAMED: Final = 3
_MAX_BYTE: Final = 0xFF
_MAX_SHORT: Final = 0xFFFF
_LIBRARY_CHARACTERS: Final = 200
_DIRECTORIES: Final = re.compile(r"(?<![\w.:/])/(?:[^\s'\"`:,;()\[\]]+/)+")
"""The directories of an absolute path."""


_HOSTILE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What a terminal obeys or what reorders text: C0 without tab and newline, DEL, C1, separators of lines, bidi
overrides and isolates, halves of surrogates, and tags, which nobody sees."""


def visible_text(text: str) -> str:
    """Return text that a terminal shows as it is: control characters become escapes."""
    return _HOSTILE.sub(_escape, text.replace("\r\n", "\n"))


def visible_json(text: str) -> str:
    """Return a JSON document without raw control characters: its strings, which have them, get escapes."""
    # Layout is the only white space outside of strings.
    return _HOSTILE.sub(_escape_json, text)


def _escape(match: re.Match[str]) -> str:
    number = ord(match.group())
    if number <= _MAX_BYTE:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= _MAX_SHORT else f"\\U{number:08x}"


def _escape_json(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def age(seconds: float) -> str:
    """Format how long ago something was, in its largest unit."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"


def format_rfc3339(at: float) -> str:
    """Format a time in seconds since the epoch as RFC 3339, in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def seconds_between(began: float, ended: float) -> float:
    """Return the seconds between two times as `format_rfc3339` writes them; 0 if they are in reverse.

    A reader of the two texts computes the same: times are rounded to microseconds before, not after.
    """
    return max((datetime.fromtimestamp(ended, UTC) - datetime.fromtimestamp(began, UTC)).total_seconds(), 0.0)


def format_count(count: int, noun: str, plural: str = "") -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {plural or f'{noun}s'}"


def format_seconds(seconds: float) -> str:
    """Format a number of seconds with its noun: "1 second", "0.5 seconds"."""
    return "1 second" if seconds == 1 else f"{seconds:,.15g} seconds"


def format_bytes(count: float) -> str:
    """Format a number of bytes in decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < _KILO:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KILO
    return f"{count:,.1f} TB"


def format_list(names: Sequence[str], total: int | None = None, *, conjunction: str = "and") -> str:
    """Join the first few names, and count the rest."""
    count = len(names) if total is None else total
    if count <= _NAMED:
        return f" {conjunction} ".join((", ".join(names[:-1]), names[-1])) if count > 1 else "".join(names)
    return f"{', '.join(names[:_NAMED])} and {count - _NAMED:,} more"


def format_error(error: dict[str, Any]) -> str:
    return error_text(error).split("\n", 1)[0]


def error_text(error: dict[str, Any]) -> str:
    """Return the message of an error, with the exception's name unless the handler chose its own kind.

    The message of an exception often means nothing without its name: that of a KeyError is only the key.
    """
    name, message = str(error.get("type", "")), str(error.get("message", ""))
    is_named = error.get("kind") != "error" or message.startswith(name)
    return message if is_named else f"{name}: {message}"


def traceback_of(error: Mapping[str, Any] | None) -> str | None:
    """Return the traceback of an error, or of its cause: of a node, a child of a fan-out, a child job."""
    while error is not None and not error.get("traceback"):
        failed = error.get("failed")
        error = failed[0].get("error") if failed and isinstance(failed, list) else error.get("cause")
    return None if error is None else str(error["traceback"]).rstrip()


def storable_text(text: str) -> str:
    """Escape what JSON and PostgreSQL cannot hold: lone surrogates and NUL. Return a plain str."""
    return str.encode(text, "utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def library_words(library: str, error: BaseException | str) -> str:
    """Return what a library reports, to append to our sentence: ` (GDAL: …)`; empty if it reports nothing.

    It is one line, shortened, and without the directories of this machine. SQLite's quotes the statement that
    failed, which means nothing to a user: that is left out.
    """
    if "sqlite3" in str(error):
        return ""
    words = " ".join(_DIRECTORIES.sub("", str(error)).split()).rstrip(". ")
    if len(words) > _LIBRARY_CHARACTERS:
        words = f"{words[: _LIBRARY_CHARACTERS - 1]}…"
    return f" ({library}: {words})" if words else ""

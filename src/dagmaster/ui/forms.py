"""The fields of a form that a page sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from dagmaster.errors import MediaTypeUnsupported, QueryInvalid

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_FIELDS: Final = 5_000


class Form:
    """Fields by name; a name may have several values."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def text(self, name: str, *, max_length: int = 10_000) -> str:
        """Return the first value of a field, empty if it has none; raise `QueryInvalid` if it is too long."""
        value = next((value for key, value in self._pairs if key == name), "")
        if len(value) > max_length:
            raise QueryInvalid(f"{name}: at most {max_length:,} characters, not {len(value):,}")
        return value

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a prefix, each once."""
        return list(dict.fromkeys(name for name, _ in self._pairs if name.startswith(prefix)))

    def texts(self, name: str) -> list[str]:
        return [value for key, value in self._pairs if key == name]


async def read_form(request: Request) -> Form:
    """Return the form of a request; raise an error of the caller's if it is not a form."""
    media_type = request.headers.get("content-type", "").split(";", 1)[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise MediaTypeUnsupported("a form is application/x-www-form-urlencoded")
    try:
        text = (await request.body()).decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise QueryInvalid(
            "the form is not valid: it has too many fields, or a text that is not UTF-8"
        ) from error
    if any("\0" in part for pair in pairs for part in pair):
        raise QueryInvalid("a field has the character NUL, which PostgreSQL cannot store")
    return Form(pairs)

"""Redact secrets in what handlers return, report and log.

Only exact occurrences are redacted: a secret that was encoded or reversed is not, nor is the rest of a secret
where a long message was truncated.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagmaster.engine.expressions.secret_parts import REDACTED
from dagmaster.text_format import storable_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from dagmaster.ports.task_messages import Outcome

MIN_SECRET_DIGITS = 4
"""Digits of the shortest secret number that is redacted."""

# Keys of an error that dagmaster wrote: they are kept even if a secret equals one of them.
_OUR_KEYS = frozenset({"kind", "message", "type", "traceback"})

_STRING_CONTENT = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9][0-9.eE+-]*")
_NUMBER_CHARACTERS = "0123456789.eE+-"


def redact_outcome(outcome: Outcome, secrets: Collection[str]) -> Outcome:
    """Return the outcome with *** for every secret, in keys too. Without secrets it is the same object."""
    redact = _text_redactor(secrets)
    if redact is None:
        return outcome
    # Here: readers redact values only, and the schema of messages imports pydantic.
    from dagmaster.ports.task_messages import Failed, Released, Succeeded

    match outcome:
        case Succeeded():
            output, metrics = _redact_json(outcome.output, redact), _redact_json(outcome.metrics, redact)
            added = outcome.added
            if added is not None:
                added = added.map_json(lambda body: _redact_json(body, redact))
            return replace(outcome, output=output, metrics=metrics, added=added)
        case Failed():
            ours = {
                key: _redact_json(item, redact) for key, item in outcome.error.items() if key in _OUR_KEYS
            }
            details = {key: item for key, item in outcome.error.items() if key not in _OUR_KEYS}
            return replace(outcome, error={**_redact_json(details, redact), **ours})
        case Released():
            return replace(outcome, reason=redact(outcome.reason))


def redact_value(value: Any, secrets: Collection[str]) -> Any:
    """Return a JSON value with *** for every secret. Without secrets it is the same object, else a copy."""
    redact = _text_redactor(secrets)
    return value if redact is None else _redact_json(value, redact)


def redactor(secrets: Collection[str]) -> Callable[[Any], Any]:
    """Return a function that redacts JSON values, for many values of one job."""
    redact = _text_redactor(secrets)
    return (lambda value: value) if redact is None else (lambda value: _redact_json(value, redact))


def secret_texts(declarations: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[str]:
    """Return the texts and long numbers in inputs that are declared `secret`."""
    return [
        text
        for name, value in inputs.items()
        if (declarations.get(name) or {}).get("secret")
        for text in texts_of(value)
    ]


def texts_of(value: Any) -> Iterator[str]:
    """Yield the texts and long numbers of a secret value, which are redacted wherever they occur."""
    # A short number occurs in many texts: redacting it would protect nothing and corrupt much.
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_of(item)
    elif (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and len(str(value)) >= MIN_SECRET_DIGITS
    ):
        yield str(value)


class JsonTextRedactor:
    """Redacts a JSON text that comes in chunks, for a value that is too large to be parsed.

    It holds back no more than the longest secret or number. Keys that differ only in secrets become equal.
    """

    def __init__(self, secrets: Collection[str]) -> None:
        plain = {variant for secret in secrets if secret for variant in _escaped_variants(secret)}
        # A text that contains JSON is escaped twice in a JSON text.
        self._secrets = _SecretPattern(plain | {twice for one in plain for twice in _json_escaped(one)})
        self._held = ""
        self._covered = 0
        self._is_in_string = False

    def feed(self, text: str, *, is_last: bool = False) -> str:
        """Return what is complete of the text so far, redacted; all of it if this chunk is the last one."""
        text, self._held = self._held + text, ""
        if not self._covered and not self._secrets.occur_in(text):
            return self._pass_on(text, is_last=is_last)
        parts: list[str] = []
        start = 0
        while start < len(text) and not self._held:
            read = self._read_string if self._is_in_string else self._read_between
            start = read(text, start, parts, is_last=is_last)
        return "".join(parts)

    def _pass_on(self, text: str, *, is_last: bool) -> str:
        """Return a text without secrets, but for an end in which a secret or a number may go on."""
        if is_last:
            return text
        end = _before_escape(text, 0, max(0, len(text) - self._secrets.longest + 1))
        quotes = (_ESCAPE.sub("", text[:end]) if "\\" in text else text[:end]).count('"')
        self._is_in_string ^= quotes % 2 == 1
        if not self._is_in_string:
            end = len(text[:end].rstrip(_NUMBER_CHARACTERS))
        self._held = text[end:]
        return text[:end]

    def _read_string(self, text: str, start: int, parts: list[str], *, is_last: bool) -> int:
        """Append the content of a string as far as it is complete; return where it ends."""
        match = _STRING_CONTENT.match(text, start)
        end = len(text) if match is None else match.end()
        is_complete = is_last or text[end : end + 1] == '"'
        until = (
            end if is_complete else _before_escape(text, start, max(start, end - self._secrets.longest + 1))
        )
        redacted, self._covered = self._secrets.redact_part(text[start:end], until - start, self._covered)
        parts.append(redacted)
        if is_complete:
            parts.append(text[end : end + 1])
            self._is_in_string = False
            return end + 1
        self._held = text[until:]
        return len(text)

    def _read_between(self, text: str, start: int, parts: list[str], *, is_last: bool) -> int:
        """Append what is between two strings, numbers that are secrets as texts; return where it ends."""
        quote = text.find('"', start)
        end = len(text) if quote < 0 else quote
        if quote < 0 and not is_last:
            end = start + len(text[start:].rstrip(_NUMBER_CHARACTERS))
            self._held = text[end:]
        parts.append(_NUMBER.sub(self._redact_number, text[start:end]))
        if quote < 0:
            return len(text)
        parts.append('"')
        self._is_in_string = True
        return quote + 1

    def _redact_number(self, match: re.Match[str]) -> str:
        return f'"{REDACTED}"' if self._secrets.redact(match[0]) == REDACTED else match[0]


def _before_escape(text: str, start: int, end: int) -> int:
    """Return the end, or the position before it if an escape begins there and goes on after the end."""
    backslashes = end - start - len(text[start:end].rstrip("\\"))
    return end - backslashes % 2


def _text_redactor(secrets: Collection[str]) -> Callable[[str], str] | None:
    """Return a function that redacts the secrets in a text; None if there are none."""
    if not secrets:
        return None
    variants = {variant for secret in secrets if secret for variant in _escaped_variants(secret)}
    return _SecretPattern(variants).redact if variants else None


class _SecretPattern:
    """Finds secrets in texts, overlapping ones too.

    Of two that start at the same position the longer one wins.
    """

    __slots__ = ("_longest_first", "_pattern", "longest")

    def __init__(self, variants: Collection[str]) -> None:
        self._longest_first = sorted(variants, key=lambda variant: (-len(variant), variant))
        self._pattern = re.compile(f"(?=({'|'.join(map(re.escape, self._longest_first))}))")
        self.longest = len(self._longest_first[0])

    def redact(self, text: str) -> str:
        return self.redact_part(text, len(text))[0]

    def occur_in(self, text: str) -> bool:
        """Return whether a text contains a secret. Few do, and this is much faster than the pattern."""
        return any(variant in text for variant in self._longest_first)

    def redact_part(self, text: str, until: int, covered: int = 0) -> tuple[str, int]:
        """Return a text up to a position, redacted, and how much of the rest belongs to its last secret.

        `covered`: how much of the text belongs to a secret that began before it.
        """
        if not self.occur_in(text):
            return text[covered:until], max(covered - until, 0)
        parts: list[str] = []
        end = covered
        for match in self._pattern.finditer(text):
            if match.start() >= until:
                break
            if match.start() >= end:
                parts += (text[end : match.start()], REDACTED)
            end = max(end, match.end(1))
        return "".join([*parts, text[end:until]]), max(end - until, 0)


def _escaped_variants(secret: str) -> set[str]:
    """Return the secret as it is, and as `repr`, JSON and `storable_text` escape it: it may have a quote."""
    escaped = {repr(secret)[1:-1], *_json_escaped(secret)}
    return {secret, storable_text(secret), *map(storable_text, escaped)}


def _json_escaped(text: str) -> set[str]:
    return {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}


def _redact_json(value: Any, redact: Callable[[str], str]) -> Any:
    """Return a copy with every text redacted. Not recursive: values may be nested deeply."""
    top: list[Any] = []
    pending: list[tuple[Any, Any]] = [([value], top)]

    def copy(item: Any) -> Any:
        if isinstance(item, str):
            return redact(item)
        if isinstance(item, dict | list | tuple):
            target: dict[str, Any] | list[Any] = {} if isinstance(item, dict) else []
            pending.append((item, target))
            return target
        # A number whose text is a secret.
        if isinstance(item, int | float) and not isinstance(item, bool) and redact(str(item)) == REDACTED:
            return REDACTED
        return item

    while pending:
        source, target = pending.pop()
        if isinstance(source, dict):
            for key, item in source.items():
                name = redact(key)
                # Keys that differ only in secrets stay distinct.
                while name in target:
                    name = f"{name} ({len(target)})"
                target[name] = copy(item)
        else:
            target.extend(map(copy, source))
    return top[0]

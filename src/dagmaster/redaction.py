"""Redact secrets in what handlers return, report and log.

Only text is looked at: a secret that was made a number, or spelled backwards, stays. So does the part of one that is
left where a long message was cut.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from dagmaster.ports.task_messages import Failed, Outcome, Released, Succeeded
from dagmaster.text_format import storable_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

REDACTED = "***"
MIN_SECRET_DIGITS = 4
"""Digits of the shortest secret number that is redacted."""

# The keys of an error that we wrote ourselves: a secret that happens to be such a word does not make them unreadable.
_OUR_KEYS = frozenset({"kind", "message", "type", "traceback"})


def redacted(outcome: Outcome, secrets: Collection[str]) -> Outcome:
    """Return the outcome with *** for every secret, in keys too. Without secrets it is the same object."""
    hide = _hider(secrets)
    if hide is None:
        return outcome
    match outcome:
        case Succeeded():
            return Succeeded(_replaced(outcome.output, hide), _replaced(outcome.metrics, hide))
        case Failed():
            ours = {key: _replaced(item, hide) for key, item in outcome.error.items() if key in _OUR_KEYS}
            details = {key: item for key, item in outcome.error.items() if key not in _OUR_KEYS}
            return Failed({**_replaced(details, hide), **ours}, outcome.permanent)
        case Released():
            return Released(hide(outcome.reason))


def redact_value(value: Any, secrets: Collection[str]) -> Any:
    """Return a JSON value with *** for every secret. Without secrets it is the same object, else a copy."""
    hide = _hider(secrets)
    return value if hide is None else _replaced(value, hide)


def redactor(secrets: Collection[str]) -> Callable[[Any], Any]:
    """Return a function that redacts JSON values, for many values of one job."""
    hide = _hider(secrets)
    return (lambda value: value) if hide is None else (lambda value: _replaced(value, hide))


def secret_texts(declarations: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[str]:
    """Return the texts and long numbers in inputs that are declared `secret`."""
    return [
        text for name, value in inputs.items() if (declarations.get(name) or {}).get("secret") for text in _texts(value)
    ]


def _texts(value: Any) -> Iterator[str]:
    # A number of a few digits occurs in any text: to redact it would hide nothing and garble much.
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
    elif isinstance(value, int | float) and not isinstance(value, bool) and len(str(value)) >= MIN_SECRET_DIGITS:
        yield str(value)


def _hider(secrets: Collection[str]) -> Callable[[str], str] | None:
    """Return what replaces the secrets in a text; None if there are none."""
    spellings = {spelling for secret in secrets if secret for spelling in _spellings(secret)}
    if not spellings:
        return None
    # Longest first: of two that start at one place the longer one counts. Looking ahead: all that overlap are found.
    longest_first = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
    pattern = re.compile(f"(?=({'|'.join(map(re.escape, longest_first))}))")

    def hide(text: str) -> str:
        # Nearly no text has a secret, and `in` is much faster than the pattern.
        if not any(spelling in text for spelling in longest_first):
            return text
        parts: list[str] = []
        end = 0
        for found in pattern.finditer(text):
            if found.start() >= end:
                parts += (text[end : found.start()], REDACTED)
            end = max(end, found.end(1))
        return "".join([*parts, text[end:]])

    return hide


def _spellings(secret: str) -> set[str]:
    """Return the secret as `repr`, JSON and our own cleaning write it inside a text: a password may have a quote."""
    written = {repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return {secret, storable_text(secret), *map(storable_text, written)}


def _replaced(value: Any, hide: Callable[[str], str]) -> Any:
    """Return a copy with every text replaced. No recursion: it is as deep as it is."""
    top: list[Any] = []
    waiting: list[tuple[Any, Any]] = [([value], top)]

    def begun(item: Any) -> Any:
        if isinstance(item, str):
            return hide(item)
        if isinstance(item, dict | list | tuple):
            copied: dict[str, Any] | list[Any] = {} if isinstance(item, dict) else []
            waiting.append((item, copied))
            return copied
        # A number that is a secret, or that a secret is the text of.
        if isinstance(item, int | float) and not isinstance(item, bool) and hide(str(item)) == REDACTED:
            return REDACTED
        return item

    while waiting:
        source, target = waiting.pop()
        if isinstance(source, dict):
            for key, item in source.items():
                name = hide(key)
                # Two keys that differed in their secrets stay two.
                while name in target:
                    name = f"{name} ({len(target)})"
                target[name] = begun(item)
        else:
            target.extend(map(begun, source))
    return top[0]

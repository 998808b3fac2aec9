"""Redact secrets in what handlers return, report and log.

Only exact occurrences are redacted: a secret that was encoded or reversed is not, nor is the rest of a secret where a
long message was truncated.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagmaster.text_format import storable_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from dagmaster.ports.task_messages import Outcome

REDACTED = "***"
MIN_SECRET_DIGITS = 4
"""Digits of the shortest secret number that is redacted."""

# Keys of an error that dagmaster wrote: they are kept even if a secret equals one of them.
_OUR_KEYS = frozenset({"kind", "message", "type", "traceback"})


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
            return replace(outcome, output=output, metrics=metrics)
        case Failed():
            ours = {key: _redact_json(item, redact) for key, item in outcome.error.items() if key in _OUR_KEYS}
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
        text for name, value in inputs.items() if (declarations.get(name) or {}).get("secret") for text in _texts(value)
    ]


def _texts(value: Any) -> Iterator[str]:
    # A short number occurs in many texts: redacting it would protect nothing and corrupt much.
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
    elif isinstance(value, int | float) and not isinstance(value, bool) and len(str(value)) >= MIN_SECRET_DIGITS:
        yield str(value)


def _text_redactor(secrets: Collection[str]) -> Callable[[str], str] | None:
    """Return a function that redacts the secrets in a text; None if there are none."""
    variants = {variant for secret in secrets if secret for variant in _escaped_variants(secret)}
    if not variants:
        return None
    # Longest first: of two that start at the same position the longer one wins. Lookahead: overlapping ones match, too.
    longest_first = sorted(variants, key=lambda variant: (-len(variant), variant))
    pattern = re.compile(f"(?=({'|'.join(map(re.escape, longest_first))}))")

    def redact(text: str) -> str:
        # Few texts contain a secret, and `in` is much faster than the pattern.
        if not any(variant in text for variant in longest_first):
            return text
        parts: list[str] = []
        end = 0
        for match in pattern.finditer(text):
            if match.start() >= end:
                parts += (text[end : match.start()], REDACTED)
            end = max(end, match.end(1))
        return "".join([*parts, text[end:]])

    return redact


def _escaped_variants(secret: str) -> set[str]:
    """Return the secret as it is, and as `repr`, JSON and `storable_text` escape it: a password may have a quote."""
    escaped = {repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return {secret, storable_text(secret), *map(storable_text, escaped)}


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

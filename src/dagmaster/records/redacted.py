"""What may be shown of what is stored: `redacted` is the only way out of a record that can contain secrets.

A field that can is marked with `SECRETS`. Such a record has no JSON before it was redacted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dagmaster.records.record import INTERNAL, Record

if TYPE_CHECKING:
    from dagmaster.json_types import JsonObject, JsonValue


class Redactor(Protocol):
    """Replaces the secrets of one job."""

    def __call__(self, value: Any) -> Any:
        """Return a JSON value without the secrets."""

    def inputs(self, inputs: Mapping[str, JsonValue]) -> JsonObject:
        """Return inputs without the secrets; one that is declared secret is replaced whatever it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRecord(Record):
    """A record of which some fields can contain secrets."""

    is_redacted: bool = field(default=False, init=False, compare=False, repr=False, metadata=INTERNAL)
    """Set by `redacted` and by the parser alone: a changed copy has to be redacted again."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values; raise `RuntimeError` if it may contain secrets."""
        if not self.is_redacted and has_secrets(self):
            raise RuntimeError(f"a {type(self).__name__} is shown that was not redacted")
        return Record.to_dict(self)


S = TypeVar("S", bound=SecretRecord)


def has_secrets(record: SecretRecord) -> bool:
    values = (getattr(record, name) for name, _ in _secret_fields(type(record)))
    return any(has_secrets(value) if isinstance(value, SecretRecord) else value for value in values)


def redacted(record: S, redact: Redactor) -> S:
    """Return a record that may be shown. Values that its JSON does not have are dropped."""
    changes = {}
    for name, clean in _secret_fields(type(record)):
        value = getattr(record, name)
        shown = clean(value, redact) if value else value
        if shown is not value:
            changes[name] = shown
    return mark_redacted(replace(record, **changes) if changes else record)


def mark_redacted(record: S) -> S:
    object.__setattr__(record, "is_redacted", True)
    return record


_Clean = Callable[[Any, Redactor], Any]
_known: dict[type[SecretRecord], tuple[tuple[str, _Clean], ...]] = {}


def _secret_fields(record: type[SecretRecord]) -> tuple[tuple[str, _Clean], ...]:
    """Return the fields that can contain secrets, and how each is made showable."""
    if record not in _known:
        marked = [part for part in fields(record) if "secrets" in part.metadata]
        _known[record] = tuple((part.name, _cleaner(part)) for part in marked)
    return _known[record]


def _cleaner(part: Field[Any]) -> _Clean:
    if part.metadata.get("internal"):
        make_default = part.default_factory
        return lambda *_: part.default if make_default is MISSING else make_default()
    return _redact_inputs if part.metadata["secrets"] == "inputs" else _redact_value


def _redact_value(value: Any, redact: Redactor) -> Any:
    return redacted(value, redact) if isinstance(value, SecretRecord) else redact(value)


def _redact_inputs(value: Any, redact: Redactor) -> Any:
    return redact.inputs(value)

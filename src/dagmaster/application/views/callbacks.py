"""Views of callbacks and of what they are signed with."""

from __future__ import annotations

from dataclasses import dataclass, field

from dagmaster.records.callbacks import SigningSecretRecord
from dagmaster.records.record import Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackChangeResult(Record):
    """What became of a change: how many callbacks or endpoints it concerns.

    `left`: how many more it would concern, counted up to 100,000. Send it again, with `next_cursor` if there
    is one.
    """

    count: int
    sentence: str
    left: int = 0
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSigningSecretView(SigningSecretRecord):
    """A new signing secret. `secret`: shown only here; null of a key pair, whose private key never leaves."""

    secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class PublicKeyView(Record):
    """A public key, `whpk_` and base64. `expires_at`: until when callbacks are signed with its pair."""

    key_id: str
    public_key: str
    expires_at: Timestamp | None


@dataclass(frozen=True, slots=True)
class PublicKeysView(Record):
    """The public keys with which callbacks are verified: one valid signature is enough."""

    keys: tuple[PublicKeyView, ...]

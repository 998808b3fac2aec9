"""Signatures of callbacks as Standard Webhooks defines them: HMAC-SHA256 (`v1`) and Ed25519 (`v1a`).

Senders sign with every active secret, receivers accept one valid signature: so a secret can be replaced
without a moment at which callbacks are rejected. What is signed is `ID.TIMESTAMP.BODY`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HMAC_PREFIX: Final = "whsec_"
PRIVATE_PREFIX: Final = "whsk_"
PUBLIC_PREFIX: Final = "whpk_"
HMAC_BYTES: Final = 32
KEY_BYTES: Final = 32
TOLERANCE_SECONDS: Final = 300.0
"""How far the time of a callback may be from the receiver's: an old one is not accepted again."""
_MAX_SIGNATURES: Final = 16
_TIMESTAMP_DIGITS: Final = 12


class SignatureInvalid(ValueError):
    """A callback is not signed with a secret that is known, or is too old."""


def sign(secrets: Iterable[str], callback_id: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature`: one signature for each secret (whsec_, whsk_)."""
    content = _content(callback_id, str(timestamp), body)
    return " ".join(_sign(secret, content) for secret in secrets)


def verify(
    secrets: Iterable[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float,
    tolerance_seconds: float = TOLERANCE_SECONDS,
) -> str:
    """Return the id of a callback with a valid signature; else raise `SignatureInvalid`.

    `secrets`: those that the receiver has (whsec_, whpk_). `headers`: in any case of letters.
    """
    known = {name.lower(): value for name, value in headers.items()}
    try:
        callback_id, timestamp, signatures = (
            known[f"webhook-{name}"] for name in ("id", "timestamp", "signature")
        )
    except KeyError as error:
        raise SignatureInvalid(f"the header {error.args[0]} is missing") from None
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _TIMESTAMP_DIGITS):
        raise SignatureInvalid("the timestamp is not a number of seconds")
    if abs(now - int(timestamp)) > tolerance_seconds:
        raise SignatureInvalid("the timestamp is too far from the time here")
    content = _content(callback_id, timestamp, body)
    candidates = [text.partition(",") for text in signatures.split(" ")[:_MAX_SIGNATURES]]
    for secret in secrets:
        for version, _, signature in candidates:
            if _is_valid(secret, version, signature, content):
                return callback_id
    raise SignatureInvalid("no signature is valid")


def new_hmac_secret(random: bytes) -> str:
    """Return a secret that sender and receiver share, of 24 to 64 random bytes."""
    return HMAC_PREFIX + base64.b64encode(random).decode()


def new_key_pair(random: bytes) -> tuple[str, str]:
    """Return the private and the public key of 32 random bytes."""
    public = _private_key(random).public_key().public_bytes_raw()
    return (
        PRIVATE_PREFIX + base64.b64encode(random + public).decode(),
        PUBLIC_PREFIX + base64.b64encode(public).decode(),
    )


def _content(callback_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{callback_id}.{timestamp}.".encode() + body


def _sign(secret: str, content: bytes) -> str:
    if secret.startswith(PRIVATE_PREFIX):
        # The public half follows the private one.
        signature = _private_key(_decode(secret, PRIVATE_PREFIX)[:KEY_BYTES]).sign(content)
        return f"v1a,{base64.b64encode(signature).decode()}"
    digest = hmac.digest(_decode(secret, HMAC_PREFIX), content, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def _is_valid(secret: str, version: str, signature: str, content: bytes) -> bool:
    if secret.startswith(PUBLIC_PREFIX):
        return version == "v1a" and _is_signed_by(secret, signature, content)
    expected = _sign(secret, content).partition(",")[2]
    return version == "v1" and hmac.compare_digest(expected.encode(), signature.encode())


def _is_signed_by(public_key: str, signature: str, content: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = base64.b64decode(signature, validate=True)
        # One text for one signature: base64 with other bits in its padding decodes to the same bytes.
        if base64.b64encode(raw).decode() != signature:
            return False
        Ed25519PublicKey.from_public_bytes(_decode(public_key, PUBLIC_PREFIX)).verify(raw, content)
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def _private_key(raw: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(raw)


def _decode(secret: str, prefix: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(prefix), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not a secret: it begins with {prefix}, and base64 follows") from error

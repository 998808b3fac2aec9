"""Callbacks are signed as Standard Webhooks defines it; what was changed is not accepted."""

from __future__ import annotations

import base64
import random
import time

import pytest
import standardwebhooks
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dagmaster.webhook_signatures import SignatureInvalid, new_hmac_secret, new_key_pair, sign, verify

ID = "msg_3202875d1f8f489ab7b0aeed3d3ab9d6"
BODY = b'{"type":"request.completed","request_id":"0b1c","status":"completed"}'
SECRET, OTHER = new_hmac_secret(bytes(range(32))), new_hmac_secret(bytes(32))
PRIVATE, PUBLIC = new_key_pair(bytes(range(1, 33)))


def headers(*secrets: str, at: int) -> dict[str, str]:
    return {
        "webhook-id": ID,
        "webhook-timestamp": str(at),
        "webhook-signature": sign(secrets, ID, at, BODY),
    }


def test_the_package_of_the_standard_accepts_our_signature_and_we_accept_its_own():
    now = int(time.time())
    assert standardwebhooks.Webhook(SECRET).verify(BODY, headers(SECRET, at=now)) == {
        "type": "request.completed", "request_id": "0b1c", "status": "completed",
    }  # fmt: skip
    # Also with a second secret, during a rotation.
    both = headers(OTHER, SECRET, at=now)
    standardwebhooks.Webhook(SECRET).verify(BODY, both)
    standardwebhooks.Webhook(OTHER).verify(BODY, both)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(OTHER).verify(BODY, headers(SECRET, at=now))


def test_a_key_pair_signs_what_its_public_key_verifies():
    signed = headers(PRIVATE, at=1_700_000_000)
    version, _, signature = signed["webhook-signature"].partition(",")
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(PUBLIC.removeprefix("whpk_")))
    key.verify(base64.b64decode(signature), f"{ID}.1700000000.".encode() + BODY)
    assert version == "v1a"
    assert verify([PUBLIC], signed, BODY, now=1_700_000_000) == ID
    with pytest.raises(InvalidSignature):
        key.verify(base64.b64decode(signature), BODY)


def test_one_valid_signature_of_several_is_enough_in_either_kind():
    signed = headers(OTHER, PRIVATE, SECRET, at=100)
    for secret in (SECRET, OTHER, PUBLIC):
        assert verify([secret], signed, BODY, now=100) == ID
    assert verify([new_hmac_secret(b"x" * 32), PUBLIC], signed, BODY, now=100) == ID


@pytest.mark.parametrize("now", [100 + 301, 100 - 301])
def test_a_callback_of_another_time_is_not_accepted(now):
    with pytest.raises(SignatureInvalid, match="too far"):
        verify([SECRET], headers(SECRET, at=100), BODY, now=now)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_callback_without_a_header_is_not_accepted(name):
    signed = headers(SECRET, at=100)
    del signed[name]
    with pytest.raises(SignatureInvalid, match=name):
        verify([SECRET], signed, BODY, now=100)


def test_the_versions_of_signatures_are_not_mixed_up():
    """What HMAC makes is no signature of a key, and a public key is no shared secret."""
    forged = sign(["whsec_" + PUBLIC.removeprefix("whpk_")], ID, 100, BODY)
    for text in (forged, forged.replace("v1,", "v1a,")):
        with pytest.raises(SignatureInvalid):
            verify([PUBLIC], {**headers(SECRET, at=100), "webhook-signature": text}, BODY, now=100)


def test_of_ten_thousand_callbacks_that_were_changed_none_is_accepted():
    chance, accepted = random.Random(27), 0
    for number in range(10_000):
        secret, known = ((SECRET, SECRET), (PRIVATE, PUBLIC))[number % 2]
        signed, body = headers(secret, at=100), BODY
        match chance.randrange(6):
            case 0:
                position = chance.randrange(len(body))
                body = (
                    body[:position]
                    + bytes([body[position] ^ (1 << chance.randrange(8))])
                    + body[position + 1 :]
                )
            case 1:
                body = body[: chance.randrange(len(body))] + chance.randbytes(chance.randrange(3))
                body += b"" if body != BODY else b"x"
            case 2:
                signed["webhook-id"] = f"msg_{chance.getrandbits(128):032x}"
            case 3:
                signed["webhook-timestamp"] = str(100 + chance.choice([-1, 1]) * chance.randrange(1, 300))
            case 4:
                version, _, text = signed["webhook-signature"].partition(",")
                position = chance.randrange(len(text))
                other = chance.choice([one for one in "ABCDwxyz0189+/=" if one != text[position]])
                signed["webhook-signature"] = f"{version},{text[:position]}{other}{text[position + 1 :]}"
            case _:
                wrong = (new_hmac_secret(chance.randbytes(32)), new_key_pair(chance.randbytes(32))[0])[
                    number % 2
                ]
                signed["webhook-signature"] = sign([wrong], ID, 100, BODY)
        try:
            verify([known], signed, body, now=100)
            accepted += 1
        except SignatureInvalid:
            pass
    assert accepted == 0

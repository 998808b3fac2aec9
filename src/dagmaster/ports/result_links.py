"""The address of a request's result: it expires, and who follows it needs a key of the partner as well.

A relay makes it, and a gateway checks it. What signs it is a random value of the request
(`dag_api_requests.result_key`), so that neither of them needs a secret.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

_MAX_DIGITS: Final = 12
RESULT_PATH: Final = "/platform/results/{request_id}"
"""The route of a gateway. `expires` (seconds since the epoch) and `signature` are parameters of its query."""


def sign_result(result_key: str, request_id: str, expires_at: int) -> str:
    """Return the signature of an address."""
    text = f"{request_id.lower()}.{expires_at}".encode()
    return hmac.new(result_key.lower().encode(), text, hashlib.sha256).hexdigest()


def result_link(base_url: str, result_key: str, request_id: str, expires_at: int) -> str:
    """Return the address of a request's result, valid until a time. `base_url`: of the gateway."""
    path = RESULT_PATH.format(request_id=request_id)
    signature = sign_result(result_key, request_id, expires_at)
    return f"{base_url.rstrip('/')}{path}?expires={expires_at}&signature={signature}"


def is_result_link_valid(
    result_key: str, request_id: str, expires: str, signature: str, *, now: float
) -> bool:
    """Return whether the parameters of an address are as they were made, and not expired.

    `result_key` is that of the request as the caller's own tenant sees it, and no other one does.
    """
    if not (expires.isascii() and expires.isdigit() and len(expires) <= _MAX_DIGITS):
        return False
    expected = sign_result(result_key, request_id, int(expires))
    return hmac.compare_digest(expected.encode(), signature.encode()) and now < int(expires)

"""Callbacks as they are sent: a thin body, and the headers of Standard Webhooks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from dagmaster.ports.default_settings import RESULT_LINK_HOURS
from dagmaster.ports.result_links import result_link
from dagmaster.text_format import format_rfc3339
from dagmaster.webhook_signatures import sign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.callbacks import ClaimedCallback

_AGENT: Final = f"dagmaster/{version('dagmaster')} (callbacks)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLinks:
    """Where results are fetched. Without an address, a body has no link.

    `gateway_url`: for partners; `public_url`: of the ordinary API.
    """

    gateway_url: str | None = None
    public_url: str | None = None
    valid_seconds: float = RESULT_LINK_HOURS * 3600.0

    def of(self, callback: ClaimedCallback, now: float) -> str | None:
        """Return the address of the result, new in each attempt: an old one may have expired."""
        if callback.request_id is None:
            if self.public_url is None:
                return None
            return f"{self.public_url.rstrip('/')}/api/v1/jobs/{callback.job_id}"
        if self.gateway_url is None or callback.result_key is None:
            return None
        expires_at = int(now + self.valid_seconds)
        return result_link(self.gateway_url, callback.result_key, callback.request_id, expires_at)


def callback_body(callback: ClaimedCallback, links: ResultLinks, now: float) -> bytes:
    """Return the body. That of a request has nothing of the job that it led to."""
    kind, subject = "request", {"request_id": callback.request_id}
    if callback.request_id is None:
        kind, subject = "job", {"job_id": callback.job_id}
    body = {
        "type": f"{kind}.{callback.state}",
        "timestamp": format_rfc3339(callback.occurred_at),
        **subject,
        "status": callback.state.value,
        "error": callback.reason,
        "result_url": links.of(callback, now),
    }
    return json.dumps(body, separators=(",", ":")).encode()


def callback_headers(
    callback: ClaimedCallback, secrets: Sequence[str], body: bytes, now: float
) -> dict[str, str]:
    """Return the headers: each attempt has its time and signatures, the id never changes."""
    timestamp = int(now)
    return {
        "content-type": "application/json",
        "user-agent": _AGENT,
        "webhook-id": callback.callback_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secrets, callback.callback_id, timestamp, body),
    }

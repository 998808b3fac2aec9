"""When a request is sent again, and after which pause."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx

TOO_MANY: Final = 429
UNAVAILABLE: Final = 503
_GATEWAY_ERRORS: Final = frozenset({502, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often a request is sent, and how long the pauses are. The server may ask for a longer one."""

    attempts: int = 4
    base_seconds: float = 0.25
    max_seconds: float = 10.0

    def pause_after(self, attempt: int, response: httpx.Response | None = None) -> float:
        """Return the pause after an attempt (1, 2, …), with jitter: clients must not return all at once."""
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - it only spreads requests
        backoff = float(min(self.base_seconds * 2 ** (attempt - 1), self.max_seconds)) * jitter
        asked = 0.0 if response is None else _retry_after(response)
        return min(max(backoff, asked), self.max_seconds)


def may_retry(response: httpx.Response, *, is_repeatable: bool) -> bool:
    """Return whether a request may be sent again after this answer.

    429 means that nothing was done. After 503, 502 or 504 something may have been done: only a request that
    has the same effect twice (a read, or one with an idempotency key) is sent again.
    """
    status = response.status_code
    return status == TOO_MANY or (is_repeatable and (status == UNAVAILABLE or status in _GATEWAY_ERRORS))


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdigit() else 0.0

"""The rate limit of each caller: a token bucket in this process, in constant time and bounded memory.

Several servers each have their own: together they let a caller send that many times as much.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.errors import RateLimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_CALLERS: Final = 10_000
"""Callers that are remembered. The one that was silent for longest is forgotten first: its bucket is full
again."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a caller may still send."""

    policy: str
    remaining: int
    reset_seconds: float
    """When all of it may be sent again."""
    wait_seconds: float
    """When the next request may be sent; 0: this one may."""

    def check(self) -> None:
        """Raise `RateLimitExceeded` if the request may not be sent now."""
        if self.wait_seconds > 0:
            raise RateLimitExceeded(
                f"too many requests: send the next one in {self.wait_seconds:.3g} s",
                retry_after_seconds=self.wait_seconds,
            )

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the fields of draft-ietf-httpapi-ratelimit-headers."""
        state = f'"caller";r={self.remaining};t={math.ceil(self.reset_seconds)}'
        return [(b"ratelimit-policy", self.policy.encode()), (b"ratelimit", state.encode())]


class RateLimiter:
    """Lets each caller send `per_second` requests, and `burst` at once.

    A bucket is one number, the time at which it is full again (the generic cell rate algorithm).
    """

    def __init__(
        self, per_second: float, burst: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval = 1.0 / per_second
        self._burst = burst
        self._monotonic = monotonic
        self._full_at: OrderedDict[str, float] = OrderedDict()
        self._policy = f'"caller";q={burst};w={math.ceil(burst * self._interval)}'

    def take(self, caller_id: str) -> Allowance:
        """Take a request from a caller's bucket, if it has one; return what is left."""
        full_at, allowance = self._take(caller_id)
        self._full_at.pop(caller_id, None)
        self._full_at[caller_id] = full_at
        if len(self._full_at) > MAX_CALLERS:
            self._full_at.popitem(last=False)
        return allowance

    def peek(self, caller_id: str) -> Allowance:
        """Return what `take` would return, and take nothing."""
        return self._take(caller_id)[1]

    def _take(self, caller_id: str) -> tuple[float, Allowance]:
        """Return when the bucket is full again after one more request, and what is left of it."""
        now = self._monotonic()
        full_at = max(self._full_at.get(caller_id, now), now)
        free = self._burst - (full_at - now) / self._interval
        # A sum of intervals is a little off.
        if is_allowed := free >= 1 - 1e-6:
            full_at += self._interval
            free -= 1
        wait_seconds = 0.0 if is_allowed else (1 - free) * self._interval
        return full_at, Allowance(self._policy, max(0, math.floor(free + 1e-6)), full_at - now, wait_seconds)

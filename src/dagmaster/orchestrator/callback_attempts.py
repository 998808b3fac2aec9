"""What follows from an attempt to deliver a callback: pure, with time and jitter as arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.ports.callbacks import FAILING, CallbackOutcome, Verdict
from dagmaster.ports.default_settings import CALLBACK_RETRY_SECONDS

if TYPE_CHECKING:
    from dagmaster.ports.callbacks import ClaimedCallback, Delivery

GONE: Final = 410
MAX_RETRY_AFTER_SECONDS: Final = 6 * 3600.0
"""The longest that an endpoint may ask to wait."""
FIRST_CLOSED_SECONDS: Final = 1.0
MAX_CLOSED_SECONDS: Final = 300.0
UNSIGNED_SECONDS: Final = 60.0
"""How long a callback waits that this process cannot sign: an operator has to give it the key."""
SHORT_SECONDS: Final = 1.0
MAX_ERROR: Final = 300


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """How long a callback waits after each failed attempt; after the last of them it is dead."""

    delays: tuple[float, ...] = CALLBACK_RETRY_SECONDS

    def delay(self, failures: int, jitter: float) -> float | None:
        """Return the delay after this many failures, a quarter more or less; None: there is no other try."""
        if failures > len(self.delays):
            return None
        return self.delays[failures - 1] * (0.75 + 0.5 * jitter)


def closed_seconds(failures: int, jitter: float) -> float:
    """Return how long nothing is sent to an endpoint that failed so often in a row."""
    if failures < FAILING:
        return 0.0
    delay = FIRST_CLOSED_SECONDS * 2.0 ** min(failures - FAILING, 30)
    return min(delay, MAX_CLOSED_SECONDS) * (0.75 + 0.5 * jitter)


def judge(
    callback: ClaimedCallback, delivery: Delivery, schedule: RetrySchedule, jitter: float
) -> CallbackOutcome:
    """Return what becomes of a callback after an attempt."""
    status = delivery.status
    if status is not None and 200 <= status < 300:  # noqa: PLR2004 - the statuses of success
        return CallbackOutcome(callback=callback, verdict=Verdict.DELIVERED, status=status)
    error = (delivery.error or f"answered {status}")[:MAX_ERROR]
    if status == GONE:
        return CallbackOutcome(
            callback=callback, verdict=Verdict.DEAD, status=status, error=error, dead_reason="gone"
        )
    asked = min(delivery.retry_after_seconds or 0.0, MAX_RETRY_AFTER_SECONDS)
    closed = max(asked, closed_seconds(callback.failures + 1, jitter))
    delay = schedule.delay(callback.attempts + 1, jitter)
    if delay is None:
        return CallbackOutcome(
            callback=callback,
            verdict=Verdict.DEAD,
            status=status,
            error=error,
            closed_seconds=closed,
            dead_reason="exhausted",
        )
    return CallbackOutcome(
        callback=callback,
        verdict=Verdict.RETRY,
        status=status,
        error=error,
        delay_seconds=max(delay, asked),
        closed_seconds=closed,
    )


def unsendable(callback: ClaimedCallback, error: str) -> CallbackOutcome:
    """Return the end of a callback whose address no attempt can reach."""
    return CallbackOutcome(
        callback=callback, verdict=Verdict.DEAD, error=error[:MAX_ERROR], dead_reason="url_invalid"
    )


def postponed(callback: ClaimedCallback, error: str, seconds: float = UNSIGNED_SECONDS) -> CallbackOutcome:
    """Return what becomes of a callback that this process could not send: no attempt is used up."""
    return CallbackOutcome(
        callback=callback, verdict=Verdict.POSTPONED, error=error[:MAX_ERROR], delay_seconds=seconds
    )

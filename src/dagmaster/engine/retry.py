"""Retry policy and backoff of failed attempts. The jitter is an argument."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEFAULT_MAX_ATTEMPTS: Final = 3


class Backoff(StrEnum):
    """How the delay grows from one failure to the next."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a node is attempted, and how long it waits before a retry.

    `max_attempts` counts failures of the handler; `max_lost` counts attempts lost with a worker that ran
    nothing else.
    """

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    backoff: Backoff = Backoff.EXPONENTIAL
    initial_delay_seconds: float = 5.0
    max_delay_seconds: float = 300.0
    jitter: bool = True
    max_lost: int = 3


NO_RETRY = RetryPolicy(max_attempts=1)

# 2**60 initial delays exceed every maximum; a larger exponent would only overflow the float.
_MAX_DOUBLINGS = 60


def retry_delay(policy: RetryPolicy, failures: int, jitter: float) -> float:
    """Return the delay in seconds after this many failures.

    `jitter` in [0, 1) varies it within its upper half.
    """
    if policy.backoff is Backoff.EXPONENTIAL:
        delay = policy.initial_delay_seconds * 2.0 ** min(failures - 1, _MAX_DOUBLINGS)
    elif policy.backoff is Backoff.LINEAR:
        delay = policy.initial_delay_seconds * failures
    else:
        delay = policy.initial_delay_seconds
    delay = min(delay, policy.max_delay_seconds)
    return delay * (0.5 + 0.5 * jitter) if policy.jitter else delay


def jitter_for(job_id: str, node_id: str, attempt: int) -> float:
    """Return a number in [0, 1) that is the same in every process for the same attempt."""
    return zlib.crc32(f"{job_id}/{node_id}/{attempt}".encode()) / 2**32

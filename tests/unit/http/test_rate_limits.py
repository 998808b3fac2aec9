"""The rate limit of a caller."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.errors import RateLimitExceeded
from dagmaster.http import rate_limits
from dagmaster.http.rate_limits import RateLimiter
from dagmaster.ports.api_keys import Scope
from tests.unit.http.api_client import opened_api


class Hand:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_accepted_and_then_one_request_an_interval():
    hand = Hand()
    limiter = RateLimiter(10, 5, hand)
    assert [limiter.take("a").remaining for _ in range(5)] == [4, 3, 2, 1, 0]
    refused = limiter.take("a")
    assert refused.wait_seconds == pytest.approx(0.1)
    with pytest.raises(RateLimitExceeded):
        refused.check()
    assert limiter.take("b").remaining == 4, "each caller has a bucket of its own"
    hand.now += 0.1
    assert limiter.take("a").wait_seconds == 0
    assert limiter.take("a").wait_seconds > 0
    hand.now += 100
    assert limiter.take("a").remaining == 4


@given(
    per_second=st.floats(0.1, 1_000),
    burst=st.integers(1, 50),
    steps=st.lists(st.floats(0, 2), max_size=200),
)
def test_no_window_has_more_than_its_share(per_second, burst, steps):
    hand = Hand()
    limiter = RateLimiter(per_second, burst, hand)
    accepted = []
    for step in steps:
        hand.now += step
        if limiter.take("a").wait_seconds == 0:
            accepted.append(hand.now)
    for first, start in enumerate(accepted):
        for last in range(first, len(accepted)):
            window = accepted[last] - start
            assert last - first + 1 <= burst + window * per_second + 1e-3


def test_memory_is_bounded_and_the_caller_that_is_silent_for_longest_is_forgotten(monkeypatch):
    monkeypatch.setattr(rate_limits, "MAX_CALLERS", 3)
    limiter = RateLimiter(1, 1, Hand())
    for caller in ("a", "b", "c", "a", "d"):
        limiter.take(caller)
    assert list(limiter._full_at) == ["c", "a", "d"]
    assert limiter.take("a").wait_seconds > 0


def test_a_caller_that_is_too_fast_gets_429_with_the_time_to_wait():
    async def main() -> None:
        hand = Hand()
        async with opened_api(rate_limiter=RateLimiter(0.5, 2, hand)) as api:
            first = await api.get("/api/v1/jobs")
            assert first.headers["ratelimit-policy"] == '"caller";q=2;w=4'
            assert first.headers["ratelimit"] == '"caller";r=1;t=2'
            assert (await api.get("/api/v1/jobs")).status_code == 200
            refused = await api.get("/api/v1/jobs")
            assert (refused.status_code, refused.json()["code"]) == (429, "rate_limit_exceeded")
            assert refused.headers["content-type"] == "application/problem+json"
            assert (refused.headers["retry-after"], refused.headers["ratelimit"]) == ("2", '"caller";r=0;t=4')
            assert (await api.http.get("/livez")).status_code == 200, "open routes have no limit"
            await api.use_key(Scope.READ, name="ada")
            assert (await api.get("/api/v1/jobs")).status_code == 200, "the limit is of a key, not of a name"

    asyncio.run(main())

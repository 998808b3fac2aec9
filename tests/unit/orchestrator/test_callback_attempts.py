"""What follows from an attempt to deliver a callback."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.orchestrator.callback_attempts import (
    MAX_CLOSED_SECONDS,
    MAX_RETRY_AFTER_SECONDS,
    RetrySchedule,
    closed_seconds,
    judge,
)
from dagmaster.ports.callbacks import FAILING, ClaimedCallback, Delivery, Verdict
from dagmaster.records.callbacks import CallbackState

CALLBACK = ClaimedCallback(
    callback_id="msg_1",
    lease_token=1,
    tenant="acme",
    endpoint="https://example.com",
    url="https://example.com/x",
    request_id="r",
    job_id="1",
    run=1,
    state=CallbackState.COMPLETED,
    reason=None,
    occurred_at=0.0,
    attempts=0,
    failures=0,
    result_key="k",
)
SCHEDULE = RetrySchedule()


@pytest.mark.parametrize("status", [200, 202, 204, 299])
def test_every_status_of_success_delivers(status):
    assert judge(CALLBACK, Delivery(status), SCHEDULE, 0.5).verdict is Verdict.DELIVERED


@pytest.mark.parametrize("status", [None, 101, 301, 307, 400, 401, 404, 429, 500, 503])
def test_everything_else_is_tried_again(status):
    assert judge(CALLBACK, Delivery(status, "no"), SCHEDULE, 0.5).verdict is Verdict.RETRY


def test_an_endpoint_that_is_gone_gets_no_second_try():
    outcome = judge(CALLBACK, Delivery(410), SCHEDULE, 0.5)
    assert (outcome.verdict, outcome.dead_reason) == (Verdict.DEAD, "gone")


def test_eight_tries_take_about_a_day():
    delays = []
    for attempts in range(7):
        outcome = judge(replace(CALLBACK, attempts=attempts), Delivery(500), SCHEDULE, 0.5)
        assert outcome.verdict is Verdict.RETRY
        delays.append(outcome.delay_seconds)
    assert delays == sorted(delays)
    assert 20 * 3600 < sum(delays) < 28 * 3600
    last = judge(replace(CALLBACK, attempts=7), Delivery(500), SCHEDULE, 0.5)
    assert (last.verdict, last.dead_reason) == (Verdict.DEAD, "exhausted")


@given(st.integers(min_value=1, max_value=7), st.floats(min_value=0, max_value=1, exclude_max=True))
def test_jitter_moves_a_delay_by_a_quarter(failures, jitter):
    middle, delay = SCHEDULE.delay(failures, 0.5), SCHEDULE.delay(failures, jitter)
    assert middle is not None
    assert delay is not None
    assert 0.75 * middle <= delay <= 1.25 * middle


def test_an_endpoint_says_when_to_come_again_within_limits():
    patient = judge(CALLBACK, Delivery(429, retry_after_seconds=1000.0), SCHEDULE, 0.5)
    assert patient.delay_seconds == patient.closed_seconds == 1000.0
    endless = judge(CALLBACK, Delivery(503, retry_after_seconds=1e12), SCHEDULE, 0.5)
    assert endless.closed_seconds == MAX_RETRY_AFTER_SECONDS


@given(st.integers(min_value=0, max_value=10_000), st.floats(min_value=0, max_value=1, exclude_max=True))
def test_an_endpoint_that_fails_again_and_again_is_left_alone_for_a_while(failures, jitter):
    seconds = closed_seconds(failures, jitter)
    assert (seconds == 0) == (failures < FAILING)
    assert seconds <= 1.25 * MAX_CLOSED_SECONDS

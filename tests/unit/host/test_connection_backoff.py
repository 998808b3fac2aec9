"""Outages in the log: one line when one starts, one when it ends."""

from __future__ import annotations

import logging

import pytest

from dagmaster.errors import DatabaseUnavailable
from dagmaster.host.connection_backoff import ConnectionBackoff

LOGGER = logging.getLogger("test_connection_backoff")
LOST = "the connection to the database was lost; reconnecting with backoff"
FAILED = "no route; retrying with backoff"
RESTORED = "the connection to the database was restored"


def test_an_outage_is_logged_when_it_starts_and_when_it_ends(caplog: pytest.LogCaptureFixture):
    backoff = ConnectionBackoff(LOGGER)
    backoff.on_success()
    backoff.on_disconnect()
    backoff.on_disconnect()
    backoff.on_failure(DatabaseUnavailable("no route"))
    backoff.on_success(since=backoff.failures)
    backoff.on_success()
    assert caplog.messages == [LOST, RESTORED]


def test_a_call_that_began_before_a_connection_was_lost_does_not_end_the_outage(
    caplog: pytest.LogCaptureFixture,
):
    backoff = ConnectionBackoff(LOGGER)
    before = backoff.failures
    backoff.on_failure(DatabaseUnavailable("no route"))
    backoff.on_success(since=before)
    backoff.on_disconnect()
    backoff.on_success(since=backoff.failures)
    assert caplog.messages == [FAILED, RESTORED]


def test_the_delay_doubles_up_to_its_maximum_and_starts_again_after_a_success():
    backoff = ConnectionBackoff(LOGGER, max_seconds=0.3)
    error = DatabaseUnavailable("no route")
    assert [backoff.on_failure(error) for _ in range(4)] == [0.1, 0.2, 0.3, 0.3]
    backoff.on_success()
    assert backoff.on_failure(error) == pytest.approx(0.1)

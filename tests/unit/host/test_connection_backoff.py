"""Outages in the log: one line when one starts, one when it ends."""

from __future__ import annotations

import logging

import pytest

from dagmaster.errors import DatabaseDiskFull, DatabaseReadOnly, DatabaseUnavailable
from dagmaster.host.connection_backoff import QUIET_SECONDS, ConnectionBackoff

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


def test_a_full_disk_that_only_some_calls_meet_is_one_line_until_it_is_over(caplog: pytest.LogCaptureFixture):
    """Heartbeats succeed between the turns that fail: that was a pair of lines for each turn."""
    now = [0.0]
    backoff = ConnectionBackoff(LOGGER, max_seconds=1.0, clock=lambda: now[0])
    full = DatabaseDiskFull("the disk is full")
    delays = []
    for _ in range(100):
        delays.append(backoff.on_failure(full))
        backoff.on_success()
        now[0] += QUIET_SECONDS / 2
    assert delays[:5] == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert caplog.messages == ["the disk is full; retrying with backoff"]
    # Another condition is another line, and so is a lost connection.
    backoff.on_failure(DatabaseReadOnly("a standby"))
    backoff.on_disconnect()
    backoff.on_success()
    assert caplog.messages[1:] == ["a standby; retrying with backoff", LOST, RESTORED]
    now[0] += QUIET_SECONDS
    backoff.on_success()
    backoff.on_success()
    assert caplog.messages[4:] == ["no call has failed for 60 s since: a standby"]

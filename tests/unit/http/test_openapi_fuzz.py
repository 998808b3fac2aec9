"""The API answers any request that its OpenAPI document allows, and any that it does not, without a server error."""

from __future__ import annotations

import pytest

from tests.unit.http.api_fuzzing import run_fuzz

pytestmark = [pytest.mark.slow, pytest.mark.process]


def test_no_request_of_any_scope_causes_a_server_error_or_an_answer_that_is_not_documented():
    report = run_fuzz(seed=20_261_117, examples=2)
    assert report.failures == []
    assert sum(report.statuses.values()) > 500
    # The requests reach the routes: some are answered, and some rejected for each reason.
    assert report.statuses.keys() >= {200, 202, 400, 401, 403, 404, 409, 422}

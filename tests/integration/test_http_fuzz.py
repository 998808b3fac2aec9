"""The API on PostgreSQL answers any request, valid or not, without a server error. The scopes are walked in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.http.api_fuzzing import postgres_world, run_fuzz

if TYPE_CHECKING:
    from pathlib import Path


def test_no_request_causes_a_server_error_on_postgres(dsn: str, tmp_path: Path):
    world = postgres_world(dsn, tmp_path)
    report = run_fuzz(seed=20_261_118, examples=1, world=world, walks_scopes=False)
    assert report.failures == []
    assert len(report.operations) > 60
    assert report.statuses.keys() >= {200, 202, 404, 422}

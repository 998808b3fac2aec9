"""Footprints of a job, printed and drawn, and the error if a job has none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from dagmaster.application.queries.jobs import job_footprints
from dagmaster.cli.commands import jobs_footprints
from dagmaster.engine.status import NodeStatus
from dagmaster.ports.read_store import FootprintRecord
from dagmaster.records.nodes import NodeRecord
from tests.unit.application.world import FakeReadStore, a_record, an_application, run

if TYPE_CHECKING:
    from pathlib import Path


def a_footprint(index: int, footprint: Any) -> FootprintRecord:
    return FootprintRecord(
        NodeRecord(
            node_id=f"tiles__{index}",
            parent_node_id="tiles",
            fan_out_index=index,
            status=NodeStatus.COMPLETED,
            attempt=1,
            error=None,
        ),
        footprint,
    )


A_TILE = a_footprint(0, [0, 0, 1, 1])
NOWHERE = a_footprint(1, "somewhere")


def ask(monkeypatch: pytest.MonkeyPatch, command: Any, *arguments: str, placed: list[FootprintRecord]) -> Any:
    view = run(job_footprints(an_application(FakeReadStore([a_record()], footprint_records=placed)), "7"))
    monkeypatch.setattr(jobs_footprints, "on_system", lambda _data_dir, _query: view)
    return CliRunner().invoke(command, ["last", *arguments], standalone_mode=True)


@pytest.mark.parametrize("placed", [[], [NOWHERE]])
def test_a_job_without_footprints_is_an_error_and_nothing_is_printed(monkeypatch, tmp_path: Path, placed):
    picture = tmp_path / "x.png"
    for command, arguments in (
        (jobs_footprints.footprints, ()),
        (jobs_footprints.draw, ("-o", str(picture))),
    ):
        done = ask(monkeypatch, command, *arguments, placed=placed)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.count("job 7 has no footprints") == 1
    assert not picture.exists()


def test_children_that_have_a_footprint_are_printed(monkeypatch):
    done = ask(monkeypatch, jobs_footprints.footprints, placed=[A_TILE, NOWHERE])
    assert [feature["id"] for feature in json.loads(done.stdout)["features"]] == ["tiles__0"]

"""Footprints of a job, printed and drawn, and the one sentence about a job that has none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from dagmaster.cli.commands import jobs_footprints
from dagmaster.store.postgres.legacy_read_store import PlacedNode
from tests.unit.cli.views import head

if TYPE_CHECKING:
    from pathlib import Path

A_TILE = PlacedNode("tiles__0", "tiles", 0, "COMPLETED", 1, None, [0, 0, 1, 1])
NOWHERE = PlacedNode("tiles__1", "tiles", 1, "COMPLETED", 1, None, "somewhere")


def ask(monkeypatch: pytest.MonkeyPatch, command: Any, *arguments: str, placed: list[PlacedNode]) -> Any:
    monkeypatch.setattr(jobs_footprints, "on_database", lambda _data_dir, _work: (head(), placed))
    return CliRunner().invoke(command, ["last", *arguments], standalone_mode=True)


@pytest.mark.parametrize("placed", [[], [NOWHERE]])
def test_a_job_without_a_place_is_refused_once_and_nothing_is_printed(monkeypatch, tmp_path: Path, placed):
    picture = tmp_path / "x.png"
    for command, arguments in ((jobs_footprints.footprints, ()), (jobs_footprints.draw, ("-o", str(picture)))):
        done = ask(monkeypatch, command, *arguments, placed=placed)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.count("job 7 has nothing to draw") == 1
    assert not picture.exists()


def test_children_that_have_a_place_are_printed(monkeypatch):
    done = ask(monkeypatch, jobs_footprints.footprints, placed=[A_TILE, NOWHERE])
    assert [one["id"] for one in json.loads(done.stdout)["features"]] == ["tiles__0"]

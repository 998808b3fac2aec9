"""A cut or bit-flipped file of any format is read, or refused with a sentence; `make soak` tries many more."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.unit.geo.formats import fuzzing

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.slow]
SEED = 1


def test_damaged_files_of_every_format_are_read_or_refused(tmp_path: Path):
    outcomes = fuzzing.fuzz(list(fuzzing.originals(tmp_path)), range(SEED, SEED + 1))
    assert set(outcomes) == {"read", "refused"}


def test_a_child_that_crashes_is_counted_and_started_again(tmp_path: Path):
    child = fuzzing.Child()
    task = {"kind": "vector", "folder": str(tmp_path), "name": "x.csv", "params": {}}
    try:
        assert child.read({**task, "kind": "crash"}) == "crashed"
        (tmp_path / "x.csv").write_text("lon,lat\n1,2\n")
        assert child.read(task) == "read"
        (tmp_path / "x.csv").write_text("a,b\n1,2\n")
        assert child.read(task) == "refused"
        with pytest.raises(fuzzing.RawError, match="KeyError: 'unknown'"):
            child.read({**task, "kind": "unknown"})
    finally:
        child.stop()


def test_the_same_seed_makes_the_same_damage():
    data = bytes(range(256)) * 8
    damaged = [fuzzing.damage(data, random.Random(seed)) for seed in range(200)]
    assert damaged == [fuzzing.damage(data, random.Random(seed)) for seed in range(200)]
    assert sum(one != data for one in damaged) > 190
    assert fuzzing.damage(b"", random.Random(1)) == b""

"""The counts of soaks accumulate."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests import soak
from tests.acceptance.chaos.scenarios import Done
from tests.soak import Round, SoakState


@pytest.fixture
def state(tmp_path, monkeypatch):
    path = tmp_path / "soak.json"
    monkeypatch.setattr(soak, "STATE", path)
    return path


def test_a_soak_goes_on_from_the_last_seed_and_its_counts_add_up(state, monkeypatch, capsys):
    seeds = []

    def once(seed: int, _seconds: float) -> Done:
        seeds.append(seed)
        # The last one: there is nothing more to do.
        soak.ROUNDS.clear()
        return Done(Counter({"stop owner": 2}), {"stop owner": [1.0, 3.0]})

    for _ in range(3):
        # A round that does not fit into the remaining time does not start.
        rounds = [Round("long", _never, 3600.0), Round("once", once, 1.0)]
        monkeypatch.setattr(soak, "ROUNDS", rounds)
        assert soak.soak(SoakState.load(state), time.monotonic() + 60) == 0
    assert seeds == [1, 2, 3]
    known = SoakState.load(state)
    assert known.counts == {"stop owner": 6}
    (line,) = [line for line in known.table() if line.startswith("stop owner")]
    assert line.split()[2:6] == ["6", "200", "3.0", "s"]


def _never(_seed: int, _seconds: float) -> Done:
    raise AssertionError("there was no time for it")


def test_a_round_that_fails_ends_the_soak_and_is_remembered_with_its_seed(state, monkeypatch, capsys):
    def fails(_seed: int, _seconds: float) -> Done:
        raise AssertionError("it did not hold")

    monkeypatch.setattr(soak, "ROUNDS", [Round("stop", fails, 1.0)])
    assert soak.soak(SoakState(seed=41), time.monotonic() + 60) == 1
    assert "Repeat: python -m tests.soak stop 41" in capsys.readouterr().out
    known = SoakState.load(state)
    assert (known.seed, known.failed) == (42, [{"round": "stop", "seed": 41}])
    assert known.table()[-1] == "failed rounds: stop 1"

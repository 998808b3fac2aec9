"""Ids: they grow, they never repeat, and they are decimal strings."""

from __future__ import annotations

import pytest

from dagmaster.host.snowflakes import Snowflakes
from dagmaster.ports.ids import EPOCH_MS
from dagmaster.testing.clock import FakeClock


def test_a_burst_of_ids_has_no_two_alike_and_grows():
    ids = Snowflakes(FakeClock(), machine=3)
    result = [int(ids.new()) for _ in range(20_000)]
    assert result == sorted(set(result))


def test_an_id_tells_its_millisecond_and_its_machine():
    clock = FakeClock(now=EPOCH_MS / 1000 + 5)
    one = int(Snowflakes(clock, machine=1023).new())
    assert one >> 22 == 5000
    assert one >> 12 & 1023 == 1023


def test_ids_grow_even_when_the_clock_stands_still_or_goes_back():
    clock = FakeClock()
    ids = Snowflakes(clock)
    first = int(ids.new())
    clock.move(-3600)
    assert int(ids.new()) > first


def test_two_machines_never_make_the_same_id():
    clock = FakeClock()
    one, other = Snowflakes(clock, machine=1), Snowflakes(clock, machine=2)
    assert not {one.new() for _ in range(5000)} & {other.new() for _ in range(5000)}


@pytest.mark.parametrize("machine", [-1, 1024])
def test_a_machine_has_ten_bits(machine):
    with pytest.raises(ValueError, match="between 0 and 1023"):
        Snowflakes(FakeClock(), machine=machine)

"""How many tasks a worker holds next to those that run."""

from __future__ import annotations

import asyncio

import pytest

from dagmaster.worker.prefetch import PrefetchBudget


@pytest.mark.parametrize(
    ("speed", "free"),
    # Nothing ended yet; a task of 2/3 s, of 250 ms, of 200 ms; the shortest.
    [(0, 2), (3, 2), (7.9, 3), (9.5, 4), (500, 52), (1e6, 2002)],
)
def test_a_seat_has_a_next_task_where_that_begins_within_a_moment(speed: float, free: int):
    async def asked() -> int:
        room = PrefetchBudget(2)
        room.rate, room._since = speed, float("inf")
        return room.free()

    assert asyncio.run(asked()) == free


def test_a_released_task_does_not_count_as_a_completion():
    async def asked() -> tuple[int, int]:
        room = PrefetchBudget(2)
        room.rate, room._since = 500.0, asyncio.get_running_loop().time() - 0.5
        for _ in range(52):
            room.add()
        for _ in range(50):
            room.release()
        return room.held, room.free()

    assert asyncio.run(asked()) == (2, 0)

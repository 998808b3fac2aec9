"""Many deadlines on one timer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dagmaster.worker.deadlines import Deadlines
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


class Thing:
    """Notes when its time has come."""

    def __init__(self, name: str, rung: list[str], after: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.rung = rung
        self.after = after
        self.over = asyncio.Event()

    def expire(self) -> None:
        self.rung.append(self.name)
        self.over.set()
        self.after()


def test_each_expires_once_in_the_order_of_their_times():
    rung: list[str] = []

    async def main() -> None:
        deadlines, now = Deadlines(), asyncio.get_running_loop().time()
        late, soon, sooner = (Thing(name, rung) for name in ("late", "soon", "sooner"))
        for thing, at in ((late, now + 3600), (soon, now + 0.02), (sooner, now + 0.01)):
            deadlines.add(thing, at)
        await asyncio.wait_for(soon.over.wait(), PATIENCE_SECONDS)
        deadlines.close()

    asyncio.run(main())
    assert rung == ["sooner", "soon"]


def test_what_was_removed_does_not_expire_and_others_do():
    rung: list[str] = []

    async def main() -> None:
        deadlines, now = Deadlines(), asyncio.get_running_loop().time()
        removed, kept = Thing("removed", rung), Thing("kept", rung)
        deadlines.add(removed, now)
        deadlines.add(kept, now + 0.01)
        deadlines.remove(removed)
        deadlines.remove(removed)
        await asyncio.wait_for(kept.over.wait(), PATIENCE_SECONDS)

    asyncio.run(main())
    assert rung == ["kept"]


def test_what_is_added_while_another_expires_has_its_turn():
    rung: list[str] = []

    async def main() -> None:
        deadlines, now = Deadlines(), asyncio.get_running_loop().time()
        new = Thing("new", rung)
        first = Thing("first", rung, after=lambda: deadlines.add(new, now))
        deadlines.add(first, now)
        await asyncio.wait_for(new.over.wait(), PATIENCE_SECONDS)

    asyncio.run(main())
    assert rung == ["first", "new"]


def test_another_loop_has_another_timer():
    rung: list[str] = []
    deadlines = Deadlines()

    async def leave_early() -> None:
        deadlines.add(Thing("of a loop that is gone", []), asyncio.get_running_loop().time() + 0.01)

    async def wait() -> None:
        thing = Thing("it", rung)
        deadlines.add(thing, asyncio.get_running_loop().time() + 0.02)
        await asyncio.wait_for(thing.over.wait(), PATIENCE_SECONDS)

    asyncio.run(leave_early())
    asyncio.run(wait())
    assert rung == ["it"]


def test_after_closing_nothing_expires():
    rung: list[str] = []

    async def main() -> None:
        deadlines, now = Deadlines(), asyncio.get_running_loop().time()
        deadlines.add(Thing("it", rung), now)
        deadlines.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert rung == []

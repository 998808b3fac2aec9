"""The book: handlers write what they did with their own hands, so that what is done twice is seen from outside.

A line is one write to a file that is open for appending: the kernel lets no two of them mix, and it needs no database.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HANDLERS = """
import asyncio, os, secrets
from dagmaster import HandlerContext, handler

BOOK = os.open(os.environ["CHAOS_BOOK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

def write(*words):
    os.write(BOOK, (" ".join(map(str, words)) + "\\n").encode())

async def gate(job, number):
    while number and not os.path.exists(f"{os.environ['CHAOS_BOOK']}-{job}-{number}"):
        await asyncio.sleep(0.02)

@handler("plan", queue="work")
async def plan(ctx: HandlerContext, count: int, gates: int) -> dict:
    done = await work(ctx)
    return {**done, "items": [number * gates // count for number in range(count)]}

@handler("work", queue="work")
async def work(ctx: HandlerContext, seconds: float = 0.0, behind: int = 0) -> dict:
    write("begin", ctx.job_id, ctx.node_id, ctx.attempt)
    await gate(ctx.job_id, behind)
    if seconds:
        await asyncio.sleep(seconds)
    mark = secrets.token_hex(8)
    write("end", ctx.job_id, ctx.node_id, ctx.attempt, mark)
    return {"mark": mark}
"""


class Book:
    """What handlers wrote, and how it fits what the rows say."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def open_gate(self, job: str, number: int) -> None:
        """Let the tasks through that wait behind a gate of a job: so it cannot end before what is to happen to it."""
        self.path.with_name(f"{self.path.name}-{job}-{number}").touch()

    def wrong(self, completed: Sequence[tuple[Any, ...]], *, may_repeat: bool) -> list[str]:
        """Give what does not fit. `completed`: job, node, attempt and output of each task that the rows call completed."""
        begun: Counter[tuple[str, str, int]] = Counter()
        last: dict[tuple[str, str], int] = defaultdict(int)
        marks: dict[tuple[str, str, int], list[str]] = defaultdict(list)
        for line in self.path.read_text().splitlines():
            what, job, node, attempt, *mark = line.split()
            place = (job, node, int(attempt))
            if what == "begin":
                begun[place] += 1
                last[job, node] = max(last[job, node], int(attempt))
            else:
                marks[place] += mark
        found: list[str] = []
        for job, node, attempt, output in completed:
            place = (str(job), node, attempt)
            if last[str(job), node] > attempt:
                found.append(f"{node} completed in attempt {attempt}, and attempt {last[str(job), node]} was begun")
            if json.loads(output)["mark"] not in marks[place]:
                found.append(f"{node} has the output {output}, and attempt {attempt} made {marks[place]}")
        if not may_repeat:
            found += [f"attempt {place[2]} of {place[1]} was begun {n} times" for place, n in begun.items() if n > 1]
        return found

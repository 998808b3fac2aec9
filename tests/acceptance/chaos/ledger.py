"""The ledger: handlers append what they did to a file, so that repeated work is visible from outside the database.

A line is one write to a file that is open for appending: the kernel never mixes two of them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

HANDLERS = """
import asyncio, os, secrets
from dagmaster import HandlerContext, Task, get_current_context, handler

LEDGER = os.open(os.environ["CHAOS_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

def write(*words):
    os.write(LEDGER, (" ".join(map(str, words)) + "\\n").encode())

async def gate(job, number):
    while number and not os.path.exists(f"{os.environ['CHAOS_LEDGER']}-{job}-{number}"):
        await asyncio.sleep(0.02)

@handler("plan", queue="work")
async def plan(ctx: HandlerContext, count: int, gates: int) -> dict:
    done = await work(ctx)
    return {**done, "items": [number * gates // count for number in range(count)]}

@handler("work", queue="work")
async def work(ctx: HandlerContext, seconds: float = 0.0, behind: int = 0) -> dict:
    write("begin", ctx.job_id, ctx.node_id, ctx.attempt, ctx.fencing_token)
    await gate(ctx.job_id, behind)
    if seconds:
        await asyncio.sleep(seconds)
    mark = secrets.token_hex(8)
    write("end", ctx.job_id, ctx.node_id, ctx.attempt, mark)
    return {"mark": mark}

@handler("grow", queue="work")
async def grow(ctx: HandlerContext, count: int, behind: int) -> dict:
    # Half of the tasks are added at once, before it can be killed, the others with its success.
    write("begin", ctx.job_id, ctx.node_id, ctx.attempt, ctx.fencing_token)
    tasks = [Task("chaos.work", queue="work", retry={"max_lost": 1000}) for _ in range(count)]
    for task in tasks:
        task.entrypoint = "work"
    await get_current_context().apply(tasks[: count // 2], at_once=True)
    await gate(ctx.job_id, behind)
    await get_current_context().apply(tasks[count // 2 :])
    mark = secrets.token_hex(8)
    write("end", ctx.job_id, ctx.node_id, ctx.attempt, mark)
    return {"mark": mark}

@handler("poison", queue="work")
async def poison(ctx: HandlerContext, kills_worker: bool = False) -> dict:
    # Ends its process; and the worker of a child process, too, as an OOM kill of a whole container does.
    import __main__
    await asyncio.sleep(0.2)
    if kills_worker and getattr(__main__.__spec__, "name", "") == "dagmaster.worker.process_main":
        os.kill(os.getppid(), 9)
    os._exit(1)
"""


class Ledger:
    """The lines that handlers wrote, and how they agree with the rows of the database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def open_gate(self, job: str, number: int) -> None:
        """Let the tasks pass that wait at a gate of a job; a job with a closed gate cannot finish before the fault."""
        self.path.with_name(f"{self.path.name}-{job}-{number}").touch()

    def violations(self, completed: Sequence[tuple[Any, ...]], *, may_repeat: bool) -> list[str]:
        """Return contradictions. `completed`: job, node, attempt and output of every completed task in the database."""
        started: Counter[tuple[str, str, int]] = Counter()
        last: dict[tuple[str, str], int] = defaultdict(int)
        tokens: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        marks: dict[tuple[str, str, int], list[str]] = defaultdict(list)
        for kind, job, node, attempt, detail in self._lines():
            key = (job, node, attempt)
            if kind == "begin":
                started[key] += 1
                last[job, node] = max(last[job, node], attempt)
                tokens[job, node].append((attempt, int(detail)))
            else:
                marks[key].append(detail)
        violations = [
            f"the executions of {node} have the fencing tokens {pairs}"
            for (_, node), pairs in tokens.items()
            if len(pairs) > 1 and not _grow_with_attempts(pairs)
        ]
        for job, node, attempt, output in completed:
            key = (str(job), node, attempt)
            if last[str(job), node] > attempt:
                violations.append(
                    f"{node} completed in attempt {attempt}, and attempt {last[str(job), node]} was started"
                )
            if json.loads(output)["mark"] not in marks[key]:
                violations.append(f"{node} has the output {output}, and attempt {attempt} wrote {marks[key]}")
        if not may_repeat:
            violations += [
                f"attempt {key[2]} of {key[1]} was started {n} times" for key, n in started.items() if n > 1
            ]
        return violations

    def in_progress(self) -> set[tuple[str, str, int]]:
        """Return job, node and attempt of every execution that has begun and not ended."""
        lines = list(self._lines())
        ended = {(job, node, attempt) for kind, job, node, attempt, _ in lines if kind == "end"}
        return {(job, node, attempt) for kind, job, node, attempt, _ in lines if kind == "begin"} - ended

    def executions(self) -> Counter[str]:
        """Count the nodes that were started, their executions, those after the first, and those in an attempt again."""
        started = Counter(
            (job, node, attempt) for kind, job, node, attempt, _ in self._lines() if kind == "begin"
        )
        nodes = {(job, node) for job, node, _ in started}
        executions = started.total()
        return Counter(
            nodes=len(nodes),
            executions=executions,
            repeated=executions - len(nodes),
            repeated_in_one_attempt=executions - len(started),
        )

    def _lines(self) -> Iterator[tuple[str, str, str, int, str]]:
        """Yield kind, job, node, attempt, and the fencing token of a start or the mark of an end."""
        for line in self.path.read_text().splitlines():
            kind, job, node, attempt, detail = line.split()
            yield kind, job, node, int(attempt), detail


def _grow_with_attempts(pairs: Sequence[tuple[int, int]]) -> bool:
    """Return whether every execution has a token of its own, and those of a later attempt are greater."""
    tokens = [token for _, token in sorted(pairs)]
    return all(before < after for before, after in pairwise(tokens))

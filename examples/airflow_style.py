"""Every form of a dependency between tasks and groups, in one job that runs in this process: no server needed.

python examples/airflow_style.py
"""

from __future__ import annotations

import asyncio
from itertools import count

from dagmaster import Dependency, Group, JobStatus, OrchContext, Task, create_task, get_task, run_job_test_async

_ORDER = count(1)


async def step(name: str) -> int:
    """Return when this step ran, among all steps."""
    place = next(_ORDER)
    print(f"{place:3} {name}")
    return place


def new_task(name: str) -> Task:
    """Return a task of this script's function."""
    return Task(entrypoint=step, kwargs={"name": name}, name=name)


def new_group(name: str, size: int = 2) -> Group:
    """Return a group of some tasks."""
    return Group(name, tasks=[new_task(f"{name}_{number}") for number in range(size)])


def build() -> list[Task | Group]:
    """Return a graph with every operator."""
    # Task → task, chained and reversed.
    extract, transform, load = new_task("extract"), new_task("transform"), new_task("load")
    extract >> transform >> load
    archive = new_task("archive")
    archive << load

    # Fan-out and fan-in: a list on either side, of either operator.
    parts = [new_task(f"part_{number}") for number in range(3)]
    archive >> parts
    merged, checked = new_task("merged"), new_task("checked")
    parts >> merged
    [checked] << merged
    late = new_task("late")
    late << [merged, checked]

    # Group → group, task → group, group → task; groups nest.
    clean, index = new_group("clean"), Group("index", tasks=[new_task("index_0"), new_group("shards")])
    late >> clean >> index
    report = new_task("report")
    index >> report

    # Mixed, and by a method that returns the task.
    publish, notify = new_group("publish", 1), new_task("notify")
    report >> publish >> [new_task("mail"), notify]
    done = create_task(step, {"name": "done"}, name="done").depends_on(notify, publish)
    return [extract, done]


def check(graph: list[Task | Group]) -> list[Dependency]:
    """Return all dependencies of what is connected to a graph."""
    seen: dict[int, Task | Group] = {}
    pending = list(graph)
    while pending:
        item = pending.pop()
        if item.id not in seen:
            seen[item.id] = item
            members = item.members if isinstance(item, Group) else []
            pending += [*(item.previous or []), *(item.next or []), *members]
    return [dependency for item in seen.values() for dependency in item.dependencies]


async def main() -> None:
    """Run the graph, and print what became of it."""
    graph = build()
    dependencies = check(graph)
    kinds = sorted({f"{one.previous_type} → {one.next_type}" for one in dependencies})
    print(f"{len(dependencies)} dependencies: {', '.join(kinds)}")
    async with OrchContext(in_memory=True) as context:
        # Everything that is connected to these is part of the job.
        job = await context.create_job("airflow style", graph)
        await run_job_test_async(job)
        last = await get_task(graph[-1].id)
    print(f"{job.name}: {job.status}; {last.node_id} was step {last.result}")
    if job.status is not JobStatus.COMPLETED:
        raise SystemExit(str(job.error))


if __name__ == "__main__":
    asyncio.run(main())

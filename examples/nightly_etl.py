"""A nightly job in plain Python: nested groups, tasks that add tasks, and map. Run it: python examples/nightly_etl.py

No server is needed: the job is stored in the database that `dagmaster run` uses, and runs in this process, also while
`dagmaster dev` runs on that database (`local=True`). The same graph, submitted with `create_job`, runs on a fleet whose
workers allow this module (`--handlers`).
"""

from __future__ import annotations

from dagmaster import Group, create_task, get_current_context, map_values, task
from dagmaster.blocking import OrchContext, create_job, get_task, run_job_test

SOURCES = ("orders", "returns", "visits")


@task(queue="light")
def extract(source: str) -> list[int]:
    """Read the rows of a source."""
    print(f"reading {source}")
    return list(range(len(source) * 100))


@task(queue="light")
def check(rows: list[int]) -> int:
    """Count the rows, and fail if there are none."""
    if not rows:
        raise ValueError("the source is empty")
    return len(rows)


@task(queue="light", retry=3)
def split(rows: list[int]) -> int:
    """Make one task for every 200 rows, and one that adds their results up."""
    # How many tasks that are is known only now. They become part of the job when this task succeeds.
    parts = map_values(clean, rows, chunk=200)
    get_current_context().apply(create_task(add_up, {"parts": parts}, name="total"))
    return len(rows)


@task(queue="light")
def clean(chunk: list[int]) -> int:
    """Clean some rows."""
    return sum(value for value in chunk if value % 2)


@task(queue="light")
def add_up(parts: list[int]) -> int:
    """Add the results of all chunks up."""
    return sum(parts)


@task(queue="light")
def report(counts: list[int]) -> str:
    """Write the report."""
    return f"{sum(counts)} rows of {len(counts)} sources"


def main() -> None:
    """Build the graph, run the job, and print how it ended."""
    extracts = [create_task(extract, {"source": source}, name=f"extract_{source}") for source in SOURCES]
    checks = [create_task(check, {"rows": one}) for one in extracts]
    # A group in a group: `ready` is complete when everything in it is, at any depth.
    ready = Group("ready", [Group("extracts", extracts), Group("checks", checks)])
    summary = create_task(report, {"counts": checks})
    ready >> summary >> create_task(split, {"rows": extracts[0]})
    with OrchContext(local=True):
        job = run_job_test(create_job("nightly", ready))
    print(f"job {job.id} is {job.status}: {get_task(summary.id).result}")
    if job.status != "COMPLETED":
        raise SystemExit(f"the job failed: {job.error}")
    print("What it ran, with the tasks that were added on the way: dagmaster jobs show last")


if __name__ == "__main__":
    main()

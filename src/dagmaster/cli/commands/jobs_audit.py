"""`dagmaster jobs audit`: whether the rows of a database are as promised."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from dagmaster.cli.database import on_database
from dagmaster.cli.main import COMPLETED, FAILED
from dagmaster.cli.options import data_dir_option, json_option

if TYPE_CHECKING:
    import pathlib

    from dagmaster.cli.database import ReadSession
    from dagmaster.store.postgres.audit import Audit


@click.command(
    epilog="Exit codes: 0 as promised, 1 something is not, 2 no such job or refused, 3 no database, 130 interrupted."
)
@click.argument("job_id", metavar="[JOB]", required=False)
@json_option
@data_dir_option
def audit(job_id: str | None, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Prove that a database is sound: all jobs, or one.

    It asks the tables whether each promise holds: trails without gaps, no node completed twice, no task lost, nothing
    stuck, nobody wrote who was not the owner. It reads one snapshot and writes nothing; services may go on meanwhile.

    \b
    Examples:
      dagmaster jobs audit
      dagmaster jobs audit last --json
    """
    from dagmaster.settings import load_settings
    from dagmaster.store.postgres.audit import audit_at

    async def work(onlooker: ReadSession) -> Audit:
        settings = load_settings()
        return await audit_at(
            onlooker.address,
            job_ids=None if job_id is None else [(await onlooker.job(job_id)).id],
            lease_seconds=settings.orchestrator_lease_seconds,
            worker_lease_seconds=settings.worker_lease_seconds,
        )

    found = on_database(data_dir, work)
    if as_json:
        click.echo(json.dumps(document(found), ensure_ascii=False))
    else:
        for line in lines(found):
            click.echo(line)
    return FAILED if found.violations else COMPLETED


def lines(found: Audit) -> list[str]:
    """What was found, to be read by people: each promise that is broken, and where."""
    said: list[str] = []
    for promise in dict.fromkeys(each.promise for each in found.violations):
        rows = [each for each in found.violations if each.promise == promise]
        said += [f"✘ {rows[0].sentence}", *(f"    {each.place} {each.says}" for each in rows)]
    count = f"{found.jobs:,} {'job' if found.jobs == 1 else 'jobs'}, {found.nodes:,} nodes, {found.events:,} events"
    broken = len({each.promise for each in found.violations})
    if broken:
        return [*said, f"{count}: {broken} of {found.promises} promises are broken"]
    return [f"✔ {count}: all {found.promises} promises hold"]


def document(found: Audit) -> dict[str, object]:
    """What was found, to be read by programs."""
    return {
        "ok": not found.violations,
        "jobs": found.jobs,
        "nodes": found.nodes,
        "events": found.events,
        "promises": found.promises,
        "violations": [
            {"promise": each.promise, "job_id": each.job_id, "node_id": each.node_id, "says": each.says}
            for each in found.violations
        ],
    }

"""`dagmaster jobs audit`: check the invariants of a database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from dagmaster.cli.database import database_session
from dagmaster.cli.main import COMPLETED, FAILED
from dagmaster.cli.options import data_dir_option, json_option
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    import pathlib

    from dagmaster.application.context import Application
    from dagmaster.application.views import AuditView


@click.command(
    epilog="Exit codes: 0 all invariants hold, 1 one is violated, 2 no such job, 3 no database, 130 interrupted."
)
@click.argument("job_id", metavar="[JOB]", required=False)
@json_option
@data_dir_option
def audit(job_id: str | None, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Check the invariants of a database: of all jobs, or of one.

    Each invariant is checked on the tables: events without gaps, no node completed twice, no task lost, nothing stuck,
    no write by an orchestrator that was not the owner. The audit reads one snapshot and writes nothing; services may
    keep running.

    \b
    Examples:
      dagmaster jobs audit
      dagmaster jobs audit last --json
    """
    with database_session(data_dir) as session:

        async def query(app: Application) -> AuditView:
            from dagmaster.application.job_lookup import find_job
            from dagmaster.bootstrap import audit_database

            job_ids = None if job_id is None else [(await find_job(app, job_id)).id]
            return await audit_database(session.config, session.settings, job_ids)

        view = session.run(query)
    if as_json:
        click.echo(json.dumps(view.to_dict(), ensure_ascii=False))
    else:
        for line in audit_lines(view):
            click.echo(line)
    return COMPLETED if view.is_valid else FAILED


def audit_lines(view: AuditView) -> list[str]:
    """Return each invariant that is violated, and where; else one line that all hold."""
    lines: list[str] = []
    violated = dict.fromkeys(violation.invariant for violation in view.violations)
    for invariant in violated:
        violations = [violation for violation in view.violations if violation.invariant == invariant]
        lines.append(f"✘ {violations[0].rule}")
        for violation in violations:
            node = f", node {violation.node_id}" if violation.node_id else ""
            lines.append(f"    job {violation.job_id}{node} {violation.message}")
    checked = f"{format_count(view.jobs_total, 'job')}, {format_count(view.nodes_total, 'node')}"
    checked += f", {format_count(view.events_total, 'event')}"
    if violated:
        return [*lines, f"{checked}: {len(violated)} of {view.invariants_total} invariants are violated"]
    return [f"✔ {checked}: all {view.invariants_total} invariants hold"]

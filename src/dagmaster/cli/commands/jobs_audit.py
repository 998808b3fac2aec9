"""`dagmaster jobs audit`: check the invariants of a database."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from dagmaster.cli.main import COMPLETED, FAILED
from dagmaster.cli.system import Part, database_session, find_server, open_session
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, open_console
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator

    from dagmaster.application.views import AuditView, OutputAuditView
    from dagmaster.client.system import System

PROGRESS_SECONDS: Final = 5.0
"""How often a line reports the progress of an audit where there is no terminal."""


@click.command(
    epilog="Exit codes: 0 all invariants hold, 1 one is violated, 2 no such job, 3 no database, 130"
    " interrupted."
)
@click.argument("job_id", metavar="[JOB]", required=False)
@click.option(
    "--outputs",
    is_flag=True,
    help="Compare the large outputs with the database: after a failover or a restore.",
)
@json_option
@data_dir_option
def audit(job_id: str | None, *, outputs: bool, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Check the invariants of a database: of all jobs, or of one.

    Each invariant is checked on the tables: events without gaps, no node completed twice, no task lost,
    nothing stuck, no write by an orchestrator that was not the owner. The audit takes jobs in batches, each
    in a separate short snapshot, and writes nothing; services may keep running. Its progress is shown on
    standard error. With --url, the server checks; the key needs the scope admin.

    --outputs finds attempts that the database does not know: large outputs that are newer than the rows of
    their jobs. After a failover or a restore that lost commits, their tasks run again.

    \b
    Examples:
      dagmaster jobs audit
      dagmaster jobs audit --outputs
      dagmaster jobs audit last --json
    """
    from dagmaster.application.queries.jobs import job_progress

    if outputs:
        return compare_outputs(job_id, as_json=as_json, data_dir=data_dir)
    with open_session(data_dir) as session:
        if job_id is not None:
            # `last` may be another job by the time it is checked.
            job_id = session.run(lambda system: system.call(job_progress, job_id)).job_id
        view = session.run(lambda system: check_all(system, job_id), part=Part.DATABASE)
    if as_json:
        echo_json(view.to_dict())
    else:
        for line in audit_lines(view):
            echo(line)
    return COMPLETED if view.is_valid else FAILED


def compare_outputs(job_id: str | None, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Print the outputs that are newer than the rows of their jobs."""
    from dagmaster.application.output_audit import audit_outputs

    if job_id is not None or find_server(data_dir) is not None:
        raise click.UsageError(
            "--outputs reads all outputs of DAGMASTER_BLOB_DIR or DAGMASTER_OUTPUTS_URL on this machine:"
            " leave JOB and --url out"
        )
    with database_session(data_dir) as session, show_progress("output") as on_progress:
        view = session.run(
            lambda system: system.call(audit_outputs, on_progress=on_progress), part=Part.DATABASE
        )
    if as_json:
        echo_json(view.to_dict())
    else:
        echo("\n".join(output_lines(view)))
    return COMPLETED if view.is_valid else FAILED


def output_lines(view: OutputAuditView) -> list[str]:
    """Return each output that is newer than its job; else one line that none is."""
    compared = format_count(view.outputs_total, "large output")
    if view.is_valid:
        return [f"✔ {compared}: no output is newer than the database"]
    lines = [f"✘ {violation.place} {violation.message}" for violation in view.violations]
    return [*lines, f"{compared}: the database lost commits; tasks of these attempts run again"]


async def check_all(system: System, job_id: str | None) -> AuditView:
    """Check batch after batch, and show how far the audit is; or check one job."""
    from dagmaster.application.database_admin import AuditSummary, audit_batch

    summary, cursor = AuditSummary(), None
    with contextlib.nullcontext() if job_id is not None else show_progress("job") as on_progress:
        while True:
            batch = await system.call(audit_batch, job_id=job_id, cursor=cursor)
            summary.add(batch)
            if on_progress is not None:
                on_progress(summary.jobs_checked, summary.jobs_total)
            cursor = batch.next_cursor
            if cursor is None:
                return summary.view()


@contextlib.contextmanager
def show_progress(noun: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a callback for how many were checked so far, and all: a bar on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield progress_lines(noun)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(f"{noun}s audited"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=open_console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def progress_lines(
    noun: str = "job", clock: Callable[[], float] = time.monotonic
) -> Callable[[int, int | None], None]:
    """Return a callback that prints a line every few seconds; nothing for an audit that takes less."""
    printed_at = clock()

    def print_line(done: int, total: int | None) -> None:
        nonlocal printed_at
        if clock() >= printed_at + PROGRESS_SECONDS:
            printed_at = clock()
            everything = (
                format_count(done, noun) if total is None else f"{done:,} of {format_count(total, noun)}"
            )
            echo(f"audited {everything}", err=True)

    return print_line


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

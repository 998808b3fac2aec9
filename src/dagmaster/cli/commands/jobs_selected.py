"""`dagmaster jobs cancel` and `jobs resume` of the jobs that match filters: print them, or change them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from dagmaster.cli.main import BAD_INPUT, COMPLETED
from dagmaster.cli.system import open_session
from dagmaster.errors import QueryInvalid
from dagmaster.sdk.terminal import echo, echo_json, print_page
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping

    from dagmaster.application.commands.job_selection import JobAction
    from dagmaster.application.views import JobSelectionView, SelectionResult
    from dagmaster.cli.system import Session
    from dagmaster.ports.job_filter import JobFilter

yes_option = click.option(
    "--yes", is_flag=True, help="Of the jobs that match filters: change them. Without it, they are printed."
)


def check_target(job_id: str | None, filters: Mapping[str, Any], *, is_confirmed: bool) -> bool:
    """Return whether filters name the jobs; raise if neither they nor a job do, or both."""
    has_filters = any(filters.values())
    if has_filters and job_id is not None:
        raise click.UsageError("name a JOB, or filters of jobs such as --status: not both")
    if not has_filters and job_id is None:
        raise click.UsageError("name a JOB (`last`: the newest one), or filters of jobs such as --status")
    if is_confirmed and not has_filters:
        raise click.UsageError("--yes goes with filters: one job that is named is changed at once")
    return has_filters


def change_selected(
    action: str,
    filters: Mapping[str, Any],
    *,
    is_confirmed: bool,
    comment: str = "",
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """Print the jobs that match, or change them; return the exit code."""
    from dagmaster.application.commands.job_selection import JobAction
    from dagmaster.application.job_filters import parse_job_filter

    try:
        job_filter = parse_job_filter(now=time.time(), **filters)
    except QueryInvalid as error:
        raise click.UsageError(str(error)) from error
    with open_session(data_dir) as session:
        if is_confirmed:
            return _change(session, JobAction(action), job_filter, comment, as_json=as_json)
        selection = _select(session, JobAction(action), job_filter, None)
    if as_json:
        echo_json(selection.to_dict())
    else:
        _print_selection(selection)
    return COMPLETED


def _select(
    session: Session, action: JobAction, job_filter: JobFilter, cursor: str | None
) -> JobSelectionView:
    from dagmaster.application.commands.job_selection import MAX_SELECTED, select_jobs

    return session.run(
        lambda system: system.call(select_jobs, action, job_filter, cursor=cursor, limit=MAX_SELECTED)
    )


def _change(
    session: Session, action: JobAction, job_filter: JobFilter, comment: str, *, as_json: bool
) -> int:
    """Change all jobs that match, a thousand at a time."""
    results: list[SelectionResult] = []
    cursor: str | None = None
    while True:
        selection = _select(session, action, job_filter, cursor)
        token, cursor = selection.token, selection.next_cursor
        if token is not None:
            results.append(_send(session, token, comment))
        if cursor is None:
            break
    if as_json:
        echo_json([outcome.to_dict() for result in results for outcome in result.outcomes])
    else:
        _print_results(action, results)
    return BAD_INPUT if any(result.rejected_count for result in results) else COMPLETED


def _send(session: Session, token: str, comment: str) -> SelectionResult:
    from dagmaster.application.commands.job_selection import change_selected_jobs
    from dagmaster.cli.commands.jobs_control import sender

    return session.run(
        lambda system: system.call(change_selected_jobs, token, sent_by=sender(), comment=comment)
    )


def _print_selection(selection: JobSelectionView) -> None:
    if not selection.jobs:
        echo(f"there is no job to {selection.action} among those that match", err=True)
        return
    from dagmaster.cli.render.jobs_table import jobs_table

    print_page([jobs_table(selection.jobs)])
    count = format_count(len(selection.jobs), "job") + (" or more" if selection.next_cursor else "")
    echo(f"nothing was changed: to {selection.action} {count}, add --yes", err=True)


def _print_results(action: JobAction, results: list[SelectionResult]) -> None:
    for outcome in (outcome for result in results for outcome in result.outcomes):
        if not outcome.accepted:
            echo(f"{outcome.job_id}: {outcome.sentence}", err=True)
    accepted = sum(result.accepted_count for result in results)
    rejected = sum(result.rejected_count for result in results)
    refused = f"; {format_count(rejected, 'job')} not" if rejected else ""
    echo(f"{action}: {format_count(accepted, 'job')} accepted{refused}")

"""`dagmaster metrics`: what finished jobs show, by workflow, node, failure and time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dagmaster.application.queries.metrics import MAX_DAYS, MAX_FAILURES, MAX_HOURS
from dagmaster.cli.commands.jobs_control import sender
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.system import Part, on_system, open_session
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, open_console
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable

    from rich.console import RenderableType

    from dagmaster.application.views.metrics import MetricRebuildView
    from dagmaster.client.system import System
    from dagmaster.records.record import Record

    V = TypeVar("V", bound=Record)

days_option = click.option(
    "--days", type=click.IntRange(1, MAX_DAYS), default=7, show_default=True, help="How many days back."
)

workflow_option = click.option("--workflow", "workflow_id", metavar="ID", help="Only of this workflow.")


@click.group(epilog="Exit codes: 0 shown, 2 unknown workflow, 3 no database.")
def metrics() -> None:
    """Show what finished jobs show: success, durations, failures and throughput.

    An orchestrator counts finished jobs every few seconds. The sums stay when jobs are deleted.

    \b
    Examples:
      dagmaster metrics workflows
      dagmaster metrics failures --days 1 --workflow fan_out
      dagmaster metrics throughput --hours 6 --bucket-minutes 10 --json
    """


@metrics.command()
@workflow_option
@days_option
@json_option
@data_dir_option
def workflows(*, workflow_id: str | None, days: int, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show how many jobs of each workflow completed and failed, and how long they took."""
    from dagmaster.application.queries.metrics import workflow_metrics
    from dagmaster.cli.render.metrics_tables import workflows_tables

    return _show(
        data_dir,
        lambda system: system.call(workflow_metrics, workflow_id=workflow_id, days=days),
        workflows_tables,
        as_json=as_json,
    )


@metrics.command()
@click.argument("workflow_id", metavar="WORKFLOW")
@days_option
@json_option
@data_dir_option
def nodes(workflow_id: str, *, days: int, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show how often each node of a workflow completed and failed, and how long it took."""
    from dagmaster.application.queries.metrics import node_metrics
    from dagmaster.cli.render.metrics_tables import nodes_table

    return _show(
        data_dir,
        lambda system: system.call(node_metrics, workflow_id, days=days),
        nodes_table,
        as_json=as_json,
    )


@metrics.command()
@workflow_option
@days_option
@click.option(
    "--limit", type=click.IntRange(1, MAX_FAILURES), default=20, show_default=True, help="How many groups."
)
@json_option
@data_dir_option
def failures(
    *, workflow_id: str | None, days: int, limit: int, as_json: bool, data_dir: pathlib.Path | None
) -> int:
    """Show the most frequent failures, grouped by their message."""
    from dagmaster.application.queries.metrics import failure_metrics
    from dagmaster.cli.render.metrics_tables import failures_table

    return _show(
        data_dir,
        lambda system: system.call(failure_metrics, workflow_id=workflow_id, days=days, limit=limit),
        failures_table,
        as_json=as_json,
    )


@metrics.command()
@click.option(
    "--hours", type=click.IntRange(1, MAX_HOURS), default=24, show_default=True, help="How many hours back."
)
@click.option(
    "--bucket-minutes",
    type=click.IntRange(1, 24 * 60),
    default=60,
    show_default=True,
    help="The length of a bucket.",
)
@json_option
@data_dir_option
def throughput(*, hours: int, bucket_minutes: int, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show how many jobs were submitted and finished over time."""
    from dagmaster.application.queries import metrics as queries
    from dagmaster.cli.render.metrics_tables import throughput_table

    return _show(
        data_dir,
        lambda system: system.call(queries.throughput, hours=hours, bucket_minutes=bucket_minutes),
        throughput_table,
        as_json=as_json,
    )


@metrics.command()
@json_option
@data_dir_option
def rebuild(*, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Count all finished jobs again, from their rows.

    Needed after a rolling upgrade from a version that did not count jobs. Jobs that were deleted are not
    counted any more, and of a job that was resumed only the last run. If it is interrupted, orchestrators
    count the rest. With --url, the key needs the scope admin.
    """
    with open_session(data_dir) as session:
        view = session.run(_count_all, part=Part.DATABASE)
    if as_json:
        echo_json(view.to_dict())
        return COMPLETED
    echo(f"counted {format_count(view.counted_jobs, 'finished job')}", err=True)
    if view.pending_jobs:
        echo(f"another process counts the rest: {format_count(view.pending_jobs, 'job')}", err=True)
    return COMPLETED


async def _count_all(system: System) -> MetricRebuildView:
    from dagmaster.application.database_admin import rebuild_metrics

    origin = ChangeOrigin(actor=sender())
    view = await system.call(rebuild_metrics, origin=origin)
    counted = view.counted_jobs
    while view.next_cursor is not None:
        view = await system.call(rebuild_metrics, origin=origin, cursor=view.next_cursor)
        counted += view.counted_jobs
    return replace(view, counted_jobs=counted)


def _show(
    data_dir: pathlib.Path | None,
    query: Callable[[System], Awaitable[V]],
    draw: Callable[[V], RenderableType],
    *,
    as_json: bool,
) -> int:
    view: Any = on_system(data_dir, query)
    if as_json:
        echo_json(view.to_dict())
        return COMPLETED

    open_console().print(draw(view))
    if view.pending_jobs:
        echo(f"not counted yet: {format_count(view.pending_jobs, 'finished job')}", err=True)
    return COMPLETED

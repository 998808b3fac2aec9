"""`dagmaster jobs logs`: the output of a job's tasks."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Final

import click

from dagmaster.cli.main import COMPLETED
from dagmaster.cli.system import job_argument, on_system
from dagmaster.sdk.command_line import data_dir_option, json_lines_option
from dagmaster.sdk.terminal import echo, echo_json, style

_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")
"""Not `splitlines`, which also ends a line at characters that are printed as escapes."""

if TYPE_CHECKING:
    import pathlib

    from dagmaster.application.views import LogView
    from dagmaster.client.system import System


@click.command(epilog="Exit codes: 0 printed, 2 no such job or node, 3 no database, 130 interrupted.")
@job_argument
@click.argument("node_id", metavar="[NODE]", required=False)
@click.option("--attempt", type=click.IntRange(1), help="Only this attempt.")
@click.option("-f", "--follow", is_flag=True, help="Continue until the job has finished.")
@click.option(
    "--raw", "is_raw", is_flag=True, help="Print control characters as they are, into a pipe or a file."
)
@json_lines_option
@data_dir_option
def logs(
    job_id: str,
    node_id: str | None,
    *,
    attempt: int | None,
    follow: bool,
    is_raw: bool,
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """Print the output of a job's tasks: what they print and log, in order.

    Without a NODE, each line begins with its node. A child of a fan-out has a name such as `tiles__17`. Lines
    of child jobs begin with the path of their node, such as `sub/fetch`. If the NODE failed, its traceback is
    printed last.

    \b
    Examples:
      dagmaster jobs logs last
      dagmaster jobs logs last fetch --attempt 1
      dagmaster jobs logs last -f
    """
    if is_raw and (as_json or sys.stdout.isatty()):
        raise click.UsageError(
            "--raw is for a pipe or a file, and not with --json: a terminal obeys control characters"
        )

    async def query(system: System) -> int:
        from dagmaster.application.queries.jobs import job_progress
        from dagmaster.cli.job_tree_logs import JobTreeLogs

        # `last` may be another job by the time the traceback is read.
        job = await system.call(job_progress, job_id)
        printer = LogPrinter(is_prefixed=node_id is None, as_json=as_json, is_raw=is_raw)
        tree = JobTreeLogs(system, job.job_id, node_id=node_id, attempt=attempt)
        chunks = tree.follow() if follow and not job.is_finished else tree.read()
        async with contextlib.aclosing(chunks):
            async for path, log in chunks:
                printer.print(path, log)
        printer.end_line()
        if tree.has_more:
            echo(f"more child jobs: `dagmaster jobs list --parent {job.job_id}` lists them", err=True)
        if as_json:
            return COMPLETED
        traceback = None if node_id is None else await last_traceback(system, job.job_id, node_id, attempt)
        if traceback is not None:
            echo(style(f"attempt {traceback[0]} failed:", fg="red", bold=True))
            echo(traceback[1], is_raw=is_raw)
        elif not printer.has_printed:
            subject = f"node {node_id}" if node_id else "the tasks"
            which = f" in attempt {attempt}" if attempt else ""
            is_finished = (await system.call(job_progress, job.job_id)).is_finished
            later = "" if is_finished else " so far (-f waits for more)"
            echo(f"{subject} of job {job.job_id} wrote nothing{which}{later}", err=True)
        return COMPLETED

    return on_system(data_dir, query)


async def last_traceback(
    system: System, job_id: str, node_id: str, attempt: int | None
) -> tuple[int, str] | None:
    """Return the attempt and the traceback with which a node failed last; None if it did not."""
    from dagmaster.application.queries.nodes import node_detail

    node = await system.call(node_detail, job_id, node_id)
    traceback = str((node.error or {}).get("traceback") or "").rstrip()
    return (node.attempt, traceback) if traceback and attempt in (None, node.attempt) else None


class LogPrinter:
    """Prints chunks of logs. An unfinished line continues with the next chunk of the same attempt."""

    def __init__(self, *, is_prefixed: bool, as_json: bool, is_raw: bool = False) -> None:
        self._is_raw = is_raw
        self.is_prefixed = is_prefixed
        self.as_json = as_json
        self.has_printed = False
        self._source = ("", "")
        self._is_in_line = False

    def print(self, path: str, log: LogView) -> None:
        """Print a chunk.

        `path`: of its node from the job on; in a child job it begins with the node of that.
        """
        self.has_printed = True
        if self.as_json:
            echo_json({**log.to_dict(), "node_path": path})
            return
        source = path if log.attempt == 1 else f"{path}#{log.attempt}"
        if (log.job_id, source) != self._source:
            self.end_line()
            self._source = (log.job_id, source)
        prefix = style(f"{source} │ ", fg="bright_black") if self.is_prefixed or path != log.node_id else ""
        for line in _LINES.findall(log.text):
            echo("" if self._is_in_line else prefix, nl=False)
            echo(line, nl=False, is_raw=self._is_raw)
            self._is_in_line = not line.endswith("\n")

    def end_line(self) -> None:
        if self._is_in_line:
            echo("")
            self._is_in_line = False

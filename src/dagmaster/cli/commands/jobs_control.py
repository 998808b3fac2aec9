"""`dagmaster jobs cancel, approve, reject, signal, retry`: commands that change a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from dagmaster.application.views import ReasonCode
from dagmaster.cli.commands.jobs_list import job_filter_options
from dagmaster.cli.commands.jobs_selected import change_selected, check_target, yes_option
from dagmaster.cli.main import BAD_INPUT, COMPLETED, FAILED
from dagmaster.cli.system import find_server, job_argument, on_system, open_session
from dagmaster.client.system import current_user
from dagmaster.ports.api_keys import Namespace, actor_of
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, style

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable

    from dagmaster.application.views import CommandResult, PlannedNodeView, ResumePlanView
    from dagmaster.client.system import System
    from dagmaster.json_types import JsonValue

MAX_USER: Final = 64
_MAX_NAMES: Final = 10
_EXIT_CODES: Final = "Exit codes: 0 done or accepted, 2 rejected, 3 no database."

comment_option = click.option(
    "--comment", default="", metavar="TEXT", help="A comment that is stored with it, and shown in its event."
)
as_option = click.option(
    "--as", "name", metavar="NAME", help="The name of the approver.  [default: your user name]"
)
node_argument = click.argument("node_id", metavar="[NODE]", required=False)


@click.command(epilog="Exit codes: 0 accepted (--wait: cancelled), 1 finished otherwise, 2 rejected.")
@click.argument("job_id", metavar="[JOB]", required=False)
@click.argument("node_ids", metavar="[NODE]...", nargs=-1)
@job_filter_options
@yes_option
@comment_option
@click.option("--wait", is_flag=True, help="Wait until the job has finished.")
@json_option
@data_dir_option
def cancel(
    job_id: str | None,
    node_ids: tuple[str, ...],
    *,
    comment: str,
    wait: bool,
    yes: bool,
    as_json: bool,
    data_dir: pathlib.Path | None,
    **filters: Any,
) -> int:
    """Ask a job to stop, or only some of its nodes; or all jobs that match filters.

    Without a NODE, nothing new starts, and running tasks are asked to stop. Completed nodes keep their
    results: `jobs resume` continues from them.

    With nodes, at most 1,000, only these are cancelled: each fails with the reason "cancelled by", at once or
    when its task has stopped, and the job goes on as after any failure (allow_failure, on_failure,
    tolerate_failures). A child of a fan-out has a name such as tiles__47; the name of a fan-out or a group
    stands for all that is in it. Of several nodes, finished ones are skipped. `jobs retry` runs a cancelled
    node again.

    With filters instead of a JOB, the jobs that match and have not finished are printed, and cancelled with
    --yes: each of them, a child job with its parent.

    \b
    Examples:
      dagmaster jobs cancel last
      dagmaster jobs cancel --workflow nightly --status waiting --since 1d
      dagmaster jobs cancel --workflow nightly --status waiting --since 1d --yes
      dagmaster jobs cancel 115601869557067776 --wait
      dagmaster jobs cancel last --comment "wrong year"
      dagmaster jobs cancel last tiles__47 tiles__48
    """
    from dagmaster.application.commands.control import cancel_job, cancel_nodes
    from dagmaster.application.queries.jobs import job_progress
    from dagmaster.application.views import JobStatus

    if check_target(job_id, filters, is_confirmed=yes):
        if wait:
            raise click.UsageError("--wait waits for the end of one job: name it")
        return change_selected(
            "cancel", filters, is_confirmed=yes, comment=comment, as_json=as_json, data_dir=data_dir
        )
    if node_ids and wait:
        raise click.UsageError("--wait waits for the end of the job: it cannot be given together with nodes")
    if node_ids and comment:
        raise click.UsageError("--comment is stored with the cancel of a job: it cannot be given with nodes")
    if node_ids:
        names = list(node_ids)
        return _run(
            data_dir,
            lambda system: system.call(cancel_nodes, job_id, names, sent_by=sender()),
            as_json=as_json,
        )
    with open_session(data_dir) as session:
        result = session.run(
            lambda system: system.call(cancel_job, job_id, sent_by=sender(), comment=comment)
        )
        code = print_result(result, as_json=as_json, is_quiet=as_json and wait)
        if not wait or code != COMPLETED:
            return code
        from dagmaster.cli.commands.jobs import watch_to_end

        watch_to_end(session, result.job_id, as_json=as_json)
        job = session.run(lambda system: system.call(job_progress, result.job_id))
        return COMPLETED if job.status is JobStatus.CANCELLED else FAILED


@click.command(epilog=_EXIT_CODES)
@job_argument
@node_argument
@comment_option
@as_option
@json_option
@data_dir_option
def approve(
    job_id: str,
    node_id: str | None,
    *,
    comment: str,
    name: str | None,
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """Approve a waiting approval: the job continues. NODE is needed if several wait.

    \b
    Examples:
      dagmaster jobs approve last
      dagmaster jobs approve last release
      dagmaster jobs approve last release --comment "looks right"
    """
    from dagmaster.application.commands.control import approve_node

    sent_by = _approver(name, data_dir)

    async def answer(system: System) -> CommandResult:
        job, node = await _find_waiting(system, job_id, node_id, ReasonCode.APPROVAL)
        return await system.call(approve_node, job, node, sent_by=sent_by, comment=comment)

    return _run(data_dir, answer, as_json=as_json)


@click.command(epilog=_EXIT_CODES)
@job_argument
@node_argument
@comment_option
@as_option
@json_option
@data_dir_option
def reject(
    job_id: str,
    node_id: str | None,
    *,
    comment: str,
    name: str | None,
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """Reject a waiting approval: its node fails. NODE is needed if several wait.

    \b
    Examples:
      dagmaster jobs reject last release --comment "wrong year"
    """
    from dagmaster.application.commands.control import reject_node

    sent_by = _approver(name, data_dir)

    async def answer(system: System) -> CommandResult:
        job, node = await _find_waiting(system, job_id, node_id, ReasonCode.APPROVAL)
        return await system.call(reject_node, job, node, sent_by=sent_by, comment=comment)

    return _run(data_dir, answer, as_json=as_json)


@click.command(epilog=_EXIT_CODES)
@job_argument
@click.argument("signal_name", metavar="[NAME]", required=False)
@click.argument("payload", metavar="[JSON]", required=False)
@json_option
@data_dir_option
def signal(
    job_id: str, signal_name: str | None, payload: str | None, *, as_json: bool, data_dir: pathlib.Path | None
) -> int:
    """Send a signal to a job, with an optional JSON value.

    A node of type `wait` with `signal: NAME` continues with it. A signal that arrives before its node waits
    is kept. NAME is needed if nodes wait for several signals, and for a JSON value.

    \b
    Examples:
      dagmaster jobs signal last data_ready
      dagmaster jobs signal last data_ready '{"rows": 1200}'
    """
    from dagmaster.application.commands.control import send_signal

    value = None if payload is None else _parse_payload(payload)

    async def send(system: System) -> CommandResult:
        job, name = await _find_waiting(system, job_id, signal_name, ReasonCode.SIGNAL)
        return await system.call(send_signal, job, name, value, sent_by=sender())

    return _run(data_dir, send, as_json=as_json)


@click.command(epilog=_EXIT_CODES)
@job_argument
@click.argument("node_ids", metavar="NODE...", nargs=-1, required=True)
@click.option(
    "--dry-run", is_flag=True, help="Print what would be reused and what redone, and change nothing."
)
@json_option
@data_dir_option
def retry(
    job_id: str, node_ids: tuple[str, ...], *, dry_run: bool, as_json: bool, data_dir: pathlib.Path | None
) -> int:
    """Run nodes again: failed or cancelled ones, or, at once, those that wait for their next attempt.

    Nodes that were skipped because of them also run; other failures stay as they are. Several nodes, at most
    1,000, run again in one new run, while the job runs or after it; those that cannot be retried are skipped.
    A child of a fan-out has a name such as tiles__47.

    \b
    Examples:
      dagmaster jobs retry last fetch
      dagmaster jobs retry last tiles__47 tiles__48
      dagmaster jobs retry last tiles__47 --dry-run
    """
    from dagmaster.application.commands.control import retry_node, retry_nodes
    from dagmaster.application.commands.resume import plan_retry, plan_retry_nodes

    # A server of an older version can retry one node.
    (node_id, *others), names = node_ids, list(node_ids)
    if dry_run:

        def plan(system: System) -> Awaitable[ResumePlanView]:
            if others:
                return system.call(plan_retry_nodes, job_id, names)
            return system.call(plan_retry, job_id, node_id)

        print_plan(on_system(data_dir, plan), as_json=as_json)
        return COMPLETED

    def retry_all(system: System) -> Awaitable[CommandResult]:
        if others:
            return system.call(retry_nodes, job_id, names, sent_by=sender())
        return system.call(retry_node, job_id, node_id, sent_by=sender())

    return _run(data_dir, retry_all, as_json=as_json)


# ── Shared by several commands ──


def sender(name: str | None = None) -> str:
    """Return the user name that is recorded with a command."""
    return actor_of(Namespace.USER, name[:MAX_USER]) if name else current_user()[:MAX_USER]


async def _find_waiting(system: System, job_id: str, name: str | None, code: ReasonCode) -> tuple[str, str]:
    """Return the job and the named approval or signal, by default the only one that it waits for.

    The job is named by its id then: `last` may be another one by the time the answer is sent.
    """
    if name:
        return job_id, name
    from dagmaster.application.diagnosis import why_job
    from dagmaster.errors import CommandInvalid

    why = await system.call(why_job, job_id)
    waiting = {node_id: reason.data for node_id, reason in why.nodes.items() if reason.code is code}
    is_signal = code is ReasonCode.SIGNAL
    names = sorted({str(data["signal"]) if is_signal else node_id for node_id, data in waiting.items()})
    if len(names) == 1:
        return why.job.job_id, names[0]
    what = "a signal" if is_signal else "approval"
    if not names:
        raise CommandInvalid(f"no node of job {why.job.job_id} waits for {what}")
    noun = "signals" if is_signal else "approvals"
    listed = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
    raise CommandInvalid(f"job {why.job.job_id} waits for {len(names):,} {noun}: name one of {listed}")


def _approver(name: str | None, data_dir: pathlib.Path | None) -> str:
    """Return who answers an approval. A server knows that from the key."""
    if name is not None and find_server(data_dir) is not None:
        raise click.UsageError("--as is for users of the database: a server records the name of the key")
    return sender(name)


def print_result(
    result: CommandResult, *, as_json: bool, is_quiet: bool = False, is_watched: bool = False
) -> int:
    """Print what became of a command; return the exit code. `is_quiet`: print rejections only."""
    if not (is_quiet and result.accepted):
        if as_json:
            echo_json(result.to_dict())
        else:
            echo(result.sentence, err=not result.accepted)
            if result.accepted and not result.is_done:
                echo(f"To follow it: dagmaster jobs events {result.job_id} -f", err=True)
            elif (
                result.accepted
                and not is_watched
                and result.command in (CommandKind.RETRY, CommandKind.RESUME)
            ):
                echo(f"To watch it: dagmaster jobs watch {result.job_id}", err=True)
    return COMPLETED if result.accepted else BAD_INPUT


def print_plan(plan: ResumePlanView, *, as_json: bool) -> None:
    """Print what a resume or retry would do: lists of nodes, each with its reason."""
    if not plan.has_workers:
        echo("no worker is alive: the available handlers are unknown", err=True)
    if as_json:
        echo_json(plan.to_dict())
        return
    if plan.is_new_job:
        title = f"a new job of {plan.workflow_id} v{plan.version}, from job {plan.job_id}"
    elif plan.run is None:
        title = f"job {plan.job_id} completed: there is nothing to resume (--from NODE runs a node again)"
    else:
        title = f"run {plan.run} of job {plan.job_id}"
    echo(f"{title}. Nothing was changed.")
    width = max((len(node.node) for node in (*plan.reused, *plan.redone, *plan.impossible)), default=0)
    _print_nodes("reused", plan.reused, "green", width)
    _print_nodes("redone", tuple(node for node in plan.redone if not node.is_added_again), "yellow", width)
    added_again = tuple(node for node in plan.redone if node.is_added_again)
    if added_again:
        _print_nodes("redone if they are added again", added_again, "yellow", width)
    _print_nodes("impossible", plan.impossible, "red", width)


def _print_nodes(heading: str, nodes: tuple[PlannedNodeView, ...], colour: str, width: int) -> None:
    echo(f"\n{style(heading, fg=colour, bold=True)} ({len(nodes)})")
    for node in nodes:
        echo(f"  {node.node.ljust(width)}  {node.reason}")


def _run(
    data_dir: pathlib.Path | None, command: Callable[[System], Awaitable[CommandResult]], *, as_json: bool
) -> int:
    return print_result(on_system(data_dir, command), as_json=as_json)


def _parse_payload(text: str) -> JsonValue:
    from dagmaster.json_types import read_json

    try:
        return read_json(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(
            f"the payload is not JSON: {error}. A string needs quotes: '\"text\"'."
        ) from error

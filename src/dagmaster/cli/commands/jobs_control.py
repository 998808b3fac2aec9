"""What people send_command of jobs: cancel, approve, reject, signal, retry. For resume, see `resuming`.

What can be known is checked first, and told. Then the command goes into the job's inbox, which is durable; its owner
takes it up and tells so in the trail. If nobody owns the job yet, it happens later, and that is told, too.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from dagmaster.application.event_sentences import event_sentence
from dagmaster.cli.database import job_argument, on_database
from dagmaster.cli.main import BAD_INPUT, COMPLETED, FAILED
from dagmaster.cli.naming import graph_of, hint, named_node
from dagmaster.cli.options import current_user, data_dir_option, json_option
from dagmaster.engine.graph import ApprovalSpec, Kind
from dagmaster.errors import CommandRejected
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.command_kinds import CommandKind

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Collection

    from dagmaster.cli.database import ReadSession
    from dagmaster.engine.graph import Graph
    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.store.postgres.legacy_read_store import JobDetail, NodeRecord

WAIT_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.05
_EXIT_CODES: Final = "Exit codes: 0 done or accepted, 2 refused, 3 no database."
_REFUSALS: Final = frozenset({EventType.COMMAND_REJECTED, EventType.STALE_REPORT_IGNORED})

comment_option = click.option("--comment", default="", metavar="TEXT", help="Kept with the answer.")
as_option = click.option("--as", "name", metavar="NAME", help="Who answers.  [default: your user name]")
node_argument = click.argument("node_id", metavar="NODE")


@dataclass(slots=True)
class Request:
    """A command for a job: what is sent, what is checked before, and which events tell of its effect."""

    kind: CommandKind
    effects: Collection[str]
    body: dict[str, Any] = field(default_factory=dict)
    node: str | None = None
    name: str | None = None
    check: Callable[[JobDetail, Graph, NodeRecord | None, str], None] = lambda _head, _graph, _line, _by: None


@click.command(epilog="Exit codes: 0 accepted (--wait: it is cancelled), 1 it ended otherwise, 2 refused.")
@job_argument
@click.option("--wait", is_flag=True, help="Wait until the job is over.")
@json_option
@data_dir_option
def cancel(job_id: str, *, wait: bool, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Ask a job to stop.

    Nothing new starts, what runs is asked to stop, and what is done stays done: `jobs resume` goes on from there.

    \b
    Examples:
      dagmaster jobs cancel last
      dagmaster jobs cancel 115601869557067776 --wait
    """

    async def work(onlooker: ReadSession) -> int:
        request = Request(CommandKind.CANCEL, {EventType.CANCEL_REQUESTED}, check=_must_be_open)
        code = await send_command(onlooker, job_id, request, as_json=as_json, quiet=as_json and wait)
        return await _until_over(onlooker, job_id, as_json=as_json) if wait and code == COMPLETED else code

    return on_database(data_dir, work)


@click.command(epilog=_EXIT_CODES)
@job_argument
@node_argument
@comment_option
@as_option
@json_option
@data_dir_option
def approve(
    job_id: str, node_id: str, *, comment: str, name: str | None, as_json: bool, data_dir: pathlib.Path | None
) -> int:
    """Say yes to an approval: the job goes on.

    \b
    Examples:
      dagmaster jobs approve last release
      dagmaster jobs approve last release --comment "looks right"
    """
    return _answer(CommandKind.APPROVE, job_id, node_id, comment, name, as_json=as_json, data_dir=data_dir)


@click.command(epilog=_EXIT_CODES)
@job_argument
@node_argument
@comment_option
@as_option
@json_option
@data_dir_option
def reject(
    job_id: str, node_id: str, *, comment: str, name: str | None, as_json: bool, data_dir: pathlib.Path | None
) -> int:
    """Say no to an approval: its node fails.

    \b
    Examples:
      dagmaster jobs reject last release --comment "wrong year"
    """
    return _answer(CommandKind.REJECT, job_id, node_id, comment, name, as_json=as_json, data_dir=data_dir)


@click.command(epilog=_EXIT_CODES)
@job_argument
@click.argument("signal_name", metavar="NAME")
@click.argument("payload", metavar="[JSON]", required=False)
@json_option
@data_dir_option
def signal(job_id: str, signal_name: str, payload: str | None, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Send a signal to a job, with a value if you like.

    \b
    Examples:
      dagmaster jobs signal last data_ready
      dagmaster jobs signal last data_ready '{"rows": 1200}'
    """
    body = {"name": signal_name, "payload": None if payload is None else _payload(payload)}

    def check(head: JobDetail, graph: Graph, line: NodeRecord | None, by: str) -> None:
        _must_be_open(head, graph, line, by)
        if signal_name not in graph.wiring.waits:
            known = sorted(graph.wiring.waits)
            said = hint(signal_name, known) if known else "It waits for none."
            raise CommandRejected(f"no node of {head.workflow_id} waits for signal {signal_name!r}. {said}")

    request = Request(CommandKind.SIGNAL, {EventType.SIGNAL_RECEIVED}, body, check=check)
    return on_database(data_dir, lambda onlooker: send_command(onlooker, job_id, request, as_json=as_json))


@click.command(epilog=_EXIT_CODES)
@job_argument
@node_argument
@click.option("--dry-run", is_flag=True, help="Say what would be reused and what redone, and do nothing.")
@json_option
@data_dir_option
def retry(job_id: str, node_id: str, *, dry_run: bool, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Run one node again: one that failed, or at once one that rests between attempts.

    What was skipped because of it runs, too; other failures stay as they are. A child of a fan-out is named as
    tiles__47.

    \b
    Examples:
      dagmaster jobs retry last fetch
      dagmaster jobs retry last tiles__47 --dry-run
    """
    effects = {EventType.JOB_RESUMED, EventType.NODE_DISPATCHED}
    request = Request(CommandKind.RETRY, effects, {"node": node_id}, node=node_id, check=_must_be_retriable)

    async def work(onlooker: ReadSession) -> int:
        if not dry_run:
            return await send_command(onlooker, job_id, request, as_json=as_json)
        from dagmaster.cli.commands.jobs_resume import say_plan_of_run
        from dagmaster.engine.events import RetryRequested

        head = await onlooker.job(job_id)
        await _line(onlooker, head, await graph_of(onlooker, head), node_id)
        return await say_plan_of_run(onlooker, head, RetryRequested(node_id), frozenset({node_id}), as_json=as_json)

    return on_database(data_dir, work)


def _answer(
    kind: CommandKind,
    job_id: str,
    node_id: str,
    comment: str,
    name: str | None,
    *,
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    effect = EventType.APPROVED if kind is CommandKind.APPROVE else EventType.REJECTED
    body = {"node": node_id, "comment": comment}
    request = Request(kind, {effect}, body, node=node_id, name=name, check=_must_be_asked)
    return on_database(data_dir, lambda onlooker: send_command(onlooker, job_id, request, as_json=as_json))


# ── What can be known before ──


def _must_be_open(head: JobDetail, _graph: Graph, _line: NodeRecord | None, _by: str) -> None:
    if head.is_over:
        raise CommandRejected(f"job {head.id} is over: it is {head.status}")


def _must_be_asked(head: JobDetail, graph: Graph, line: NodeRecord | None, by: str) -> None:
    _must_be_open(head, graph, line, by)
    status = "PENDING" if line is None else line.status
    node_id = "" if line is None else line.node_id
    spec = graph.specs.get(node_id)
    if not isinstance(spec, ApprovalSpec):
        approvals = [each.id for each in graph.specs.values() if each.kind is Kind.APPROVAL]
        which = f"Its approvals: {', '.join(approvals)}." if approvals else f"{head.workflow_id} has none."
        raise CommandRejected(f"node {node_id} is no approval. {which}")
    if status != "WAITING":
        raise CommandRejected(f"node {node_id} is {status}: it does not wait for an answer")
    if spec.approvers and by not in spec.approvers:
        allowed = ", ".join(spec.approvers)
        raise CommandRejected(f"{by} may not answer {node_id}: its approvers are {allowed} (see --as)")


def _must_be_retriable(_head: JobDetail, _graph: Graph, line: NodeRecord | None, _by: str) -> None:
    if line is None:
        return
    rests = line.status == "READY" and line.wake_at is not None
    if not rests and line.status not in ("FAILED", "CANCELLED"):
        raise CommandRejected(
            f"node {line.node_id} is {line.status}: only one that failed or was cancelled can be retried"
        )


def _payload(text: str) -> Any:
    from dagmaster.authoring.inputs import read_json

    try:
        return read_json(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"the payload is no JSON: {error}. A text is written '\"so\"'.") from error


# ── Asking ──


async def send_command(
    onlooker: ReadSession, job_id: str, request: Request, *, as_json: bool, quiet: bool = False, watched: bool = False
) -> int:
    """Send a command, and say what became of it. `watched`: the job is watched next, so nobody has to be told how."""
    from dagmaster.store.postgres.client_store import PostgresClientStore

    head = await onlooker.job(job_id)
    graph = await graph_of(onlooker, head)
    by = (request.name or current_user())[:64]
    request.check(head, graph, await _line(onlooker, head, graph, request.node), by)
    store = PostgresClientStore(onlooker.address)
    try:
        await store.send(head.id, request.kind, request.body, by)
    finally:
        await store.session.close()
    # With nobody to take it up there is nothing to wait for.
    has_owner = (await onlooker.store.alive()).orchestrators > 0
    event = await _effect(onlooker, head, graph, request) if has_owner else None
    refused = event is not None and event.type in _REFUSALS
    if event is not None:
        sentence = event_sentence(event)
    elif not has_owner:
        sentence = "accepted. No orchestrator is alive: it happens as soon as one runs (dagmaster orchestrator)"
    else:
        sentence = f"accepted. Nobody has taken it up yet: dagmaster jobs events {head.id} -f tells when"
    if quiet and not refused:
        return COMPLETED
    if as_json:
        document = {"job_id": head.id, "command": request.kind, "accepted": not refused, "done": event is not None}
        click.echo(json.dumps({**document, "seq": None if event is None else event.seq, "sentence": sentence}))
    else:
        click.echo(sentence, err=refused)
        if not refused and not watched and request.kind in (CommandKind.RETRY, CommandKind.RESUME):
            click.echo(f"To watch it: dagmaster jobs watch {head.id}", err=True)
    return BAD_INPUT if refused else COMPLETED


async def _line(onlooker: ReadSession, head: JobDetail, graph: Graph, node_id: str | None) -> NodeRecord | None:
    """The row of the node that is asked about."""
    return None if node_id is None else await named_node(onlooker, head, graph, node_id)


async def _effect(onlooker: ReadSession, head: JobDetail, graph: Graph, request: Request) -> StoredEvent | None:
    """The event that tells what became of a command, if it comes soon."""
    until = time.monotonic() + WAIT_SECONDS
    nodes = [*graph.specs, *([request.node] if request.node else [])]
    after = head.event_seq
    while time.monotonic() < until:
        for event in await onlooker.store.events(head.id, after=after, node_ids=nodes):
            after = event.seq
            if event.node not in (request.node, None):
                continue
            # A stale report has an attempt; a stale command has none.
            is_refusal = event.type in _REFUSALS and event.attempt is None
            if event.type in request.effects or (
                is_refusal and event.data.get("command", request.kind) == request.kind
            ):
                return event
        await asyncio.sleep(_POLL_SECONDS)
    return None


async def _until_over(onlooker: ReadSession, job_id: str, *, as_json: bool) -> int:
    from dagmaster.cli.commands.jobs_watch import follow

    await follow(onlooker, job_id, plain=False, as_json=as_json)
    head = await onlooker.job(job_id)
    return COMPLETED if head.status == "CANCELLED" else FAILED

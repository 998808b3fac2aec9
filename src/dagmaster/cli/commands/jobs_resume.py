"""`dagmaster jobs resume`: a new run of a job, or a new job that uses the results of another where they fit."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from dagmaster.cli.commands.jobs_control import Request, send_command
from dagmaster.cli.database import job_argument, on_database
from dagmaster.cli.main import BAD_INPUT, COMPLETED
from dagmaster.cli.naming import graph_of, named_node
from dagmaster.cli.options import current_user, data_dir_option, inputs_remedy, json_option, print_rejection, read_pairs
from dagmaster.engine.resume_plan import ResumeContext, ReuseKind, plan_new_job, plan_rerun
from dagmaster.errors import CommandRejected, InputsInvalid
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.command_kinds import CommandKind

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping, Sequence

    from dagmaster.cli.database import ReadSession
    from dagmaster.engine.events import ResumeRequested, RetryRequested
    from dagmaster.engine.graph import Graph
    from dagmaster.engine.resume_plan import ReuseDecision
    from dagmaster.ports.job_records import Accepted, ClaimedJob
    from dagmaster.settings import Settings
    from dagmaster.store.postgres.legacy_read_store import JobDetail
    from dagmaster.store.postgres.orchestrator_store import PostgresOrchestratorStore

_COLOURS: Final = {ReuseKind.REUSED: "green", ReuseKind.REDONE: "yellow", ReuseKind.IMPOSSIBLE: "red"}


@click.command(
    epilog="Exit codes: 0 done or accepted (--wait: completed), 1 failed, 2 refused, 3 no database, 130 interrupted."
)
@job_argument
@click.option("--from", "nodes", multiple=True, metavar="NODE", help="This node and all that follows, too. Repeatable.")
@click.option("-i", "--input", "pairs", multiple=True, metavar="KEY=VALUE", help="Another input. Repeatable.")
@click.option("--version", "version", type=click.IntRange(1), help="Another published version of the workflow.")
@click.option("--dry-run", is_flag=True, help="Say what would be reused and what redone, and do nothing.")
@click.option("--idempotency-key", "key", metavar="KEY", help="For another new job from the same inputs and version.")
@click.option("--wait", is_flag=True, help="Watch the job to its end; the exit code tells how it ended.")
@json_option
@data_dir_option
def resume(  # noqa: PLR0913 - the options of a command
    job_id: str,
    *,
    nodes: tuple[str, ...],
    pairs: tuple[str, ...],
    version: int | None,
    dry_run: bool,
    key: str | None,
    wait: bool,
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """Run again what failed, was cancelled, or was skipped because of it. What completed stays.

    That is a new run of the same job. With other inputs or another version it is a new job, which uses the results of
    this one wherever the handler and its version, the params, and all that a node follows are the same. --from redoes
    a node and all that follows it, whatever fits; of a fan-out's children, one is named as tiles__47.

    --dry-run says it before: what is reused, what is redone, what is impossible, and why.

    \b
    Examples:
      dagmaster jobs resume last
      dagmaster jobs resume last --from plan --dry-run
      dagmaster jobs resume last -i year=2025 --wait
      dagmaster jobs resume 115601869557067776 --version 4
    """
    from dagmaster.settings import load_settings

    async def work(onlooker: ReadSession) -> int:
        head = await onlooker.job(job_id)
        try:
            order = await _ordered(onlooker, head, nodes=nodes, pairs=pairs, version=version, key=key)
        except InputsInvalid as error:
            said = f"nothing was resumed: {inputs_remedy(error)}"
            print_rejection(error, said, sys.stdout if as_json else None)
            return BAD_INPUT
        if dry_run:
            return await _say_plan(onlooker, order, load_settings(), as_json=as_json)
        if order.is_new_job:
            accepted = await _submit(onlooker, order, load_settings())
            _say_accepted(order, accepted, as_json=as_json, wait=wait)
            return await _until_over(onlooker, accepted.job_id, as_json=as_json) if wait else COMPLETED
        request = Request(CommandKind.RESUME, {EventType.JOB_RESUMED}, {"nodes": list(nodes)})
        code = await send_command(onlooker, head.id, request, as_json=as_json, quiet=as_json and wait, watched=wait)
        return await _until_over(onlooker, head.id, as_json=as_json) if wait and code == COMPLETED else code

    return on_database(data_dir, work)


@dataclass(slots=True, kw_only=True)
class ResumeArgs:
    """What was asked for, checked: the job, and what it is to be resumed with."""

    head: JobDetail
    before: Graph
    graph: Graph
    inputs: dict[str, Any]
    named: tuple[str, ...]
    key: str | None

    @property
    def is_new_job(self) -> bool:
        """Whether anything is another than it was. The same again is a new run of the same job."""
        return self.graph.content_hash != self.before.content_hash or bool(differing(self.head.inputs, self.inputs))

    @property
    def default_key(self) -> str:
        """The same resume of the same job, sent twice, is one job."""
        from dagmaster.engine.fingerprints import digest

        what = json.dumps([self.graph.content_hash, self.inputs, sorted(self.named)], sort_keys=True)
        return f"resume:{self.head.id}:{digest(what).hex()}"


async def _ordered(
    onlooker: ReadSession,
    head: JobDetail,
    *,
    nodes: tuple[str, ...],
    pairs: tuple[str, ...],
    version: int | None,
    key: str | None,
) -> ResumeArgs:
    from dagmaster.authoring.inputs import accept_inputs, parse_input

    if not head.is_over:
        raise CommandRejected(
            f"job {head.id} is {head.status}: only a job that is over can be resumed (dagmaster jobs cancel ends it)"
        )
    before = await graph_of(onlooker, head)
    graph = before if version is None else await _version(onlooker, head, version)
    given = read_pairs(pairs, lambda name, text: parse_input(graph, name, text), "an input")
    kept = {name: value for name, value in head.inputs.items() if name in graph.inputs}
    inputs = accept_inputs(graph, kept | given)
    order = ResumeArgs(head=head, before=before, graph=graph, inputs=inputs, named=nodes, key=key)
    for node_id in nodes:
        await _must_be_there(onlooker, order, node_id)
    if not order.is_new_job:
        if head.status == "COMPLETED" and not nodes:
            same = "; its inputs and version are these" if pairs or version is not None else ""
            raise CommandRejected(f"job {head.id} completed{same}: name what is to run again with --from")
        if key is not None:
            raise CommandRejected(
                "a new run of the same job has no idempotency key: it is for a new job (-i, --version)"
            )
    return order


async def _must_be_there(onlooker: ReadSession, order: ResumeArgs, node_id: str) -> None:
    if node_id in order.graph.specs:
        return
    if order.is_new_job and node_id in order.before.specs:
        raise CommandRejected(f"version {order.graph.version} of {order.graph.workflow_id} has no node {node_id!r}")
    fan = node_id.partition("__")[0]
    if order.is_new_job and fan in order.graph.specs:
        raise CommandRejected(f"a new job makes its children anew: name their fan-out, {fan}, with --from")
    await named_node(onlooker, order.head, order.graph, node_id)


async def _version(onlooker: ReadSession, head: JobDetail, version: int) -> Graph:
    from dagmaster.authoring.compiler.compile import compile_definition

    versions = await onlooker.store.versions(head.workflow_id)
    found = next((each for each in versions if each["version"] == version), None)
    if found is None:
        known = ", ".join(str(each["version"]) for each in versions)
        said = f"its versions are {known}" if versions else "none is: dagmaster workflows push FILE publishes one"
        raise CommandRejected(f"no version {version} of {head.workflow_id} is published: {said}")
    return compile_definition(await onlooker.store.definition(found["content_hash"]) or {})


# ── A new job ──


async def _submit(onlooker: ReadSession, order: ResumeArgs, settings: Settings) -> Accepted:
    from dagmaster.application.submission import JobSubmitter, Submission
    from dagmaster.bootstrap import allowed_env
    from dagmaster.store.postgres.client_store import PostgresClientStore

    old = await _looked_at(onlooker, order.head.id, settings)
    store = PostgresClientStore(onlooker.address)
    await store.open()
    try:
        submission = Submission(
            graph=order.graph,
            inputs=order.inputs,
            env=allowed_env(settings),
            priority=order.head.priority,
            idempotency_key=order.key or order.default_key,
            submitted_by=current_user()[:64],
            correlation_id=order.head.correlation_id,
            workflows=old.workflows,
            resumed_from=order.head.id,
            redo=order.named,
        )
        return (await JobSubmitter(store, store.identity.ids).submit([submission]))[0]
    finally:
        await store.close()


async def _looked_at(onlooker: ReadSession, job_id: str, settings: Settings) -> ClaimedJob:
    store = _orchestrator_door(onlooker, settings)
    try:
        found = await store.load_job(job_id)
    finally:
        await store.close()
    if found is None:
        raise CommandRejected(f"there is no job {job_id}")
    return found


def _orchestrator_door(onlooker: ReadSession, settings: Settings) -> PostgresOrchestratorStore:
    """What an orchestrator reads with. Nobody registers: it owns nothing."""
    from dagmaster.store.postgres.orchestrator_store import PostgresOrchestratorStore

    lease = settings.worker_lease_seconds
    return PostgresOrchestratorStore(onlooker.address, blobs=onlooker.blobs, worker_lease_seconds=lease)


def _say_accepted(order: ResumeArgs, accepted: Accepted, *, as_json: bool, wait: bool) -> None:
    if as_json:
        if not wait:
            document = {"job_id": accepted.job_id, "workflow_id": order.graph.workflow_id, "is_new": accepted.is_new}
            click.echo(json.dumps({**document, "version": order.graph.version, "resumed_from": order.head.id}))
        return
    what = "a new job" if accepted.is_new else "the same was asked before: job"
    job = click.style(accepted.job_id, bold=True)
    click.echo(f"{what} {job} of {order.graph.workflow_id} v{order.graph.version}, from {order.head.id}", err=True)
    if not wait:
        click.echo(f"To watch it: dagmaster jobs watch {accepted.job_id}", err=True)
        if not sys.stdout.isatty():
            # For a script: JOB=$(dagmaster jobs resume …)
            click.echo(accepted.job_id)


async def _until_over(onlooker: ReadSession, job_id: str, *, as_json: bool) -> int:
    from dagmaster.cli.commands.jobs_watch import follow

    return await follow(onlooker, job_id, plain=False, as_json=as_json)


# ── Before it runs ──


async def _say_plan(onlooker: ReadSession, order: ResumeArgs, settings: Settings, *, as_json: bool) -> int:
    from dagmaster.engine.events import ResumeRequested

    if not order.is_new_job:
        happening = ResumeRequested(order.named)
        return await say_plan_of_run(onlooker, order.head, happening, frozenset(order.named), as_json=as_json)
    verdicts = await _rehearsed(onlooker, order, settings)
    title = f"a new job of {order.graph.workflow_id} v{order.graph.version}, from job {order.head.id}"
    say_verdicts(title, verdicts, {"job_id": order.head.id, "new_job": True}, as_json=as_json)
    return COMPLETED


async def say_plan_of_run(
    onlooker: ReadSession,
    head: JobDetail,
    happening: ResumeRequested | RetryRequested,
    named: frozenset[str],
    *,
    as_json: bool,
) -> int:
    """Say what a new run of a job would do. `CommandRejected` says why there is none."""
    from dagmaster.engine.model import Job
    from dagmaster.settings import load_settings

    graph = await graph_of(onlooker, head)
    store = _orchestrator_door(onlooker, load_settings())
    try:
        stored = await store.load_job(head.id)
        around = await _circumstances(onlooker, store, named=named)
    finally:
        await store.close()
    if stored is None:
        raise CommandRejected(f"there is no job {head.id}")
    job = Job.rebuild(graph, stored.row, stored.nodes)
    verdicts = plan_rerun(job, happening, head.now, around)
    if isinstance(verdicts, str):
        raise CommandRejected(verdicts)
    facts = {"job_id": head.id, "new_job": False}
    say_verdicts(f"run {job.run} of job {head.id}", verdicts, facts, as_json=as_json)
    return COMPLETED


async def _rehearsed(onlooker: ReadSession, order: ResumeArgs, settings: Settings) -> list[ReuseDecision]:
    from dagmaster.bootstrap import allowed_env
    from dagmaster.engine.model import Job
    from dagmaster.orchestrator.dry_run import dry_run

    head, env = order.head, allowed_env(settings)
    store = _orchestrator_door(onlooker, settings)
    try:
        stored = await store.load_job(head.id)
        if stored is None:
            raise CommandRejected(f"there is no job {head.id}")
        past = await store.load_source_job(head.id)
        around = await _circumstances(
            onlooker, store, named=frozenset(order.named), inputs=differing(head.inputs, order.inputs),
            env=differing(stored.env, env),
        )  # fmt: skip
        job = await dry_run(
            store, order.graph, inputs=order.inputs, env=env, workflows=stored.workflows, past=past, redo=order.named
        )
    finally:
        await store.close()
    return plan_new_job(job, Job.rebuild(order.before, stored.row, stored.nodes), around)


async def _circumstances(
    onlooker: ReadSession, store: PostgresOrchestratorStore, **given: frozenset[str]
) -> ResumeContext:
    handlers = await store.known_handlers()
    lives = (await onlooker.store.alive()).workers > 0
    if not lives:
        click.echo("no worker is alive: which handlers there are is not known", err=True)
    return ResumeContext(versions=handlers.versions, served=handlers.served if lives else None, **given)


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> frozenset[str]:
    """The names under which there is another JSON than before. A handler can tell true, 1 and 1.0 apart."""
    texts = [{name: json.dumps(value, sort_keys=True) for name, value in each.items()} for each in (before, now)]
    return frozenset(name for name in {*before, *now} if texts[0].get(name) != texts[1].get(name))


def say_verdicts(title: str, verdicts: Sequence[ReuseDecision], facts: dict[str, Any], *, as_json: bool) -> None:
    """Print three lists, each node with its reason."""
    lists = {fate: [each for each in verdicts if each.kind is fate] for fate in ReuseKind}
    if as_json:
        document = {**facts, **{fate.value: [_document(each) for each in found] for fate, found in lists.items()}}
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    click.echo(f"{title}. Nothing was done.")
    width = max((len(each.node) for each in verdicts), default=0)
    for fate, found in lists.items():
        click.echo(f"\n{click.style(fate.value, fg=_COLOURS[fate], bold=True)} ({len(found)})")
        for each in found:
            click.echo(f"  {each.node.ljust(width)}  {each.reason}")


def _document(verdict: ReuseDecision) -> dict[str, Any]:
    said: dict[str, Any] = {"node": verdict.node, "reason": verdict.reason}
    if verdict.children is not None:
        said["children"] = dict(zip(("reused", "redone"), verdict.children, strict=True))
    return said

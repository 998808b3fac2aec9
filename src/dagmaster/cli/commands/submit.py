"""`dagmaster submit`: a job for the orchestrators and workers that run."""

from __future__ import annotations

import asyncio
import json
import pathlib
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from dagmaster.cli.errors import CommandError
from dagmaster.cli.main import BAD_INPUT, COMPLETED
from dagmaster.cli.options import (
    current_user,
    data_dir_option,
    handlers_option,
    inputs_options,
    inputs_remedy,
    json_option,
    load_registry,
    print_problems,
    print_rejection,
    read_json_file,
    read_pairs,
)
from dagmaster.errors import DagmasterError, InputsInvalid, WorkflowInvalid, WorkflowNotFound

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.job_records import Accepted
    from dagmaster.settings import Settings
    from dagmaster.store.postgres.client_store import PostgresClientStore


@click.command(
    epilog="Exit codes: 0 accepted (--wait: completed), 1 failed, 2 refused, 3 no database, 130 interrupted."
)
@click.argument("workflow")
@inputs_options
@click.option("--version", "version", type=click.IntRange(1), help="A version.  [default: the active one]")
@click.option("--priority", type=click.IntRange(0, 10), default=5, show_default=True, help="10 is the most urgent.")
@click.option("--idempotency-key", "key", metavar="KEY", help="The same key is the same job, however often it is sent.")
@click.option("--correlation-id", "correlation", metavar="ID", help="Your own id, kept with the job.")
@click.option("--wait", is_flag=True, help="Watch the job to its end; the exit code tells how it ended.")
@json_option
@handlers_option
@data_dir_option
def submit(  # noqa: PLR0913 - the options of a command
    workflow: str,
    *,
    pairs: tuple[str, ...],
    inputs_file: pathlib.Path | None,
    version: int | None,
    priority: int,
    key: str | None,
    correlation: str | None,
    wait: bool,
    as_json: bool,
    modules: tuple[str, ...],
    data_dir: pathlib.Path | None,
) -> int:
    """Submit a job of a published WORKFLOW, or of a workflow file.

    The job is stored before this says so. An orchestrator and a worker do the rest: `dagmaster dev` runs both.

    \b
    Examples:
      dagmaster submit fan_out -i count=10000 --wait
      dagmaster submit workflows/hello_world.yaml -i name=Ada
      dagmaster submit nightly --idempotency-key nightly-2026-01-31 --priority 8
    """
    from dagmaster.bootstrap import open_database
    from dagmaster.settings import load_settings

    given = read_json_file(inputs_file)
    order = SubmitArgs(
        workflow=workflow,
        version=version,
        pairs=pairs,
        given=given,
        priority=priority,
        key=key,
        correlation=correlation,
    )
    try:
        settings = load_settings()
        if order.is_file:
            order.compile(modules)
        with open_database(settings, data_dir) as address:
            accepted, workflow_id = asyncio.run(_submit(address, order, settings))
            _say(accepted, workflow_id, as_json=as_json and not wait, quiet=wait and as_json, wait=wait)
            if wait:
                from dagmaster.cli.commands.jobs import watch_to_end

                return watch_to_end(address, accepted.job_id, as_json=as_json)
    except (InputsInvalid, WorkflowInvalid) as error:
        said = "the workflow cannot run" if isinstance(error, WorkflowInvalid) else inputs_remedy(error)
        print_rejection(error, f"nothing was submitted: {said}", sys.stdout if as_json else None)
        return BAD_INPUT
    except DagmasterError as error:
        raise CommandError(error) from error
    return COMPLETED


@dataclass(slots=True, kw_only=True)
class SubmitArgs:
    """What was asked for on the command line."""

    workflow: str
    version: int | None
    pairs: tuple[str, ...]
    given: dict[str, Any]
    priority: int
    key: str | None
    correlation: str | None
    graphs: list[Graph] = field(default_factory=list)

    @property
    def is_file(self) -> bool:
        """Whether a file is meant, and not the id of a published workflow."""
        path = pathlib.Path(self.workflow)
        return path.suffix in (".yaml", ".yml") or path.is_file()

    def compile(self, modules: tuple[str, ...]) -> None:
        """Read the file, and the workflows beside it that it starts."""
        from dagmaster.bootstrap import compile_with_children

        path = pathlib.Path(self.workflow)
        if not path.is_file():
            raise click.ClickException(f"there is no file {path}")
        compiled, children = compile_with_children(path, load_registry(modules))
        print_problems(compiled.warnings)
        self.graphs = [compiled.graph, *children]


async def _submit(address: DatabaseConfig, order: SubmitArgs, settings: Settings) -> tuple[Accepted, str]:
    from dagmaster.application.submission import JobSubmitter, Submission
    from dagmaster.authoring.inputs import parse_input
    from dagmaster.bootstrap import allowed_env, ensure_schema
    from dagmaster.store.postgres.client_store import PostgresClientStore

    # The embedded database is this machine's own, and whoever comes first makes its tables.
    await ensure_schema(address, migrate=address.is_embedded)
    store = PostgresClientStore(address)
    await store.open()
    try:
        intake = JobSubmitter(store, store.identity.ids)
        graph = order.graphs[0] if order.graphs else await _published(store, order.workflow, order.version)
        for each in order.graphs[1:]:
            await intake.keep(each)
        pairs = read_pairs(order.pairs, lambda name, text: parse_input(graph, name, text), "an input")
        submission = Submission(
            graph=graph,
            inputs=order.given | pairs,
            env=allowed_env(settings),
            priority=order.priority,
            idempotency_key=order.key,
            submitted_by=current_user()[:64],
            correlation_id=order.correlation,
            workflows={each.workflow_id: each.content_hash for each in order.graphs[1:]},
        )
        accepted = await intake.submit([submission])
        return accepted[0], graph.workflow_id
    finally:
        await store.close()


async def _published(store: PostgresClientStore, workflow_id: str, version: int | None) -> Graph:
    from dagmaster.authoring.compiler.compile import compile_definition
    from dagmaster.authoring.suggestions import did_you_mean

    versions = await store.versions(workflow_id)
    fitting = [found for found, is_active in versions if found.version == version or (version is None and is_active)]
    if not versions:
        known = await store.workflow_ids()
        hint = did_you_mean(workflow_id, known) or (
            "List them with `dagmaster workflows list`."
            if known
            else "Publish one with `dagmaster workflows push FILE`."
        )
        raise WorkflowNotFound(f"no workflow {workflow_id!r} is published. {hint[:1].upper()}{hint[1:]}")
    if not fitting:
        known_versions = ", ".join(str(found.version) for found, _ in versions)
        what = f"no version {version}" if version is not None else "no active version"
        raise WorkflowNotFound(f"workflow {workflow_id!r} has {what}: its versions are {known_versions}")
    definition = await store.definition(fitting[0].content_hash)
    return compile_definition(definition)


def _say(accepted: Accepted, workflow_id: str, *, as_json: bool, quiet: bool, wait: bool) -> None:
    if quiet:
        return
    if as_json:
        click.echo(json.dumps({"job_id": accepted.job_id, "workflow_id": workflow_id, "is_new": accepted.is_new}))
        return
    what = "job" if accepted.is_new else "the same key was sent before: job"
    click.echo(f"{what} {click.style(accepted.job_id, bold=True)} of {workflow_id}", err=True)
    if not wait:
        click.echo(f"watch it: dagmaster jobs watch {accepted.job_id}", err=True)
        if not sys.stdout.isatty():
            # For a script: JOB=$(dagmaster submit …)
            click.echo(accepted.job_id)

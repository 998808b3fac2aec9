"""`dagmaster workflows push, list, show`: the workflows that a database has."""

from __future__ import annotations

import json
import pathlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from dagmaster.cli.database import on_database
from dagmaster.cli.main import BAD_INPUT, COMPLETED
from dagmaster.cli.options import data_dir_option, handlers_option, json_option, load_registry, print_problems
from dagmaster.cli.render.job import describe
from dagmaster.errors import WorkflowInvalid, WorkflowNotFound
from dagmaster.text_format import age

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.cli.database import ReadSession
    from dagmaster.engine.graph import Graph
    from dagmaster.errors import Problem
    from dagmaster.store.postgres.client_store import PostgresClientStore


@dataclass(slots=True)
class _Push:
    """A file on its way, and what becomes of it."""

    file: pathlib.Path
    graph: Graph
    outcome: str = ""
    sentence: str = ""


@click.command(epilog="Exit codes: 0 all are published, 2 one cannot run or was refused (then none is), 3 no database.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=pathlib.Path))
@click.option("--replace", is_flag=True, help="Give a version another content: for development.")
@click.option("--no-activate", is_flag=True, help="Publish without making it the version that new jobs get.")
@click.option("--allow-missing-handlers", is_flag=True, help="A handler that is not there is a warning, not an error.")
@json_option
@handlers_option
@data_dir_option
def push(
    files: tuple[pathlib.Path, ...],
    *,
    replace: bool,
    no_activate: bool,
    allow_missing_handlers: bool,
    as_json: bool,
    modules: tuple[str, ...],
    data_dir: pathlib.Path | None,
) -> int:
    """Publish workflow files, so that jobs can be submitted by their id.

    All files are checked first, as `workflows validate` does; if one cannot run, none is published. A published version
    does not change: raise `version:` in the file. Jobs keep the content they were submitted with. A folder stands for
    the .yaml and .yml files in it.

    \b
    Examples:
      dagmaster workflows push workflows/
      dagmaster workflows push flow.yaml --handlers ./my_handlers.py
      dagmaster workflows push flow.yaml --replace         while you write it
    """
    from dagmaster.authoring.compiler.compile import compile_file
    from dagmaster.cli.commands.workflows import unfold

    registry = load_registry(modules)
    pushes: list[_Push] = []
    problems: list[Problem] = []
    for file in unfold(files):
        try:
            compiled = compile_file(file, handlers=registry, allow_missing_handlers=allow_missing_handlers)
        except WorkflowInvalid as error:
            problems += error.problems
        else:
            pushes.append(_Push(file, compiled.graph))
            problems += compiled.warnings
    print_problems(problems)
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        click.echo(f"\n{len(errors)} problem{'s' if len(errors) != 1 else ''}: nothing was published.", err=True)
        if as_json:
            click.echo(json.dumps({"status": "REFUSED", "problems": [asdict(problem) for problem in problems]}))
        return BAD_INPUT
    on_database(data_dir, lambda onlooker: _publish(onlooker, pushes, replace=replace, activate=not no_activate))
    refused = any(each.outcome == "refused" for each in pushes)
    if as_json:
        click.echo(json.dumps([_push_document(each) for each in pushes], ensure_ascii=False))
    else:
        for each in pushes:
            colour = {"refused": "red", "already there": None}.get(each.outcome, "green")
            name = f"{each.graph.workflow_id} v{each.graph.version}"
            click.echo(f"{click.style(each.outcome, fg=colour, bold=True)}  {name}{each.sentence}", err=refused)
        if refused:
            click.echo("\nnothing was published.", err=True)
    return BAD_INPUT if refused else COMPLETED


def _push_document(push: _Push) -> dict[str, Any]:
    graph = push.graph
    return {
        "file": str(push.file),
        "workflow_id": graph.workflow_id,
        "version": graph.version,
        "content_hash": graph.content_hash,
        "outcome": push.outcome.replace(" ", "_"),
    }


async def _publish(onlooker: ReadSession, pushes: list[_Push], *, replace: bool, activate: bool) -> None:
    from dagmaster.ports.job_records import StoredWorkflow
    from dagmaster.store.postgres.client_store import PostgresClientStore

    store = PostgresClientStore(onlooker.address, "dagmaster push")
    try:
        for each in pushes:
            await _decide(store, each, pushes, replace=replace)
        if any(each.outcome == "refused" for each in pushes):
            return
        for each in pushes:
            graph = each.graph
            await store.put_graph(graph.content_hash, json.dumps(graph.definition))
            stored = StoredWorkflow(graph.workflow_id, graph.version, graph.content_hash)
            await store.publish(stored, activate=activate)
            if not activate and each.outcome != "already there":
                each.sentence += ", not active"
    finally:
        await store.session.close()


async def _decide(store: PostgresClientStore, push: _Push, pushes: list[_Push], *, replace: bool) -> None:
    graph = push.graph
    versions = {found.version: found for found, _ in await store.versions(graph.workflow_id)}
    same = versions.get(graph.version)
    twin = next(
        (
            other
            for other in pushes
            if other is not push
            and (other.graph.workflow_id, other.graph.version) == (graph.workflow_id, graph.version)
        ),
        None,
    )
    if twin is not None and twin.graph.content_hash != graph.content_hash:
        push.outcome, push.sentence = "refused", f": {push.file} and {twin.file} are the same version of it"
    elif same is None:
        push.outcome = "published"
    elif same.content_hash == graph.content_hash:
        push.outcome = "already there"
    elif replace:
        push.outcome, push.sentence = "replaced", "; jobs that run keep what they have"
    else:
        push.outcome = "refused"
        push.sentence = (
            f": version {graph.version} is published with another content. Raise `version:` to {max(versions) + 1} in"
            f" {push.file}, or use --replace while you write it; jobs that run keep what they have"
        )


@click.command(name="list")
@json_option
@data_dir_option
def list_workflows(*, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """List the published workflows.

    \b
    Examples:
      dagmaster workflows list
    """

    async def work(onlooker: ReadSession) -> list[dict[str, Any]]:
        return await onlooker.store.workflows()

    found = on_database(data_dir, work)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return COMPLETED
    if not found:
        click.echo("no workflow is published. Publish some: dagmaster workflows push workflows/", err=True)
        return COMPLETED
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for name in ("workflow", "active", "versions", "published", "name"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for each in found:
        table.add_row(
            Text(each["workflow_id"], style="bold"),
            "none" if each["active"] is None else f"v{each['active']}",
            f"{each['versions']}",
            f"{age(each['age_seconds'])} ago",
            Text(each["name"] or "", style="bright_black"),
        )
    Console().print(table)
    return COMPLETED


@click.command()
@click.argument("workflow_id", metavar="ID")
@click.option("--version", type=click.IntRange(1), help="A version.  [default: the active one]")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print the stored definition as YAML.")
@json_option
@data_dir_option
def show(workflow_id: str, *, version: int | None, as_yaml: bool, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show a published workflow: its versions, what it takes, and its nodes.

    \b
    Examples:
      dagmaster workflows show fan_out
      dagmaster workflows show fan_out --version 1 --yaml > fan_out.yaml
    """
    if as_yaml and as_json:
        raise click.UsageError("--json and --yaml are two answers to one question: choose one")

    async def work(onlooker: ReadSession) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
        versions = await onlooker.store.versions(workflow_id)
        chosen = await _choose(onlooker, workflow_id, versions, version)
        return versions, chosen, await onlooker.store.definition(chosen["content_hash"]) or {}

    versions, chosen, definition = on_database(data_dir, work)
    if as_yaml:
        import yaml

        click.echo(yaml.safe_dump(definition, sort_keys=False, allow_unicode=True), nl=False)
    elif as_json:
        document = {
            "workflow_id": workflow_id,
            "version": chosen["version"],
            "is_active": chosen["is_active"],
            "content_hash": chosen["content_hash"],
            "versions": [{"version": each["version"], "is_active": each["is_active"]} for each in versions],
            "definition": definition,
        }
        click.echo(json.dumps(document, ensure_ascii=False))
    else:
        from dagmaster.authoring.compiler.compile import compile_definition

        Console().print(Group(*workflow_page(compile_definition(definition), versions, chosen)))
    return COMPLETED


async def _choose(
    onlooker: ReadSession, workflow_id: str, versions: list[dict[str, Any]], version: int | None
) -> dict[str, Any]:
    if not versions:
        from dagmaster.authoring.suggestions import did_you_mean

        known = [each["workflow_id"] for each in await onlooker.store.workflows()]
        hint = did_you_mean(workflow_id, known) or "`dagmaster workflows push FILE` publishes one."
        raise WorkflowNotFound(f"no workflow {workflow_id!r} is published. {hint[:1].upper()}{hint[1:]}")
    if version is None:
        # Where none is active, the newest.
        return next((each for each in versions if each["is_active"]), versions[-1])
    for each in versions:
        if each["version"] == version:
            return each
    numbers = ", ".join(str(each["version"]) for each in versions)
    raise WorkflowNotFound(f"workflow {workflow_id!r} has no version {version}: its versions are {numbers}")


def workflow_page(graph: Graph, versions: list[dict[str, Any]], chosen: dict[str, Any]) -> Iterator[Any]:
    """Draw a workflow."""
    from dagmaster.cli.render.tree import tree_of

    title = Text(f"{graph.workflow_id} v{graph.version}", style="bold")
    title.append(f"  {graph.name}" if graph.name != graph.workflow_id else "")
    title.append(
        "  active" if chosen["is_active"] else "  not active", style="green" if chosen["is_active"] else "yellow"
    )
    yield title
    if graph.description:
        yield Text(graph.description.strip())
    if len(versions) > 1:
        named = ", ".join(f"v{each['version']}{' (active)' if each['is_active'] else ''}" for each in versions)
        yield Text(f"versions: {named}", style="bright_black")
    if graph.inputs:
        yield Text("\ninputs", style="bright_black")
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for name, spec in graph.inputs.items():
            table.add_row(
                Text(f"  {name}", style="bold"), str(spec.get("type", "string")), _default(spec), _about(spec)
            )
        yield table
    yield Text("\nnodes", style="bright_black")
    rows = tree_of(graph)
    width = max((len(row.prefix) + len(row.node_id) for row in rows), default=0)
    for row in rows:
        line = Text("  ", no_wrap=True, overflow="ellipsis")
        line.append(row.prefix, style="bright_black")
        line.append(row.node_id, style="bold")
        line.append(" " * (width - len(row.prefix) - len(row.node_id)))
        node = graph.specs[row.node_id]
        line.append(f"  {describe(node)}", style="cyan")
        if node.description:
            line.append(f"  {node.description}", style="bright_black")
        yield line


def _default(spec: Any) -> str:
    if spec.get("secret"):
        return "secret"
    if "default" in spec:
        return f"default {json.dumps(spec['default'], ensure_ascii=False)}"
    return "required" if spec.get("required", True) else "optional"


def _about(spec: Any) -> Text:
    return Text(str(spec.get("description", "")), style="bright_black")

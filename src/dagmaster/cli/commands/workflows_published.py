"""`dagmaster workflows push, list, show`: the workflows that a database has."""

from __future__ import annotations

import json
import pathlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from dagmaster.cli.database import on_database
from dagmaster.cli.main import BAD_INPUT, COMPLETED
from dagmaster.cli.options import data_dir_option, handlers_option, json_option, load_registry, print_problems
from dagmaster.errors import WorkflowInvalid

if TYPE_CHECKING:
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

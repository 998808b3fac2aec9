"""`dagmaster workflows list` and `workflows show`: the published workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import page_options
from dagmaster.cli.system import on_system
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json

if TYPE_CHECKING:
    import pathlib

    from dagmaster.application.views import Page, WorkflowDetailView, WorkflowRecord
    from dagmaster.client.system import System


@click.command(name="list", epilog="Exit codes: 0 listed, 2 the cursor is not valid, 3 no database.")
@page_options(default_limit=100)
@click.option("--tag", metavar="TAG", help="Only workflows with this tag.")
@json_option
@data_dir_option
def list_workflows(
    *, limit: int, cursor: str | None, tag: str | None, as_json: bool, data_dir: pathlib.Path | None
) -> int:
    """List the published workflows by id.

    With --json: an object with `items` and `next_cursor`, null on the last page.

    \b
    Examples:
      dagmaster workflows list
      dagmaster workflows list --tag flood --json
    """

    async def query(system: System) -> Page[WorkflowRecord]:
        from dagmaster.application.queries import workflows

        return await system.call(workflows.list_workflows, tag=tag, cursor=cursor, limit=limit)

    page = on_system(data_dir, query)
    if as_json:
        echo_json(page.to_dict())
        return COMPLETED
    if page.items:
        from dagmaster.cli.render.workflow_page import workflows_table
        from dagmaster.sdk.terminal import print_page

        print_page([workflows_table(page.items)])
    elif tag is not None:
        echo(f"no published workflow has the tag {tag!r}", err=True)
    else:
        echo("no workflow is published. Publish some: dagmaster workflows push workflows/", err=True)
    if page.next_cursor is not None:
        echo(f"there are more: add --cursor {page.next_cursor}", err=True)
    return COMPLETED


@click.command(epilog="Exit codes: 0 shown, 2 no such workflow or version, 3 no database.")
@click.argument("workflow_id", metavar="ID")
@click.option("--version", type=click.IntRange(1), help="A version.  [default: the active one]")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print the definition as YAML.")
@json_option
@data_dir_option
def show(
    workflow_id: str, *, version: int | None, as_yaml: bool, as_json: bool, data_dir: pathlib.Path | None
) -> int:
    """Show a published workflow: its versions, its inputs and its nodes.

    The defaults of secret inputs are redacted.

    \b
    Examples:
      dagmaster workflows show fan_out
      dagmaster workflows show fan_out --version 1 --yaml > fan_out.yaml
    """
    if as_yaml and as_json:
        raise click.UsageError("--json and --yaml exclude each other")

    async def query(system: System) -> WorkflowDetailView:
        from dagmaster.application.queries.workflows import workflow_detail

        return await system.call(workflow_detail, workflow_id, version)

    view = on_system(data_dir, query)
    if as_yaml:
        from dagmaster.authoring.yaml.writer import write_yaml

        echo(write_yaml(view.definition), nl=False)
    elif as_json:
        echo_json(view.to_dict())
    else:
        from dagmaster.cli.render.workflow_page import workflow_page
        from dagmaster.sdk.terminal import print_page

        print_page(workflow_page(view))
    return COMPLETED

"""`dagmaster changes`: who changed what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import page_options
from dagmaster.cli.system import Part, open_session
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json

if TYPE_CHECKING:
    import pathlib

KINDS: Final = ("job", "key", "schema", "workflow")


@click.command(epilog="Exit codes: 0 listed, 2 the cursor is not valid, 3 no database.")
@click.option("--actor", metavar="NAME", help="Only changes of this user or key.")
@click.option("--action", metavar="ACTION", help="Only one kind of change, such as job.cancel or key.create.")
@click.option("--kind", "object_kind", type=click.Choice(KINDS), help="Only changes of this kind of object.")
@click.option("--object", "object_id", metavar="ID", help="Only changes of this job, key or workflow.")
@page_options(default_limit=20)
@json_option
@data_dir_option
def changes(
    *,
    actor: str | None,
    action: str | None,
    object_kind: str | None,
    object_id: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """List who changed jobs, workflows, keys and the schema, newest first.

    The list is append-only: an entry is stored together with its change, and the database allows no one to
    change or delete it. What a job does itself is in `jobs events`.

    \b
    Examples:
      dagmaster changes --actor ada
      dagmaster changes --kind key
      dagmaster changes --object 115601869557067776 --json
    """
    from dagmaster.application.audit_trail import list_changes
    from dagmaster.ports.audit_trail import AuditFilter

    audit_filter = AuditFilter(actor=actor, action=action, object_kind=object_kind, object_id=object_id)
    with open_session(data_dir) as session:
        page = session.run(
            lambda system: system.call(list_changes, audit_filter, cursor=cursor, limit=limit),
            part=Part.CHANGES,
        )
    if as_json:
        echo_json(page.to_dict())
        return COMPLETED
    if page.items:
        from dagmaster.cli.render.changes_page import changes_page
        from dagmaster.sdk.terminal import print_page

        print_page(changes_page(page.items))
    else:
        echo("no more changes" if cursor is not None else "no change matches", err=True)
    if page.next_cursor is not None:
        echo(f"there are more: add --cursor {page.next_cursor}", err=True)
    return COMPLETED

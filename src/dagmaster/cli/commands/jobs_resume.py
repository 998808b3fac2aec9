"""`dagmaster jobs resume`: a new run of a finished job, or a new job that reuses its results."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from dagmaster.cli.commands.jobs_control import print_plan, print_result, sender
from dagmaster.cli.commands.jobs_list import job_filter_options
from dagmaster.cli.commands.jobs_selected import change_selected, check_target, yes_option
from dagmaster.cli.main import BAD_INPUT, COMPLETED
from dagmaster.cli.options import inputs_options, inputs_remedy, print_rejection, read_json_file, read_pairs
from dagmaster.cli.system import open_session
from dagmaster.errors import InputsInvalid
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, style

if TYPE_CHECKING:
    import pathlib

    from dagmaster.application.commands.resume import ResumeRequest
    from dagmaster.application.views import SubmitResult
    from dagmaster.cli.system import Session

_filter_options: Final = partial(job_filter_options, without=frozenset({"--version", "--idempotency-key"}))


@click.command(
    epilog="Exit codes: 0 done or accepted (--wait: completed), 1 failed, 2 rejected, 3 no database, 130"
    " interrupted."
)
@click.argument("job_id", metavar="[JOB]", required=False)
@click.option(
    "--from",
    "nodes",
    multiple=True,
    metavar="NODE",
    help="Also run this node and all downstream nodes again. Repeatable.",
)
@inputs_options
@click.option(
    "--version", "version", type=click.IntRange(1), help="Another published version of the workflow."
)
@click.option(
    "--dry-run", is_flag=True, help="Print what would be reused and what redone, and change nothing."
)
@click.option(
    "--idempotency-key",
    "key",
    metavar="KEY",
    help="Creates a new job even if the same resume was sent before.",
)
@_filter_options
@yes_option
@click.option(
    "--wait", is_flag=True, help="Watch the job until it has finished; the exit code is its outcome."
)
@json_option
@data_dir_option
def resume(
    job_id: str | None,
    *,
    nodes: tuple[str, ...],
    pairs: tuple[str, ...],
    inputs_file: pathlib.Path | None,
    version: int | None,
    dry_run: bool,
    key: str | None,
    wait: bool,
    yes: bool,
    as_json: bool,
    data_dir: pathlib.Path | None,
    **filters: Any,
) -> int:
    """Run again what failed, was cancelled, or was skipped because of it. Completed nodes keep their results.

    With the same inputs and version this is a new run of the same job. With other inputs or another version
    it is a new job, which reuses the results of this one where the handler, its version, the params and all
    that a node depends on are the same. --from runs a node and all downstream nodes again, even if their
    results could be reused; a child of a fan-out has a name such as tiles__47.

    If an input changes, secret inputs have to be given again: in a file with -I, not on the command line.

    --dry-run prints what would be reused, what redone and what is impossible, and why.

    With filters instead of a JOB, the failed and cancelled jobs that match are printed, and with --yes each
    of them is resumed as it is.

    \b
    Examples:
      dagmaster jobs resume last
      dagmaster jobs resume last --from plan --dry-run
      dagmaster jobs resume last -i year=2025 --wait
      dagmaster jobs resume 115601869557067776 --version 4
      dagmaster jobs resume --workflow nightly --status failed --since 1d --yes
    """
    from dagmaster.application.commands.resume import ResumeRequest, plan_resume

    if check_target(job_id, filters, is_confirmed=yes):
        if nodes or pairs or inputs_file or version or key or wait or dry_run:
            raise click.UsageError("jobs that match filters are resumed as they are: only add --yes")
        return change_selected("resume", filters, is_confirmed=yes, as_json=as_json, data_dir=data_dir)
    request = ResumeRequest(
        sent_by=sender(),
        from_nodes=nodes,
        inputs=read_json_file(inputs_file),
        input_texts=read_pairs(pairs, lambda _name, text: text, "an input"),
        version=version,
        idempotency_key=key,
    )
    with open_session(data_dir) as session:
        try:
            if dry_run:
                print_plan(
                    session.run(lambda system: system.call(plan_resume, job_id, request)), as_json=as_json
                )
                return COMPLETED
            return _resume(session, job_id, request, wait=wait, as_json=as_json)
        except InputsInvalid as error:
            print_rejection(
                error, f"nothing was resumed: {inputs_remedy(error)}", sys.stdout if as_json else None
            )
            return BAD_INPUT


def _resume(
    session: Session, job_id: str | None, request: ResumeRequest, *, wait: bool, as_json: bool
) -> int:
    from dagmaster.application.commands.resume import resume_job
    from dagmaster.application.views import CommandResult
    from dagmaster.cli.commands.jobs import watch_to_end

    result = session.run(lambda system: system.call(resume_job, job_id, request))
    if isinstance(result, CommandResult):
        code = print_result(result, as_json=as_json, is_quiet=as_json and wait, is_watched=wait)
        if code != COMPLETED:
            return code
    else:
        _print_new_job(result, as_json=as_json, wait=wait)
    if not wait:
        return COMPLETED
    return watch_to_end(session, result.job_id or "", as_json=as_json)


def _print_new_job(result: SubmitResult, *, as_json: bool, wait: bool) -> None:
    if as_json:
        if not wait:
            echo_json(result.to_dict())
        return
    noun = "a new job" if result.is_new else "the same resume was sent before: job"
    job = style(result.job_id, bold=True)
    echo(f"{noun} {job} of {result.workflow_id} v{result.version}, from {result.resumed_from}", err=True)
    if not wait:
        echo(f"To watch it: dagmaster jobs watch {result.job_id}", err=True)
        if not sys.stdout.isatty():
            # For a script: JOB=$(dagmaster jobs resume …)
            echo(result.job_id)

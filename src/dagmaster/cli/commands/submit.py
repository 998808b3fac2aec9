"""`dagmaster submit`: store jobs, which orchestrators and workers run."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from dagmaster.cli.commands.jobs_control import sender
from dagmaster.cli.errors import CommandError
from dagmaster.cli.known_handlers import known_handlers
from dagmaster.cli.main import BAD_INPUT, COMPLETED
from dagmaster.cli.options import (
    handlers_option,
    inputs_options,
    inputs_remedy,
    is_in_module,
    modules_with_tasks,
    print_problems,
    print_rejection,
    read_json_file,
    read_pairs,
    read_text_file,
    workflow_file,
)
from dagmaster.cli.system import open_session
from dagmaster.errors import InputsInvalid, ScopeMissing, WorkflowInvalid
from dagmaster.ports.job_options import DEFAULTS, SUBMITTER_OPTIONS
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, style
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dagmaster.application.submission import JobRequest
    from dagmaster.application.views import SubmitResult
    from dagmaster.cli.system import Session
    from dagmaster.json_types import JsonObject


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, option in reversed(SUBMITTER_OPTIONS.items()):
        details: dict[str, Any] = {"metavar": option.metavar}
        if option.maximum is not None:
            details = {"type": click.IntRange(0, option.maximum), "show_default": True}
        flag = f"--{name.replace('_', '-')}"
        command = click.option(flag, default=DEFAULTS[name], help=option.description, **details)(command)
    return command


@click.command(
    epilog="Exit codes: 0 accepted (--wait: completed), 1 failed, 2 rejected, 3 no database, 130 interrupted."
)
@click.argument("workflow")
@inputs_options
@click.option(
    "--batch",
    type=click.Path(path_type=pathlib.Path, allow_dash=True),
    metavar="FILE",
    help="Submit one job for each line of a JSON Lines file of inputs, at most 100 (- for standard input).",
)
@click.option(
    "--version", "version", type=click.IntRange(1), help="A published version.  [default: the active one]"
)
@job_options
@click.option(
    "--wait", is_flag=True, help="Watch the job until it has finished; the exit code is its outcome."
)
@json_option
@handlers_option
@data_dir_option
def submit(
    workflow: str,
    *,
    pairs: tuple[str, ...],
    inputs_file: pathlib.Path | None,
    batch: pathlib.Path | None,
    version: int | None,
    wait: bool,
    as_json: bool,
    modules: tuple[str, ...],
    data_dir: pathlib.Path | None,
    **options: Any,
) -> int:
    """Submit a job of a published WORKFLOW, or of a workflow file.

    The job is stored before the command returns. An orchestrator and a worker run it: `dagmaster dev` starts
    both.

    With --batch, each line of the file is a JSON object of inputs; -i and -I apply to all of them. A line
    that is not valid does not stop the others. The idempotency key of line n is KEY:n.

    \b
    Examples:
      dagmaster submit fan_out -i count=10000 --wait
      dagmaster submit workflows/hello_world.yaml -i name=Ada --name "hello Ada"
      dagmaster submit nightly --idempotency-key nightly-2026-01-31 --priority 8
      dagmaster submit flow.py:nightly -i day=2026-01-01
      dagmaster submit tile --batch tiles.jsonl --idempotency-key tiles-2026-01-31
    """
    from dagmaster.application.submission import JobRequest

    if batch is not None and wait:
        raise click.UsageError("--wait watches one job: it cannot be combined with --batch")
    request = JobRequest(
        workflow_id=workflow,
        version=version,
        inputs=read_json_file(inputs_file),
        input_texts=read_pairs(pairs, lambda _name, text: text, "an input"),
        submitted_by=sender(),
        **options,
    )
    lines = None if batch is None else _read_lines(batch)
    with _for_published_workflows(workflow):
        return _submit(request, workflow, lines, modules, data_dir, wait=wait, as_json=as_json)


@contextlib.contextmanager
def _for_published_workflows(workflow: str) -> Iterator[None]:
    """Say what a key can do that may submit published workflows, and no file."""
    try:
        yield
    except (ScopeMissing, CommandError) as problem:
        error = problem.error if isinstance(problem, CommandError) else problem
        if not isinstance(error, ScopeMissing) or not pathlib.Path(workflow).suffix:
            raise
        raise CommandError(
            ScopeMissing(
                f"{error}. It is for a workflow file: publish the file first (`dagmaster workflows push"
                f" {workflow}`, or an administrator does), then submit it by its id"
            )
        ) from problem


def _submit(
    request: JobRequest,
    workflow: str,
    lines: Sequence[JsonObject] | None,
    modules: tuple[str, ...],
    data_dir: pathlib.Path | None,
    *,
    wait: bool,
    as_json: bool,
) -> int:
    json_out = sys.stdout if as_json else None
    try:
        request = _with_file(request, pathlib.Path(workflow), modules, data_dir)
    except WorkflowInvalid as error:
        print_rejection(error, "nothing was submitted: the workflow is not valid", json_out)
        return BAD_INPUT
    with open_session(data_dir) as session:
        if lines is not None:
            return _submit_batch(session, _batch_requests(request, lines), as_json=as_json)
        try:
            return _submit_one(session, request, wait=wait, as_json=as_json)
        except InputsInvalid as error:
            print_rejection(error, f"nothing was submitted: {inputs_remedy(error)}", json_out)
            return BAD_INPUT


def _with_file(
    request: JobRequest, path: pathlib.Path, modules: tuple[str, ...], data_dir: pathlib.Path | None
) -> JobRequest:
    file = workflow_file(path)
    if file.suffix not in (".yaml", ".yml", ".py") and not (file.is_file() or is_in_module(path)):
        if modules:
            raise click.UsageError(
                "--handlers goes with a workflow file: a published workflow was validated before"
            )
        return request
    if not (file.is_file() or is_in_module(path)):
        raise click.ClickException(f"there is no file {file}")
    if request.version is not None:
        raise click.UsageError(
            "--version goes with the id of a published workflow: a file has its own version"
        )
    from dagmaster.authoring.sibling_workflows import compile_with_children

    compiled, children = compile_with_children(
        path, known_handlers(modules_with_tasks(modules, [path]), data_dir)
    )
    print_problems(compiled.warnings)
    return replace(request, graph=compiled.graph, child_graphs=tuple(children))


def _submit_one(session: Session, request: JobRequest, *, wait: bool, as_json: bool) -> int:
    from dagmaster.application.submission import submit_job

    result = session.run(lambda system: system.call(submit_job, request), migrate=True)
    if not (wait and as_json):
        _print_result(result, as_json=as_json, wait=wait)
    if not wait:
        return COMPLETED
    from dagmaster.cli.commands.jobs import watch_to_end

    return watch_to_end(session, result.job_id or "", as_json=as_json)


def _print_result(result: SubmitResult, *, as_json: bool, wait: bool) -> None:
    if as_json:
        echo_json(result.to_dict())
        return
    noun = "job" if result.is_new else "this idempotency key was used before: job"
    echo(f"{noun} {style(result.job_id, bold=True)} of {result.workflow_id}", err=True)
    if not wait:
        echo(f"To watch it: dagmaster jobs watch {result.job_id}", err=True)
        if not sys.stdout.isatty():
            # For a script: JOB=$(dagmaster submit …)
            echo(result.job_id)


# ── Batches ──


def _submit_batch(session: Session, requests: Sequence[JobRequest], *, as_json: bool) -> int:
    from dagmaster.application.submission import submit_jobs
    from dagmaster.application.views import SubmitOutcome

    results = session.run(lambda system: system.call(submit_jobs, requests), migrate=True)
    failed = [number for number, result in enumerate(results, 1) if result.outcome is SubmitOutcome.ERROR]
    if as_json:
        echo_json([result.to_dict() for result in results])
        return BAD_INPUT if failed else COMPLETED
    for number, result in enumerate(results, 1):
        if result.error is None:
            echo(result.job_id)
        else:
            echo(f"line {number}: {result.error['code']}: {_describe_error(result.error)}", err=True)
    existing = sum(result.outcome is SubmitOutcome.EXISTING for result in results)
    counts = {
        "accepted": len(results) - len(failed) - existing,
        "existing": existing,
        "rejected": len(failed),
    }
    shown = [f"{format_count(count, 'job')} {word}" for word, count in counts.items() if count]
    echo(", ".join(shown) or "no jobs", err=True)
    return BAD_INPUT if failed else COMPLETED


def _describe_error(error: dict[str, Any]) -> str:
    problems = error.get("problems") or []
    return "; ".join(str(problem["message"]) for problem in problems) or str(error["message"])


def _batch_requests(request: JobRequest, lines: Sequence[JsonObject]) -> list[JobRequest]:
    key = request.idempotency_key
    return [
        replace(
            request,
            inputs={**request.inputs, **line},
            idempotency_key=None if key is None else f"{key}:{number}",
        )
        for number, line in enumerate(lines, 1)
    ]


def _read_lines(path: pathlib.Path) -> list[JsonObject]:
    from dagmaster.json_types import read_json

    lines: list[JsonObject] = []
    for number, line in enumerate(read_text_file(path).splitlines(), 1):
        try:
            value = read_json(line)
        except (ValueError, RecursionError) as error:
            raise click.ClickException(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(value, dict):
            raise click.ClickException(f"{path}:{number}: expected a JSON object, as {{'name': 'value'}}")
        lines.append(value)
    return lines

"""`dagmaster run`: one workflow file, from its inputs to its result."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click
from rich.json import JSON

from dagmaster.application.node_lookup import actions_of, approvals_of, dependencies_of
from dagmaster.application.views import JobStatus
from dagmaster.authoring.inputs import parse_input
from dagmaster.authoring.python.workflows import DEFAULT_QUEUE
from dagmaster.authoring.sibling_workflows import compile_with_children
from dagmaster.bootstrap import blob_directory, open_database, run_service
from dagmaster.cli.errors import CommandError
from dagmaster.cli.local_run import LocalRun
from dagmaster.cli.main import BAD_INPUT, COMPLETED, FAILED, INTERRUPTED
from dagmaster.cli.options import (
    WorkflowPath,
    handlers_option,
    inputs_options,
    inputs_remedy,
    json_or_text,
    load_registry,
    modules_with_tasks,
    print_problems,
    print_rejection,
    read_json_file,
    read_pairs,
)
from dagmaster.cli.render.live import LiveDisplay, NoDisplay, PlainDisplay
from dagmaster.cli.render.text import duration
from dagmaster.client.system import current_user
from dagmaster.errors import DagmasterError, InputsInvalid, WorkflowInvalid
from dagmaster.errors.suggestions import did_you_mean
from dagmaster.sdk.command_line import data_dir_option, json_output_option
from dagmaster.sdk.terminal import echo, open_console, style
from dagmaster.settings import load_settings
from dagmaster.text_format import format_count, visible_json

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

    from dagmaster.application.views import JobDetailView
    from dagmaster.json_types import JsonValue
    from dagmaster.local.runner import ApprovalRequest, Graph

Display = LiveDisplay | PlainDisplay


@click.command(
    epilog="Exit codes: 0 completed, 1 failed, 2 bad usage or bad input, 130 interrupted.",
)
@click.argument("file", type=WorkflowPath())
@inputs_options
@json_output_option("Print the job as `jobs show --json` prints it, and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
@click.option(
    "--watch/--plain",
    "watch",
    default=None,
    help="Show a live tree, or lines.  [default: the tree on a terminal]",
)
@handlers_option
@click.option(
    "--concurrency", type=click.IntRange(1, 10_000), help="How many tasks run concurrently.  [default: 32]"
)
@click.option(
    "--approve", multiple=True, metavar="NODE", help="Approve this approval ('all': every one). Repeatable."
)
@click.option(
    "--reject", multiple=True, metavar="NODE", help="Reject this approval ('all': every one). Repeatable."
)
@click.option(
    "--signal", "signals", multiple=True, metavar="NAME[=JSON]", help="Send this signal first. Repeatable."
)
@click.option("--ephemeral", is_flag=True, help="Keep the job in memory: no database, nothing is stored.")
@data_dir_option
def run(
    file: pathlib.Path,
    *,
    pairs: tuple[str, ...],
    inputs_file: pathlib.Path | None,
    as_json: bool,
    quiet: bool,
    watch: bool | None,
    modules: tuple[str, ...],
    concurrency: int | None,
    approve: tuple[str, ...],
    reject: tuple[str, ...],
    signals: tuple[str, ...],
    ephemeral: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """Run a workflow file in this process, until the job has finished.

    The file is validated first; then the job is stored (in the embedded PostgreSQL, or in
    DAGMASTER_DATABASE_URL) and its nodes run in this process. On a terminal the nodes are shown live. Ctrl-C
    cancels the job and waits for running tasks; a second Ctrl-C exits at once. If this process dies, the job
    is not lost: `dagmaster dev` continues it.

    \b
    Examples:
      dagmaster run workflows/hello_world.yaml -i name=Ada
      dagmaster run workflows/fan_out.yaml -i count=100000 --json
      dagmaster run flow.yaml -I inputs.json --handlers ./my_handlers.py
      dagmaster run flow.yaml --ephemeral
      dagmaster run flow.py:nightly -i day=2026-01-01      a @workflow function of a Python file
    """
    # A run creates many long-lived objects, which frequent garbage collection would scan for nothing: with
    # the default thresholds a task of 100,000 cost 1.4 times one of 1,000 (2026-11, bench/commands.py).
    gc.set_threshold(50_000, 50, 50)
    with _stdout_for_the_result() as stdout:
        modules = modules_with_tasks(modules, [file])
        registry = load_registry(modules)
        # Its tasks go to the private queue of this run, whatever they name.
        registry.default_queue = registry.default_queue or DEFAULT_QUEUE
        try:
            compiled, children = compile_with_children(file, registry)
        except WorkflowInvalid as error:
            return _reject(error, stdout if as_json else None)
        graph = compiled.graph
        if not (as_json or quiet):
            print_problems(compiled.warnings)
        inputs = read_json_file(inputs_file)
        inputs |= read_pairs(pairs, lambda key, text: parse_input(graph, key, text), "an input")
        _check_answers(graph, approve, reject)
        display = _display(graph, watch=watch, quiet=quiet or as_json)
        answers = _CommandLineAnswers(display, approve=frozenset(approve), reject=frozenset(reject))
        try:
            settings = load_settings()
            job = LocalRun(
                [graph, *children],
                registry=registry,
                modules=modules,
                display=display,
                concurrency=concurrency,
                settings=settings,
            )
            job.answers, answers.job = answers, job
            blobs = blob_directory(settings, data_dir)
            if ephemeral:
                view = run_service(job.run_ephemeral(blobs, inputs, _signals(signals)))
            else:
                with open_database(settings, data_dir) as config:
                    view = run_service(job.run_stored(config, blobs, inputs, _signals(signals)))
        except InputsInvalid as error:
            return _reject(error, stdout if as_json else None)
        except DagmasterError as error:
            raise CommandError(error) from error
        _print_result(view, stdout, as_json=as_json, note=answers.note or job.note)
    if job.interrupts:
        return INTERRUPTED
    return COMPLETED if view.status is JobStatus.COMPLETED else FAILED


@contextlib.contextmanager
def _stdout_for_the_result() -> Iterator[TextIO]:
    """Reserve standard output for the result; what handlers and their children print goes to stderr."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(saved), "w", encoding="utf-8") as stdout:
            yield stdout
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


def _check_answers(graph: Graph, approve: tuple[str, ...], reject: tuple[str, ...]) -> None:
    """Reject answers that contradict each other, or that no approval asks for."""
    both = {"all"} & ({*approve} | {*reject}) if approve and reject else set()
    both |= {*approve} & {*reject}
    if both:
        raise click.UsageError(f"--approve and --reject both answer {', '.join(sorted(both))}")
    approvals = approvals_of(graph)
    if approvals is not None:
        for name in {*approve, *reject} - {"all", *approvals}:
            raise click.UsageError(
                f"no approval {name!r} in this workflow. {did_you_mean(name, approvals)}".strip()
            )


class _CommandLineAnswers:
    """Answers approvals by the options, else by asking the person at the terminal."""

    def __init__(self, display: Display, *, approve: frozenset[str], reject: frozenset[str]) -> None:
        self.display = display
        self.yes = approve
        self.no = reject
        self.job: LocalRun | None = None
        self.note = ""
        self._one_at_a_time = asyncio.Lock()

    async def approval(self, request: ApprovalRequest) -> tuple[bool, str, str] | None:
        person = current_user()
        if self.yes & {request.node, "all"}:
            return True, person, "by --approve"
        if self.no & {request.node, "all"}:
            return False, person, "by --reject"
        if sys.stdin.isatty() and sys.stderr.isatty():
            async with self._one_at_a_time:
                self.display.pause()
                answer = await _ask(f"{request.node}: {request.message or 'approve?'}")
                self.display.resume()
            return None if answer is None else (answer, person, "")
        if request.approval.timeout_seconds is None and self.job is not None:
            self.note = (
                f"node {request.node} waits for an approval, and there is no terminal to ask on; the job is"
                " cancelled."
                f" Run it on a terminal, or with --approve {request.node} or --reject {request.node}"
            )
            self.job.cancel()
        return None


async def _ask(question: str) -> bool | None:
    """Ask at the terminal without a thread that blocks in a read: the job may be cancelled first."""
    loop = asyncio.get_running_loop()
    while True:
        echo(f"{question} [y/N]: ", nl=False, err=True)
        ready = asyncio.Event()
        loop.add_reader(sys.stdin, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(sys.stdin)
        line = sys.stdin.readline()
        if not line:
            return None
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("", "n", "no"):
            return False


def _display(graph: Graph, *, watch: bool | None, quiet: bool) -> Display:
    if quiet:
        return NoDisplay()
    # A pipe has no cursor to move: there the tree is printed once, at the end.
    console = open_console(stderr=True)
    if console.is_terminal if watch is None else watch:
        return LiveDisplay(dependencies_of(graph), actions_of(graph), console)
    return PlainDisplay()


def _signals(options: tuple[str, ...]) -> dict[str, Any]:
    parts = (option.partition("=") for option in options)
    return {name: json_or_text(name, text) if equals else None for name, equals, text in parts}


def _reject(error: WorkflowInvalid | InputsInvalid, stdout: TextIO | None) -> int:
    count = sum(1 for problem in error.problems if problem.severity == "error")
    remedy = "the workflow cannot run" if isinstance(error, WorkflowInvalid) else inputs_remedy(error)
    print_rejection(error, f"{format_count(count, 'problem')}: {remedy}", stdout)
    return BAD_INPUT


def _print_result(view: JobDetailView, stdout: TextIO, *, as_json: bool, note: str) -> None:
    if as_json:
        echo(visible_json(_json(view.to_dict(), indent=None)), file=stdout)
        if note:
            echo(note, err=True)
        return
    colour = {JobStatus.COMPLETED: "green", JobStatus.FAILED: "red"}.get(view.status, "yellow")
    nodes = format_count(sum(view.counts.values()), "node")
    attempts = format_count(view.attempts, "attempt")
    head = f"{view.status} in {duration(view.duration_seconds or 0.0)}"
    echo(style(head, fg=colour, bold=True) + f"  {nodes}, {attempts}", err=True)
    if view.error is not None:
        echo(style(str(view.error["message"]), fg="red"), err=True)
    if note:
        echo(style(note, fg="yellow"), err=True)
    if view.result is not None:
        console = open_console(stdout)
        text = _json(view.result, indent=2)
        if console.is_terminal:
            console.print(JSON(text))
        else:
            echo(visible_json(text), file=stdout)


def _json(value: JsonValue, *, indent: int | None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except (ValueError, RecursionError) as error:
        raise click.ClickException(
            f"the job has finished, but its result cannot be shown as JSON: {error}"
        ) from error

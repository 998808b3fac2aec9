"""`dagmaster storm`: simulate a workflow under thousands of schedules with faults, without handlers."""

from __future__ import annotations

import pathlib
import shlex
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import click

from dagmaster.application.event_sentences import event_sentence
from dagmaster.application.queries.events_and_logs import event_view
from dagmaster.authoring.inputs import accept_inputs, parse_input
from dagmaster.authoring.python.workflows import DEFAULT_QUEUE
from dagmaster.authoring.sibling_workflows import compile_with_children
from dagmaster.cli.main import BAD_INPUT, COMPLETED, FAILED
from dagmaster.cli.options import (
    handlers_option,
    inputs_options,
    load_registry,
    modules_with_tasks,
    print_rejection,
    read_json_file,
    read_pairs,
)
from dagmaster.cli.render.events import event_colour
from dagmaster.errors import InputsInvalid, WorkflowInvalid
from dagmaster.sdk.command_line import json_option
from dagmaster.sdk.terminal import echo, echo_json, style
from dagmaster.simulation.answers import answer_all
from dagmaster.simulation.case import Case
from dagmaster.simulation.world import calm, simulate
from dagmaster.text_format import format_count, format_error

if TYPE_CHECKING:
    from dagmaster.json_types import JsonValue
    from dagmaster.simulation.world import Outcome

LAST_LINES: Final = 40
FAILING: Final = 1 / 8
"""The share of schedules in which a handler may fail permanently. In most, the workflow is to continue."""


@dataclass(slots=True)
class StormSummary:
    """The counts of all schedules, and the first that violated an invariant."""

    schedules: int = 0
    faults: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str | None, str]] = field(default_factory=Counter)
    violation: Outcome | None = None

    def add(self, outcome: Outcome) -> None:
        self.schedules += 1
        self.faults += outcome.steps
        self.statuses.update(outcome.statuses.values())
        self.reasons.update(failure_reasons(outcome))
        if outcome.violation is not None:
            self.violation = outcome


@click.command(epilog="Exit codes: 0 no invariant was violated, 1 one was, 2 bad input.")
@click.argument("file", type=click.Path(path_type=pathlib.Path))
@click.option(
    "--seeds",
    type=click.IntRange(1, 10_000_000),
    default=500,
    show_default=True,
    help="The number of schedules.",
)
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option("--seed", type=click.IntRange(0), help="Simulate this schedule only, and print its history.")
@click.option(
    "--poison",
    metavar="NODE",
    multiple=True,
    help="Let this node kill its worker whenever it runs (repeatable).",
)
@click.option(
    "-v", "--trace", "is_traced", is_flag=True, help="With --seed: also print every request and every fault."
)
@inputs_options
@json_option
@handlers_option
def storm(
    file: pathlib.Path,
    *,
    seeds: int,
    first: int,
    seed: int | None,
    poison: tuple[str, ...],
    pairs: tuple[str, ...],
    inputs_file: pathlib.Path | None,
    is_traced: bool,
    as_json: bool,
    modules: tuple[str, ...],
) -> int:
    """Simulate a workflow under thousands of schedules with faults.

    Its handlers are not run: mocks take their place, which take some time, sometimes fail, and return outputs
    of the shape that the workflow reads; in one schedule of eight they may fail permanently. The engine, the
    orchestrators and the workers are real, on a simulated network and a simulated clock. Requests and answers
    are lost, processes crash and stall, the database becomes unavailable. At the end of each schedule every
    job must have finished, no completed node may have run again, no stale write may have been accepted, and
    the audit log must have no gap. A workflow that completes without faults must complete with the same
    outputs in every schedule.

    A seed determines a schedule: the same seed gives the same faults in the same order. The first seed that
    violates an invariant is printed; --seed replays it. If jobs failed, the most common reason is printed. A
    failed job violates no invariant, but if no job completes, little was tested.

    \b
    Examples:
      dagmaster storm workflows/fan_out.yaml -i count=20
      dagmaster storm flow.yaml --seeds 10000 --first 500
      dagmaster storm flow.yaml --seed 1234
      dagmaster storm flow.yaml --poison tiles
      dagmaster storm flow.py:nightly -i day=2026-01-01
    """
    registry = load_registry(modules_with_tasks(modules, [file]))
    registry.default_queue = registry.default_queue or DEFAULT_QUEUE
    try:
        compiled, children = compile_with_children(file, registry, allow_missing_handlers=True)
        graph = compiled.graph
        inputs = read_json_file(inputs_file)
        inputs |= read_pairs(pairs, lambda key, text: parse_input(graph, key, text), "an input")
        accept_inputs(graph, inputs)
    except (WorkflowInvalid, InputsInvalid) as error:
        print_rejection(error, f"{file} was not simulated", sys.stdout if as_json else None)
        return BAD_INPUT
    case = Case(graphs=[graph], children=children, inputs=inputs, commands=answer_all([graph, *children]))
    case.failing, case.known, case.poison = FAILING, registry, poison
    unknown = [node for node in poison if node not in case.task_nodes]
    if unknown:
        tasks = ", ".join(sorted(case.task_nodes))
        raise click.UsageError(
            f"--poison: {unknown[0]!r} is not a task or fan-out of tasks; those are: {tasks}"
        )
    if seed is not None:
        return _replay(simulate(seed, case), as_json=as_json, is_traced=is_traced)
    options = [("--poison", node) for node in poison] + [("-i", pair) for pair in pairs]
    options += [] if inputs_file is None else [("-I", str(inputs_file))]
    options += [("--handlers", module) for module in modules]
    replay = shlex.join(["dagmaster", "storm", str(file), *(word for option in options for word in option)])
    return _storm(replay, case, range(first, first + seeds), as_json=as_json)


def _storm(replay: str, case: Case, seeds: range, *, as_json: bool) -> int:
    """Simulate schedules and print the outcome.

    `replay`: the command that repeats one of them, without its seed.
    """
    started = time.monotonic()
    summary = _simulate_all(case, seeds, show_progress=not as_json and sys.stderr.isatty())
    has_completed = summary.statuses["COMPLETED"] > 0
    without_faults = None if summary.violation or has_completed else calm(seeds[0], case)
    if as_json:
        echo_json(_summary_document(summary, without_faults))
    else:
        _print_summary(replay, summary, time.monotonic() - started)
        if without_faults is not None:
            _print_warning(replay, without_faults)
    return COMPLETED if summary.violation is None else FAILED


def _simulate_all(case: Case, seeds: range, *, show_progress: bool) -> StormSummary:
    """Simulate schedules until one violates an invariant."""
    summary = StormSummary()
    for seed in seeds:
        summary.add(simulate(seed, case))
        if show_progress and summary.schedules % 10 == 0:
            progress = (
                f"{summary.schedules:,} of {format_count(len(seeds), 'schedule')}, {summary.faults:,} faults"
            )
            echo(f"\r{progress} ", nl=False, err=True)
        if summary.violation is not None:
            break
    if show_progress:
        echo("\r\033[K", nl=False, err=True)
    return summary


def _summary_document(summary: StormSummary, without_faults: Outcome | None) -> dict[str, JsonValue]:
    violation = summary.violation
    return {
        "schedules": summary.schedules,
        "faults": summary.faults,
        "ends": dict(summary.statuses),
        "reasons": [
            {"node": node, "reason": reason, "jobs": count}
            for (node, reason), count in summary.reasons.most_common()
        ],
        "calm": None if without_faults is None else _outcome_document(without_faults),
        "seed": None if violation is None else violation.seed,
        "violation": None if violation is None else violation.violation,
    }


def _print_summary(replay: str, summary: StormSummary, seconds: float) -> None:
    statuses = ", ".join(f"{count:,} {status}" for status, count in summary.statuses.most_common())
    schedules = f"{summary.schedules:,} schedules with {summary.faults:,} faults in {seconds:.1f} s"
    echo(f"{schedules}. Finished jobs: {statuses}.")
    for (node, reason), count in summary.reasons.most_common(1):
        share = f"{count:,} of {summary.statuses['FAILED']:,} failed jobs"
        echo(f"The most common reason ({share}): {_format_reason(node, reason)}")
    if summary.violation is None:
        echo(style("No invariant was violated.", fg="green", bold=True))
        return
    _print_trace(summary.violation, LAST_LINES)
    _print_outcome(summary.violation)
    echo(f"\nTo replay it: {replay} --seed {summary.violation.seed} --trace", err=True)


def _print_warning(replay: str, without_faults: Outcome) -> None:
    """Warn that little was tested, and print how the workflow ends without faults."""
    reasons = "; ".join(_format_reason(*reason) for reason in dict.fromkeys(failure_reasons(without_faults)))
    statuses = ", ".join(without_faults.statuses.values())
    message = f"WARNING: no job completed in any schedule, so little was tested. Without faults: {statuses}"
    echo(style(f"{message}{': ' if reasons else '.'}{reasons}", fg="red", bold=True), err=True)
    echo(f"Its history: {replay} --seed {without_faults.seed}", err=True)


def failure_reasons(outcome: Outcome) -> list[tuple[str | None, str]]:
    """Return the node and the error of each failed job.

    Children of a fan-out have the name of the fan-out.
    """
    return [
        (None if node is None else node.split("__", 1)[0], format_error(error) or "no reason recorded")
        for node, error in outcome.reasons.values()
    ]


def _format_reason(node: str | None, reason: str) -> str:
    return reason if node is None else f"{node}: {reason}"


def _outcome_document(outcome: Outcome) -> dict[str, JsonValue]:
    reasons: list[JsonValue] = [{"node": node, "reason": reason} for node, reason in failure_reasons(outcome)]
    return {"seed": outcome.seed, "ends": list(outcome.statuses.values()), "reasons": reasons}


def _replay(outcome: Outcome, *, as_json: bool, is_traced: bool) -> int:
    if as_json:
        trace = [{"at": at, "process": process, "message": message} for at, process, message in outcome.trace]
        history = [
            {"at": at, "workflow": workflow_id, **event_view("", event, lambda value: value).to_dict()}
            for at, workflow_id, event in outcome.story
        ]
        document = {
            **_outcome_document(outcome),
            "violation": outcome.violation,
            "history": history,
            "trace": trace,
        }
        echo_json(document)
    else:
        if is_traced:
            _print_trace(outcome, len(outcome.trace))
        else:
            _print_history(outcome)
        _print_outcome(outcome)
    return COMPLETED if outcome.violation is None else FAILED


def _print_history(outcome: Outcome) -> None:
    workflow_ids = {workflow_id for _, workflow_id, _ in outcome.story}
    for at, workflow_id, event in outcome.story:
        prefix = f"{workflow_id}  " if len(workflow_ids) > 1 else ""
        sentence = style(event_sentence(event), fg=event_colour(event.type, event.data))
        echo(f"{at:9.3f} s  {prefix}{sentence}")


def _print_trace(outcome: Outcome, lines: int) -> None:
    if len(outcome.trace) > lines:
        echo(f"… {len(outcome.trace) - lines:,} lines before")
    for at, process, message in outcome.trace[-lines:]:
        echo(f"{at:9.3f} s  {process:<15}  {message}")


def _print_outcome(outcome: Outcome) -> None:
    if outcome.violation is None:
        statuses = ", ".join(outcome.statuses.values())
        echo(f"Seed {outcome.seed}: {outcome.steps} faults; {statuses}. No invariant was violated.")
    else:
        echo(style(f"Seed {outcome.seed} violates an invariant: {outcome.violation}", fg="red", bold=True))

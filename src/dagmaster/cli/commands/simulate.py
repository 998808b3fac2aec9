"""`dagmaster storm`: try a workflow under thousands of schedules in which everything goes wrong, without running it."""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from dagmaster.application.event_sentences import event_sentence
from dagmaster.application.queries.events_and_logs import event_view
from dagmaster.authoring.inputs import accept_inputs, parse_input
from dagmaster.authoring.sibling_workflows import compile_with_children
from dagmaster.cli.main import BAD_INPUT, COMPLETED, FAILED
from dagmaster.cli.options import (
    handlers_option,
    inputs_options,
    json_option,
    load_registry,
    print_rejection,
    read_json_file,
    read_pairs,
)
from dagmaster.cli.render.events import event_colour
from dagmaster.engine.graph import ApprovalSpec, WaitSpec
from dagmaster.errors import InputsInvalid, WorkflowInvalid
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.simulation.world import Ask, Case, calm, simulate
from dagmaster.text_format import format_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagmaster.engine.graph import Graph
    from dagmaster.simulation.world import Outcome

LAST_LINES: Final = 40
FAILING: Final = 1 / 8
"""In which share of the schedules a handler may fail for good: most are to show how the workflow goes on."""


@click.command(epilog="Exit codes: 0 no promise was broken, 1 one was, 2 bad input.")
@click.argument("file", type=click.Path(path_type=pathlib.Path))
@click.option("--seeds", type=click.IntRange(1, 10_000_000), default=500, show_default=True, help="How many schedules.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option("--seed", type=click.IntRange(0), help="Play this schedule alone, and tell what happens in it.")
@click.option("-v", "--trace", "is_traced", is_flag=True, help="With --seed: every request and every fault too.")
@inputs_options
@json_option
@handlers_option
def storm(  # noqa: PLR0913 - one for each option
    file: pathlib.Path,
    *,
    seeds: int,
    first: int,
    seed: int | None,
    pairs: tuple[str, ...],
    inputs_file: pathlib.Path | None,
    is_traced: bool,
    as_json: bool,
    modules: tuple[str, ...],
) -> int:
    """Try a workflow under thousands of schedules in which everything goes wrong.

    Its handlers are not run: mocks stand in for them, which take a while, fail at times and give what the workflow
    reads of them; in one schedule of eight they may fail for good. All else is real: the engine, orchestrators and
    workers, on a simulated network and a simulated clock. Requests and answers are lost, processes die and sleep, the
    database goes away. After each storm every job must come to its end, no completed node may have run again, no stale
    write may have been accepted, and the trail must have no gap. What completes in the calm must complete with the same
    outputs in every storm.

    A seed is a schedule: the same seed, the same faults in the same order. The first that breaks a promise is printed,
    and --seed plays it again. If jobs failed, the usual reason is told; a promise is not broken by that, but where no
    job completes, little was tried.

    \b
    Examples:
      dagmaster storm workflows/fan_out.yaml -i count=20
      dagmaster storm flow.yaml --seeds 10000 --first 500
      dagmaster storm flow.yaml --seed 1234
    """
    registry = load_registry(modules)
    try:
        compiled, children = compile_with_children(file, registry, allow_missing_handlers=True)
        graph = compiled.graph
        given = read_json_file(inputs_file)
        given |= read_pairs(pairs, lambda key, text: parse_input(graph, key, text), "an input")
        accept_inputs(graph, given)
    except (WorkflowInvalid, InputsInvalid) as error:
        print_rejection(error, f"{file} was not stormed", sys.stdout if as_json else None)
        return BAD_INPUT
    case = Case(graphs=[graph], children=children, inputs=given, asks=_asks([graph, *children]))
    case.failing, case.known = FAILING, registry
    if seed is not None:
        return _play(simulate(seed, case), as_json=as_json, is_traced=is_traced)
    return _storm(file, case, range(first, first + seeds), as_json=as_json)


def _asks(graphs: Iterable[Graph]) -> list[Ask]:
    """Somebody who says yes to every approval, and sends every signal, until the job goes on."""
    asks: list[Ask] = []
    for graph in graphs:
        for spec in graph.specs.values():
            if isinstance(spec, WaitSpec) and spec.signal is not None:
                body: dict[str, Any] = {"name": spec.signal, "payload": None}
                asks.append(Ask(kind=CommandKind.SIGNAL, body=body, after_seconds=3, again=True))
            elif isinstance(spec, ApprovalSpec):
                who = spec.approvers[0] if spec.approvers else "ada"
                body = {"node": spec.id, "comment": ""}
                asks.append(Ask(kind=CommandKind.APPROVE, body=body, after_seconds=4, again=True, by=who))
    return asks


def _storm(file: pathlib.Path, case: Case, seeds: range, *, as_json: bool) -> int:
    began = time.monotonic()
    ends: Counter[str] = Counter()
    reasons: Counter[tuple[str | None, str]] = Counter()
    faults = played = 0
    broken: Outcome | None = None
    is_shown = not as_json and sys.stderr.isatty()
    for seed in seeds:
        outcome = simulate(seed, case)
        played += 1
        faults += outcome.steps
        ends.update(outcome.statuses.values())
        reasons.update(_spelled(outcome))
        if is_shown and played % 10 == 0:
            click.echo(f"\r{played:,} of {len(seeds):,} schedules, {faults:,} faults ", nl=False, err=True)
        if outcome.violation is not None:
            broken = outcome
            break
    if is_shown:
        click.echo("\r\033[K", nl=False, err=True)
    undisturbed = None if broken or ends["COMPLETED"] else calm(seeds[0], case)
    if as_json:
        document = {
            "schedules": played,
            "faults": faults,
            "ends": dict(ends),
            "reasons": [{"node": node, "reason": said, "jobs": n} for (node, said), n in reasons.most_common()],
            "calm": None if undisturbed is None else _document(undisturbed),
            "seed": None if broken is None else broken.seed,
            "violation": None if broken is None else broken.violation,
        }
        click.echo(json.dumps(document))
    else:
        took = time.monotonic() - began
        ended = ", ".join(f"{count:,} {status}" for status, count in ends.most_common())
        click.echo(f"{played:,} schedules with {faults:,} faults in {took:.1f} s. Jobs that ended: {ended}.")
        for (node, said), count in reasons.most_common(1):
            most = f"{count:,} of the {ends['FAILED']:,} that failed"
            click.echo(f"The most common reason ({most}): {_of(node, said)}")
        if broken is None:
            click.echo(click.style("No promise was broken.", fg="green", bold=True))
        else:
            _tell_trace(broken, LAST_LINES)
            _tell_end(broken)
            click.echo(f"\nTo play it again: dagmaster storm {file} --seed {broken.seed} --trace", err=True)
        if undisturbed is not None:
            _warn(file, undisturbed)
    return COMPLETED if broken is None else FAILED


def _warn(file: pathlib.Path, undisturbed: Outcome) -> None:
    """Say that nothing was tried in earnest, and how it ends where nothing goes wrong."""
    how = "; ".join(_of(*each) for each in dict.fromkeys(_spelled(undisturbed)))
    ended = ", ".join(undisturbed.statuses.values())
    said = f"WARNING: no job completed in any schedule, so little was tried. Without any fault: {ended}"
    click.echo(click.style(f"{said}{': ' if how else '.'}{how}", fg="red", bold=True), err=True)
    click.echo(f"Its story: dagmaster storm {file} --seed {undisturbed.seed}", err=True)


def _spelled(outcome: Outcome) -> list[tuple[str | None, str]]:
    """For each job that failed, the node and the sentence. Children of a fan-out are told as one."""
    return [
        (None if node is None else node.split("__", 1)[0], format_error(error) or "no reason was given")
        for node, error in outcome.reasons.values()
    ]


def _of(node: str | None, said: str) -> str:
    return said if node is None else f"{node}: {said}"


def _document(outcome: Outcome) -> dict[str, Any]:
    reasons = [{"node": node, "reason": said} for node, said in _spelled(outcome)]
    return {"seed": outcome.seed, "ends": list(outcome.statuses.values()), "reasons": reasons}


def _play(outcome: Outcome, *, as_json: bool, is_traced: bool) -> int:
    if as_json:
        trace = [{"at": at, "who": who, "what": what} for at, who, what in outcome.trace]
        story = [
            {"at": at, "workflow": flow, **event_view("", event, lambda value: value).to_dict()}
            for at, flow, event in outcome.story
        ]
        document = {**_document(outcome), "violation": outcome.violation, "story": story, "trace": trace}
        click.echo(json.dumps(document))
    else:
        if is_traced:
            _tell_trace(outcome, len(outcome.trace))
        else:
            _tell_story(outcome)
        _tell_end(outcome)
    return COMPLETED if outcome.violation is None else FAILED


def _tell_story(outcome: Outcome) -> None:
    """Return what happened to the jobs and their nodes."""
    names = {workflow_id for _, workflow_id, _ in outcome.story}
    for at, workflow_id, event in outcome.story:
        of = f"{workflow_id}  " if len(names) > 1 else ""
        click.echo(f"{at:9.3f} s  {of}{click.style(event_sentence(event), fg=event_colour(event.type, event.data))}")


def _tell_trace(outcome: Outcome, lines: int) -> None:
    """Who asked what of whom, and what went wrong: the end of it."""
    if len(outcome.trace) > lines:
        click.echo(f"… {len(outcome.trace) - lines:,} lines before")
    for at, who, what in outcome.trace[-lines:]:
        click.echo(f"{at:9.3f} s  {who:<15}  {what}")


def _tell_end(outcome: Outcome) -> None:
    if outcome.violation is None:
        ended = ", ".join(outcome.statuses.values())
        click.echo(f"Seed {outcome.seed}: {outcome.steps} faults; {ended}. No promise was broken.")
    else:
        click.echo(click.style(f"Seed {outcome.seed} breaks a promise: {outcome.violation}", fg="red", bold=True))

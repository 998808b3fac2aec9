"""`dagmaster jobs why`: the reason of a job, or of a node of it, down to the root. The reasons are `engine.why`'s."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dagmaster.cli.advice import advice
from dagmaster.cli.database import job_argument, on_database
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.naming import child_of, hint, no_child
from dagmaster.cli.options import data_dir_option, json_option
from dagmaster.cli.render.job import ICONS, duration, job_status
from dagmaster.cli.snapshots import of_commands
from dagmaster.engine.diagnosis.explain import THE_JOB
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.engine.model import FanOut
from dagmaster.engine.status import TERMINAL_JOB, NodeStatus
from dagmaster.errors import CommandRejected
from dagmaster.text_format import age, counted

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

    from dagmaster.cli.database import ReadSession
    from dagmaster.engine.diagnosis.explain import Group as Alike
    from dagmaster.engine.diagnosis.explain import Link
    from dagmaster.engine.diagnosis.reasons import Reason
    from dagmaster.store.postgres.legacy_diagnosis_reader import Explained, Explaining

_DIM: Final = "bright_black"
# Child jobs nest no deeper.
_DEEPEST: Final = 8
_MOST_GROUPS: Final = 20
_GOOD: Final = frozenset({ReasonCode.COMPLETED, ReasonCode.JOB_COMPLETED})
_QUIET: Final = frozenset(
    {
        ReasonCode.NODES, ReasonCode.CHILDREN, ReasonCode.NOT_STARTED, ReasonCode.BRANCH_NOT_TAKEN,
        ReasonCode.COMPLETED, ReasonCode.UPSTREAM_SKIPPED, ReasonCode.MAX_PARALLEL, ReasonCode.SUPERSEDED,
    }
)  # fmt: skip


@click.command(epilog="Exit codes: 0 told, however the job stands; 2 no such job or node; 3 no database.")
@job_argument
@click.argument("node_id", metavar="[NODE]", required=False)
@json_option
@data_dir_option
def why(job_id: str, node_id: str | None, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Say why a job stands where it stands: what comes first for somebody who wants it to move.

    With a NODE (a child of a fan-out, too): why that one does not run, or ended as it did, link by link down to the
    root. All reasons have codes, which docs/reference/reasons.md lists.

    \b
    Examples:
      dagmaster jobs why last
      dagmaster jobs why last publish
      dagmaster jobs why 115601869557067776 --json
    """

    async def work(onlooker: ReadSession) -> None:
        head = await onlooker.job(job_id)
        explaining = explainer(onlooker)
        found = await explaining.explain(head.id)
        if found is None:
            return
        if node_id is not None and node_id not in found.why.job.nodes:
            raise CommandRejected(_unknown(found, node_id))
        links = found.why.chain(node_id) if node_id is not None else _first_chain(found)
        below = await _below(explaining, links)
        waiting = [*of_commands(await onlooker.store.commands(head.id), found.why.around.orchestrators)]
        if as_json:
            said = chain_document(found, links, below) if node_id is not None else job_document(found, below)
            click.echo(json.dumps({**said, "commands": waiting}, ensure_ascii=False))
            return
        page = chain_page(found, links, below) if node_id is not None else job_page(found, below)
        Console().print(Group(*page, *(Text(f"\n{each}", style="magenta") for each in waiting)))

    on_database(data_dir, work)
    return COMPLETED


def explainer(onlooker: ReadSession) -> Explaining:
    """What explains jobs of the database that was reached."""
    from dagmaster.authoring.compiler.compile import compile_definition
    from dagmaster.redaction import redact_value
    from dagmaster.store.postgres.legacy_diagnosis_reader import Explaining

    return Explaining(onlooker.store, compile_definition, redact_value)


def _unknown(found: Explained, node_id: str) -> str:
    nodes = found.why.job.nodes
    fan_id = (child_of(node_id) or ("",))[0]
    fan = nodes.get(fan_id)
    if isinstance(fan, FanOut) and fan.total is not None:
        return no_child(node_id, fan_id, fan.total)
    return f"{found.workflow_id} has no node {node_id!r}. {hint(node_id, list(nodes)[:5_000])}".strip()


def _first_chain(found: Explained) -> list[Link]:
    """The links of what comes first in a job, to follow it into a child job."""
    because = found.why.head().because
    return found.why.chain(because[0]) if because else []


async def _below(explaining: Explaining, links: list[Link]) -> list[tuple[Explained, list[Link]]]:
    """Where a chain ends at a child job, what that waits for; and so on."""
    below: list[tuple[Explained, list[Link]]] = []
    while links and len(below) < _DEEPEST:
        reason = links[-1].reason if links[-1].subject != THE_JOB or len(links) == 1 else links[-2].reason
        if reason.code not in (ReasonCode.CHILD_JOB, ReasonCode.CHILD_JOB_FAILED) or "job_id" not in reason.data:
            break
        found = await explaining.explain(reason.data["job_id"])
        if found is None:
            break
        links = _first_chain(found)
        below.append((found, links))
    return below


# ── For people ──


def job_page(found: Explained, below: list[tuple[Explained, list[Link]]]) -> Iterator[Any]:
    """Draw why a job stands where it stands: the reason first, then all nodes, those that are alike together."""
    why = found.why
    head = why.head()
    yield _title(found)
    # A reason that was taken from nodes has them as its subject.
    subject = "" if head.because and head.code not in _OF_THE_JOB else "the job "
    yield Padding(Text(f"{subject}{head.sentence}", style=f"bold {_colour(head)}"), (1, 0, 0, 0))
    yield from _advice(found, head, head.because[0] if head.because else None)
    for child, links in below:
        yield from _child(child, links)
    groups = why.groups()
    if groups:
        yield ""
        yield _groups(found, groups[:_MOST_GROUPS])
    more = sum(group.count for group in groups[_MOST_GROUPS:])
    if more:
        yield Text(f"… {counted(more, 'more node')}: --json has all", _DIM)


_OF_THE_JOB: Final = frozenset({ReasonCode.JOB_FAILED, ReasonCode.JOB_CANCELLED, ReasonCode.JOB_DEADLINE})


def _title(found: Explained) -> Text:
    why = found.why
    title = job_status("CANCELLING" if why.job.cancel_requested and not _is_over(found) else why.job.status.value)
    title.append(f"  {found.workflow_id} v{found.version}", style="bold")
    title.append(f"  job {found.job_id}", style=_DIM)
    around = why.around
    if found.started_at is not None:
        title.append(f"  {duration(max((around.finished_at or around.now) - found.started_at, 0.0))}", style=_DIM)
    if found.deadline_at is not None and not _is_over(found):
        title.append(f"  deadline in {age(found.deadline_at - around.now)}", style="yellow")
    return title


def _is_over(found: Explained) -> bool:
    return found.why.job.status in TERMINAL_JOB


def _child(found: Explained, links: list[Link]) -> Iterator[Any]:
    head = found.why.head()
    subject = "" if head.because and head.code not in _OF_THE_JOB else "it "
    said = Text("└ ", style=_DIM)
    said.append(f"job {found.job_id} ({found.workflow_id}): ", style=_DIM)
    said.append(f"{subject}{head.sentence}", style=_colour(head))
    yield Padding(said, (0, 0, 0, 2), expand=False)
    yield from _advice(found, head, links[-1].subject if links else None)


def _groups(found: Explained, groups: list[Alike]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=34)
    table.add_column(overflow="fold")
    for group in groups:
        icon, style = ICONS[_status(found, group.examples[0])]
        subject = Text(f"{icon} ", style=style)
        subject.append(group.subject, style=_DIM if group.reason.code in _QUIET else "bold")
        said = Text(group.sentence, style=_DIM if group.reason.code in _QUIET else "")
        if group.count > 1:
            more = ", …" if group.count > len(group.examples) else ""
            said.append(f"\n{', '.join(group.examples)}{more}", style=_DIM)
        table.add_row(subject, said)
    return table


def chain_page(found: Explained, links: list[Link], below: list[tuple[Explained, list[Link]]]) -> Iterator[Any]:
    """Draw a chain of causes: each link below the one it explains, the root last."""
    yield _title(found)
    yield ""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=len(links[0].subject) < 40)  # noqa: PLR2004 - half of a terminal
    table.add_column(overflow="fold")
    for place, link in enumerate(links):
        is_root = place == len(links) - 1
        icon, style = ("○", "yellow") if link.subject == THE_JOB else ICONS[_status(found, link.subject)]
        subject = Text("" if place == 0 else f"{'  ' * (min(place, 8) - 1)}└ ", style=_DIM)
        subject.append(f"{icon} ", style=style)
        subject.append(link.subject, style="bold")
        table.add_row(subject, Text(link.reason.sentence, style=f"bold {_colour(link.reason)}" if is_root else ""))
    yield table
    yield from _advice(found, links[-1].reason, links[-1].subject)
    for child, more in below:
        yield from _child(child, more)


def _status(found: Explained, node_id: str) -> NodeStatus:
    node = found.why.job.nodes[node_id]
    return NodeStatus.RUNNING if found.why.of(node_id).code is ReasonCode.RUNNING else node.status


def _colour(reason: Reason) -> str:
    if reason.code in _GOOD:
        return "green"
    few = _RANK_OF_FAILURES
    return "red" if reason.rank <= few else "magenta"


_RANK_OF_FAILURES: Final = list(ReasonCode).index(ReasonCode.CHILDREN_FAILED)


def _advice(found: Explained, reason: Reason, node_id: str | None) -> Iterator[Padding]:
    said = advice(found.job_id, reason, node_id)
    if said:
        yield Padding(Text(said, style="cyan"), (0, 0, 0, 2), expand=False)


# ── For programs ──


def job_document(found: Explained, below: list[tuple[Explained, list[Link]]]) -> dict[str, Any]:
    """Why a job stands where it stands, and each of its nodes."""
    why = found.why
    return {
        "job_id": found.job_id,
        "status": why.job.status.value,
        "reason": why.head().document(),
        "child_jobs": [{"job_id": child.job_id, "reason": child.why.head().document()} for child, _ in below],
        "groups": [group.document() for group in why.groups()],
        "nodes": {node.id: {"status": node.status.value, **why.of(node.id).document()} for node in why.nodes()},
    }


def chain_document(found: Explained, links: list[Link], below: list[tuple[Explained, list[Link]]]) -> dict[str, Any]:
    """Why a node stands where it stands, link by link down to the root."""
    job = found.why.job
    chain = [
        {"node": None, **link.reason.document()}
        if link.subject == THE_JOB
        else {"node": link.subject, "status": job.nodes[link.subject].status.value, **link.reason.document()}
        for link in links
    ]
    return {
        "job_id": found.job_id,
        "node": links[0].subject,
        "chain": chain,
        "child_jobs": [{"job_id": child.job_id, "reason": child.why.head().document()} for child, _ in below],
    }

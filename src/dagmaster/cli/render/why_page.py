"""Draw an explanation for `jobs why`: the most important reason first, the root cause of a chain last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dagmaster.application.diagnosis import is_failure, is_minor, is_success
from dagmaster.cli.render.job import ICONS, job_status, status_word
from dagmaster.cli.render.text import DIM, duration
from dagmaster.cli.suggested_commands import format_blocking_reason, suggest_command
from dagmaster.text_format import age, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from dagmaster.application.views import (
        BlockingReasonView,
        ChildJobWhyView,
        GroupView,
        JobRecord,
        JobWhyView,
        LinkView,
        NodeWhyView,
        ReasonView,
    )

_MAX_GROUPS: Final = 20
_MAX_NAME_WIDTH: Final = 40
_MAX_INDENT: Final = 8


def job_why_page(why: JobWhyView) -> Iterator[RenderableType]:
    """Draw why a job has its status: the reason, then all nodes, those with the same reason together."""
    yield _title(why.job)
    yield Padding(Text(why.reason.sentence, style=f"bold {_colour(why.reason)}"), (1, 0, 0, 0))
    yield from _command(why.job.job_id, why.reason)
    yield from _child_jobs(why.child_jobs)
    if why.groups:
        yield ""
        yield _groups(why.groups[:_MAX_GROUPS])
    more = sum(group.count for group in why.groups[_MAX_GROUPS:])
    if more:
        yield Text(f"… {format_count(more, 'more node')}: --json shows all", DIM)
    yield from _commands(why.job.job_id, why.commands)


def node_why_page(why: NodeWhyView) -> Iterator[RenderableType]:
    """Draw a chain of causes: each link below the one that it explains."""
    yield _title(why.job)
    yield ""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=len(why.node_id) < _MAX_NAME_WIDTH)
    table.add_column(overflow="fold")
    for depth, link in enumerate(why.chain):
        is_root = depth == len(why.chain) - 1
        table.add_row(
            _subject(link, depth), Text(link.sentence, style=f"bold {_colour(link)}" if is_root else "")
        )
    yield table
    yield from _command(why.job.job_id, why.chain[-1], why.chain[-1].node_id)
    yield from _child_jobs(why.child_jobs)
    yield from _commands(why.job.job_id, why.commands)


def _title(job: JobRecord) -> Text:
    title = job_status(status_word(job))
    title.append(f"  {job.workflow_id} v{job.version}", style="bold")
    title.append(f"  job {job.job_id}", style=DIM)
    if job.duration_seconds is not None:
        title.append(f"  {duration(job.duration_seconds)}", style=DIM)
    if job.deadline_at is not None and not job.is_finished:
        title.append(f"  deadline in {age(job.deadline_at - job.read_at)}", style="yellow")
    return title


def _subject(link: LinkView, depth: int) -> Text:
    icon, style = ("○", "yellow") if link.status is None else ICONS[link.status]
    subject = Text("" if depth == 0 else f"{'  ' * (min(depth, _MAX_INDENT) - 1)}└ ", style=DIM)
    subject.append(f"{icon} ", style=style)
    subject.append(link.node_id or "the job", style="bold")
    return subject


def _child_jobs(children: Sequence[ChildJobWhyView]) -> Iterator[RenderableType]:
    for child in children:
        line = Text("└ ", style=DIM)
        line.append(f"job {child.job_id} ({child.workflow_id}): ", style=DIM)
        line.append(child.reason.sentence, style=_colour(child.reason))
        yield Padding(line, (0, 0, 0, 2), expand=False)
        yield from _command(child.job_id, child.reason)


def _groups(groups: Sequence[GroupView]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=34)
    table.add_column(overflow="fold")
    for group in groups:
        icon, style = ICONS[group.status]
        subject = Text(f"{icon} ", style=style)
        subject_style, sentence_style = (DIM, DIM) if is_minor(group.code) else ("bold", "")
        subject.append(group.subject, style=subject_style)
        sentence = Text(group.sentence, style=sentence_style)
        if group.count > 1:
            more = ", …" if group.count > len(group.examples) else ""
            sentence.append(f"\n{', '.join(group.examples)}{more}", style=DIM)
        table.add_row(subject, sentence)
    return table


def _colour(reason: ReasonView) -> str:
    if is_success(reason.code):
        return "green"
    return "red" if is_failure(reason.code) else "magenta"


def _command(job_id: str, reason: ReasonView, node_id: str | None = None) -> Iterator[Padding]:
    # A job's reason is that of the first node that it follows from.
    node_id = node_id or next(iter(reason.because), None)
    command = suggest_command(job_id, reason.code, reason.data, node_id)
    if command is not None:
        yield Padding(Text(command, style="cyan"), (0, 0, 0, 2), expand=False)


def _commands(job_id: str, reasons: Sequence[BlockingReasonView]) -> Iterator[Text]:
    for reason in reasons:
        yield Text(f"\n{format_blocking_reason(job_id, reason)}", style="magenta")

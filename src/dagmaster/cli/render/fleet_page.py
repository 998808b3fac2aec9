"""Draw the fleet for `dagmaster fleet`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dagmaster.application.left_services import is_settled, left_seconds
from dagmaster.application.views import LeftJobsRecord, WorkerRecord
from dagmaster.cli.render.text import DIM, local_time
from dagmaster.ports.database_conditions import condition_of
from dagmaster.ports.recycle_reasons import REASON_SENTENCES
from dagmaster.ports.remote_workers import HTTP_VERSION
from dagmaster.text_format import age, format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from dagmaster.application.views import FleetRecord, OrchestratorRecord, QueueRecord

_MAX_STOPPED: Final = 8
_TASKS_NOW: Final = {
    "dispatched": "queued again",
    "ready": "waiting for a retry",
    "claimed": "claimed again",
    "running": "running again",
}


def fleet_page(fleet: FleetRecord) -> Iterator[RenderableType]:
    """Draw the live orchestrators and workers, the queues, and services that stopped or died recently."""
    if fleet.read_at is not None:
        yield Text(f"as of {local_time(fleet.read_at)}, the database does not answer", style="bold red")
    orchestrators = [service for service in fleet.orchestrators if service.is_alive]
    workers = [service for service in fleet.workers if service.is_alive]
    yield _title("orchestrators", len(orchestrators))
    if orchestrators:
        yield _orchestrators(orchestrators)
    else:
        yield _hint("none is alive; no job advances. Start one: dagmaster orchestrator (or dagmaster dev)")
    if fleet.unowned_jobs:
        yield _hint(format_count(fleet.unowned_jobs, "open job has no owner", "open jobs have no owner"))
    yield _title("\nworkers", len(workers))
    if workers:
        yield _workers(workers)
    else:
        yield _hint("none is alive; no task runs. Start one: dagmaster worker --queue '*' (or dagmaster dev)")
    yield from _versions([*orchestrators, *workers])
    yield _title("\nqueues", len(fleet.queues))
    if fleet.queues:
        yield _queues(fleet.queues)
    else:
        yield _line(Text("no tasks are waiting or running", style=DIM))
    yield from _queue_notes(fleet.queues, workers)
    services: list[OrchestratorRecord | WorkerRecord] = [*fleet.orchestrators, *fleet.workers]
    stopped = [service for service in services if not service.is_alive]
    if stopped:
        yield from _stopped_services(stopped)


def _title(name: str, count: int) -> Text:
    title = Text(name, style="bold")
    title.append(f"  {count}", style=DIM)
    return title


def _line(content: Text | Table) -> Padding:
    return Padding(content, (0, 0, 0, 2), expand=False)


def _hint(sentence: str) -> Padding:
    return _line(Text(sentence, style="yellow"))


def _table(first: str, *columns: str, last: str = "") -> Table:
    """Draw columns of figures between two of names. Names wrap on a narrow screen; no header is cut."""
    table = Table(box=None, pad_edge=True, header_style=DIM, padding=(0, 1, 0, 1))
    table.add_column(first, overflow="fold", min_width=len(first))
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    if last:
        table.add_column(last, overflow="fold", min_width=len(last))
    return table


def _host(service: OrchestratorRecord | WorkerRecord) -> Text:
    host = Text(service.place, style="bold")
    if service.is_drained:
        host.append(" drained", style="yellow")
    elif service.is_draining:
        host.append(" draining", style="yellow")
    recycling = REASON_SENTENCES.get(str(service.counters.get("recycling")))
    if recycling is not None:
        host.append(f" {recycling}, restarts", style="red")
    condition = condition_of(service.counters)
    if condition is not None:
        host.append(f" {condition}", style="red")
    return host


def _heartbeat(service: OrchestratorRecord | WorkerRecord) -> Text:
    is_late = service.silent_seconds > service.lease_seconds / 2
    return Text(f"{age(service.silent_seconds)} ago", style="yellow" if is_late else "")


def _orchestrators(services: Sequence[OrchestratorRecord]) -> Table:
    table = _table("host", "up", "heartbeat", "owns jobs", "finished", "turns")
    for service in services:
        counters: Mapping[str, Any] = service.counters
        quarantined = len(counters.get("quarantined") or ())
        jobs = Text(f"{service.jobs:,}")
        if quarantined:
            jobs.append(f" ({quarantined} quarantined)", style="red")
        finished, turns = counters.get("jobs_finished", 0), counters.get("turns", 0)
        table.add_row(
            _host(service), age(service.age_seconds), _heartbeat(service), jobs, f"{finished:,}", f"{turns:,}"
        )
    return table


def _workers(services: Sequence[WorkerRecord]) -> Table:
    table = _table("host", "up", "heartbeat", "runs", "prefetched", "done", "failed", last="queues")
    for service in services:
        counters: Mapping[str, Any] = service.counters
        failed = counters.get("failed", 0)
        is_busy = service.running >= service.concurrency
        table.add_row(
            _host(service),
            age(service.age_seconds),
            _heartbeat(service),
            Text(f"{service.running:,}/{service.concurrency:,}", style="yellow" if is_busy else ""),
            f"{service.prefetched:,}",
            f"{counters.get('completed', 0):,}",
            Text(f"{failed:,}", style="red" if failed else ""),
            ", ".join(service.queues) or "all",
        )
    return table


def _versions(services: Sequence[OrchestratorRecord | WorkerRecord]) -> Iterator[Padding]:
    versions = sorted({service.version for service in services} - {HTTP_VERSION})
    if len(versions) > 1:
        yield _hint(f"services run several versions: {', '.join(versions)}")


def _queues(queues: Sequence[QueueRecord]) -> Table:
    table = _table("queue", "waiting", "oldest", "claimed", "workers")
    for queue in queues:
        is_unserved = queue.workers == 0 and queue.waiting > 0
        table.add_row(
            Text(queue.queue, style="bold"),
            f"{queue.waiting:,}",
            "" if queue.oldest_seconds is None else age(queue.oldest_seconds),
            f"{queue.claimed:,}",
            Text(f"{queue.workers}", style="red" if is_unserved else ""),
        )
    return table


def _queue_notes(queues: Sequence[QueueRecord], workers: Sequence[WorkerRecord]) -> Iterator[Padding]:
    for queue in queues:
        if queue.note is not None and not queue.workers:
            yield _line(Text(f"✘ {queue.note}: {_remedy(queue.queue, workers)}", style="red"))
        elif queue.note is not None:
            yield _hint(queue.note)


def _remedy(queue: str, workers: Sequence[WorkerRecord]) -> str:
    """Return the command that lets a worker claim from a queue: undrain one, or start one."""
    drained = (one for one in workers if one.drain is not None and (not one.queues or queue in one.queues))
    for worker in drained:
        return f"dagmaster fleet undrain {worker.worker_id}"
    return f"dagmaster worker --queue {queue}"


def _stopped_services(services: Sequence[OrchestratorRecord | WorkerRecord]) -> Iterator[RenderableType]:
    """Draw the services that died, or left something that waits.

    Others are counted: each `dagmaster run` has two.
    """
    listed = [service for service in services if not is_settled(service)]
    yield _title("\nstopped or died within the last hour", len(services))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for service in sorted(listed, key=lambda service: (not service.has_died, left_seconds(service)))[
        :_MAX_STOPPED
    ]:
        kind = "worker" if isinstance(service, WorkerRecord) else "orchestrator"
        icon, verb, style = ("✘", "died", "red") if service.has_died else ("■", "stopped", DIM)
        table.add_row(
            Text(f"{icon} {kind} {service.place}", style=style),
            Text(f"{verb} {age(left_seconds(service))} ago", style=style),
            Text(_left(service), style=DIM),
        )
    if listed:
        yield _line(table)
    if len(listed) > _MAX_STOPPED:
        yield _line(Text(f"and {len(listed) - _MAX_STOPPED} more: --json shows all", style=DIM))
    if len(listed) < len(services):
        count = format_count(len(services) - len(listed), "service")
        yield _line(
            Text(
                f"{count} stopped, and nothing waits for them (each `dagmaster run` has two):"
                " `--json` lists them",
                style=DIM,
            )
        )


def _left(service: OrchestratorRecord | WorkerRecord) -> str:
    """Format the jobs or tasks that a service did not release, and what became of them."""
    left = service.left
    if left is None:
        return "left nothing"
    if isinstance(left, LeftJobsRecord):
        return _parts(left.jobs, "job", {
            "to be reclaimed": left.not_reclaimed, "without an owner": left.unowned,
            "owned again": left.owned_again, "finished or reassigned": left.reassigned,
        })  # fmt: skip
    if left.alone_with is not None:
        return f"while it ran only node {left.alone_with.node_id} of job {left.alone_with.job_id}"
    now = {_TASKS_NOW.get(status, status): count for status, count in left.now.items()}
    tasks = _parts(left.tasks, "task", {"to be reclaimed": left.not_reclaimed, **now})
    crashed = [f"node {one.node_id} of job {one.job_id}" for one in left.crashed]
    return f"{tasks}; crashed since: {format_list(crashed)}" if crashed else tasks


def _parts(count: int, noun: str, parts: Mapping[str, int]) -> str:
    if count == 0:
        return "left nothing"
    details = ", ".join(f"{number:,} {word}" for word, number in parts.items() if number)
    sentence = f"left {format_count(count, noun)}"
    return f"{sentence}: {details}" if details else sentence

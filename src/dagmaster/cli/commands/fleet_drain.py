"""`dagmaster fleet drain` and `undrain`: let one service claim nothing more, and claim again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from dagmaster.cli.main import COMPLETED, FAILED
from dagmaster.cli.system import open_session
from dagmaster.client.system import current_user
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable

    from dagmaster.application.views import DrainResult, FleetRecord, OrchestratorRecord, WorkerRecord
    from dagmaster.client.system import System

POLL_SECONDS: Final = 0.5
"""How often `--wait` reads the fleet."""
UNSEEN_SECONDS: Final = 15.0
"""A service that has not seen the request after this time probably cannot: it sends a heartbeat every few
seconds."""
service_argument = click.argument("service", metavar="SERVICE")


@click.command(
    "drain",
    epilog="Exit codes: 0 asked (with --wait: drained or stopped), 1 it died or was undrained meanwhile, 2"
    " there is no such live service, 3 no database.",
)
@service_argument
@click.option(
    "--grace",
    "grace_seconds",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="For a worker: release tasks that still run after this time.  [default: let every task finish]",
)
@click.option(
    "--wait", "waits", is_flag=True, help="Wait until it holds nothing any more, and show what it holds."
)
@json_option
@data_dir_option
def drain(
    service: str, *, grace_seconds: float | None, waits: bool, as_json: bool, data_dir: pathlib.Path | None
) -> int:
    """Drain an orchestrator or a worker: it claims nothing more.

    SERVICE is an id, or HOST:PID as `dagmaster fleet` shows it. A worker lets its running tasks finish; after
    --grace it asks them to save a checkpoint, and releases them. An orchestrator releases its jobs, which
    others claim at once.

    The process does not exit: what started it would start it again. When it is drained it holds nothing, and
    can be stopped at any time. `dagmaster fleet undrain` lets it claim again.

    \b
    Examples:
      dagmaster fleet drain worker-7:1 --wait
      dagmaster fleet drain 95522757021810688 --grace 600
    """
    from dagmaster.application.commands.drain import drain_service

    with open_session(data_dir) as session:
        result = session.run(
            lambda system: system.call(
                drain_service, service, sent_by=current_user(), grace_seconds=grace_seconds
            )
        )
        if not (waits and as_json):
            _print_result(result, as_json=as_json)
        if not waits:
            return COMPLETED
        return session.run(lambda system: _wait_until_drained(system, result, as_json=as_json))


@click.command(
    "undrain", epilog="Exit codes: 0 it claims again, 2 there is no such live service, 3 no database."
)
@service_argument
@json_option
@data_dir_option
def undrain(service: str, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Let an orchestrator or a worker that drains, or is drained, claim again.

    \b
    Examples:
      dagmaster fleet undrain worker-7:1
    """
    from dagmaster.application.commands.drain import undrain_service

    with open_session(data_dir) as session:
        result = session.run(lambda system: system.call(undrain_service, service, sent_by=current_user()))
    _print_result(result, as_json=as_json)
    return COMPLETED


def _print_result(result: DrainResult, *, as_json: bool) -> None:
    echo_json(result.to_dict()) if as_json else echo(result.sentence)


async def _wait_until_drained(
    system: System,
    result: DrainResult,
    *,
    as_json: bool,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> int:
    """Print what the service holds at each change until it is drained or gone; return the exit code."""
    from dagmaster.application.queries import fleet as queries

    last, code = "", None
    while code is None:
        view = await system.call(queries.fleet)
        member = _find(view, result.service_id)
        sentence, code = _describe(member, result)
        if as_json and code is not None:
            document = {"state": sentence, "service": None if member is None else member.to_dict()}
            echo_json(document)
        elif sentence != last and not as_json:
            echo(sentence)
        last = sentence
        if code is None:
            await sleep(POLL_SECONDS)
    return code


def _find(view: FleetRecord, service_id: str) -> OrchestratorRecord | WorkerRecord | None:
    from dagmaster.application.commands.drain import get_id

    members: tuple[OrchestratorRecord | WorkerRecord, ...] = (*view.orchestrators, *view.workers)
    return next((one for one in members if get_id(one) == service_id), None)


def _describe(
    member: OrchestratorRecord | WorkerRecord | None, result: DrainResult
) -> tuple[str, int | None]:
    """Return the state of a draining service, and the exit code if there is nothing to wait for."""
    from dagmaster.application.commands.drain import describe_holds, format_name

    if member is None:
        return f"{result.kind} {result.service_id} has stopped", COMPLETED
    name = format_name(member)
    if not member.is_alive:
        if member.has_died:
            return f"{name} died while it drained", FAILED
        return f"{name} has stopped", COMPLETED
    if member.is_drained:
        return f"{name} is drained: it holds nothing, and can be stopped", COMPLETED
    if member.drain is None:
        return f"{name} was undrained: it claims again", FAILED
    if member.drain.is_seen or member.drain.requested_seconds < UNSEEN_SECONDS:
        return f"{name} drains: it holds {describe_holds(member)}", None
    return f"{name} has not answered: a service of an older version cannot drain, and has to be stopped", None

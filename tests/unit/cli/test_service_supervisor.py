"""How `dagmaster dev` restarts what has died."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dagmaster.cli import service_supervisor
from dagmaster.cli.render.text import format_exit
from dagmaster.cli.service_supervisor import Service, ServiceSupervisor, restart_delay
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    import pytest


class CannotStart:
    """A process that prints why it ends."""

    pid = 7

    def __init__(self) -> None:
        self.stdout = asyncio.StreamReader()
        self.stdout.feed_data(b"a line of its log\nError: there is no key\n")
        self.stdout.feed_eof()

    async def wait(self) -> int:
        return 2

    def terminate(self) -> None:
        """Do nothing: it has ended."""


async def expire(pid: int) -> None:
    raise AssertionError(pid)


def test_a_process_that_keeps_dying_is_restarted_less_often():
    assert [restart_delay(deaths) for deaths in (1, 2, 3, 5, 6, 1000)] == [1, 2, 4, 16, 30, 30]


def test_the_exit_of_a_recycled_worker_is_told_with_its_reason():
    assert format_exit(80) == "could not stop a handler and exited with code 80"
    assert format_exit(81) == "reached its memory limit and exited with code 81"
    assert format_exit(1) == "exited with code 1"
    assert format_exit(-9) == "was killed by SIGKILL"


def test_a_service_that_cannot_start_ends_all_with_its_exit_code_and_its_error_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def spawn(*_: object) -> CannotStart:
        return CannotStart()

    async def run() -> int:
        supervisor = ServiceSupervisor(expire, stop_seconds=60.0)
        supervisor.start([Service("worker", []), Service("server", [])])
        await supervisor.wait_ready()
        await supervisor.wait_stopped()
        return supervisor.exit_code

    monkeypatch.setattr(service_supervisor, "_spawn", spawn)
    assert asyncio.run(run()) == 2
    printed = capsys.readouterr().out
    assert printed.count("Error: there is no key") == 1
    assert "a line of its log" in printed
    assert "stopping" not in printed


def test_a_child_process_that_cannot_be_made_ends_all_with_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    seen: list[dict[str, str]] = []

    async def no_process(*_: object, env: dict[str, str], **__: object) -> None:
        seen.append(env)
        raise BlockingIOError(11, "Resource temporarily unavailable")

    async def run() -> int:
        supervisor = ServiceSupervisor(expire, stop_seconds=60.0, environment={"DAGMASTER_LOG_DIR": "/l"})
        supervisor.start([Service("worker", []), Service("server", [])])
        async with asyncio.timeout(PATIENCE_SECONDS):
            await supervisor.wait_ready()
            await supervisor.wait_stopped()
        return supervisor.exit_code

    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_process)
    assert asyncio.run(run()) == 1
    assert (
        "Error: the worker cannot be started or watched: BlockingIOError: [Errno 11]"
        in capsys.readouterr().err
    )
    assert seen[0]["DAGMASTER_LOG_DIR"] == "/l"


def test_a_line_that_is_too_long_does_not_end_the_watch_of_its_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def spawn(*_: object) -> CannotStart:
        process = CannotStart()
        process.stdout = asyncio.StreamReader(limit=64)
        process.stdout.feed_data(b"x" * 200 + b"\nError: there is no key\n")
        process.stdout.feed_eof()
        return process

    async def run() -> int:
        supervisor = ServiceSupervisor(expire, stop_seconds=60.0)
        supervisor.start([Service("worker", [])])
        await supervisor.wait_stopped()
        return supervisor.exit_code

    monkeypatch.setattr(service_supervisor, "_spawn", spawn)
    assert asyncio.run(run()) == 2
    assert "Error: there is no key" in capsys.readouterr().out

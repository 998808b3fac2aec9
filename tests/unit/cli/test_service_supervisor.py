"""How `dagmaster dev` restarts what has died."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dagmaster.cli import service_supervisor
from dagmaster.cli.render.text import format_exit
from dagmaster.cli.service_supervisor import Service, ServiceSupervisor, restart_delay

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    async def spawn(_: Sequence[str]) -> CannotStart:
        return CannotStart()

    async def expire(pid: int) -> None:
        raise AssertionError(pid)

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

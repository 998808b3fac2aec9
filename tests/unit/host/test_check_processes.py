"""Processes for checks: they are reused, limited, killed and replaced, and know nothing of their server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.errors import CheckLimitExceeded, ChecksBusy
from dagmaster.host import check_processes
from dagmaster.host.check_processes import CheckProcesses
from dagmaster.http.compiler_threads import CompilerThreads
from tests.patience import PATIENCE_SECONDS
from tests.unit.host import hostile_calls as calls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.process


@contextlib.asynccontextmanager
async def processes(**limits: Any) -> AsyncIterator[CheckProcesses]:
    pool = CheckProcesses(**limits)
    try:
        yield pool
    finally:
        pool.close()


class Pipes:
    """Two named pipes: by one a call tells that it runs, by the other it is told to end."""

    def __init__(self, folder: Path) -> None:
        self.started, self.released = folder / "started", folder / "released"
        os.mkfifo(self.started)
        os.mkfifo(self.released)

    def call(self, pool: CheckProcesses) -> asyncio.Task[Any]:
        return asyncio.create_task(
            pool.run(calls.wait, started=str(self.started), released=str(self.released))
        )

    async def until_started(self) -> None:
        reading = asyncio.to_thread(self.started.read_text)
        assert await asyncio.wait_for(reading, PATIENCE_SECONDS) == "started"

    async def release(self) -> None:
        await asyncio.to_thread(self.released.write_text, "done")


def test_calls_are_answered_by_one_process_after_another_call():
    async def main() -> None:
        async with processes() as pool:
            assert await pool.run(calls.add, a=1, b=2) == 3
            first = await pool.run(calls.pid)
            assert await pool.run(calls.pid) == first != os.getpid()
            assert pool.pids() == [first]

    asyncio.run(main())


def test_a_process_that_takes_too_much_is_killed_and_the_next_call_is_answered():
    async def main() -> None:
        async with processes(cpu_seconds=0.3, memory_mb=300) as pool:
            with pytest.raises(CheckLimitExceeded, match=r"it took more than 0\.3 s of CPU time"):
                await pool.run(calls.spin)
            with pytest.raises(CheckLimitExceeded, match="it needed more than 300 MB of memory"):
                await pool.run(calls.take_memory)
            with pytest.raises(CheckLimitExceeded, match="its process ended with code 3"):
                await pool.run(calls.die)
            assert pool.pids() == []
            assert await pool.run(calls.add, a=1, b=2) == 3

    asyncio.run(main())


def test_a_call_that_only_waits_is_also_killed(monkeypatch, tmp_path):
    monkeypatch.setattr(check_processes, "WALL_SECONDS", 0.5)

    async def main() -> None:
        async with processes() as pool:
            pipes = Pipes(tmp_path)
            call = pipes.call(pool)
            await pipes.until_started()
            with pytest.raises(CheckLimitExceeded, match=r"it did not end within 0\.5 s"):
                await call

    asyncio.run(main())


def test_an_error_of_a_call_is_raised_with_its_traceback():
    async def main() -> None:
        async with processes() as pool:
            with pytest.raises(RuntimeError, match="KeyError: 'what was wrong'"):
                await pool.run(calls.fail)
            assert await pool.run(calls.add, a=1, b=2) == 3

    asyncio.run(main())


def test_a_process_has_no_settings_and_no_secrets_of_the_server(monkeypatch):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", "postgresql://user:password@host/db")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")

    async def main() -> None:
        async with processes() as pool:
            names = await pool.run(calls.names_of_environment)
            assert not {"DAGMASTER_DATABASE_URL", "AWS_SECRET_ACCESS_KEY"} & set(names)

    asyncio.run(main())


def test_a_cancelled_call_keeps_its_process_and_further_calls_are_refused(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(check_processes, "MAX_WAITING", 1)
    pipes = Pipes(tmp_path)

    async def main() -> None:
        async with processes(limit=1) as pool:
            first = pipes.call(pool)
            await pipes.until_started()
            first.cancel()
            await asyncio.wait([first])
            second = asyncio.create_task(pool.run(calls.add, a=1, b=2))
            await asyncio.sleep(0)
            with pytest.raises(ChecksBusy, match="send the request again"):
                await pool.run(calls.pid)
            assert not second.done()
            await pipes.release()
            assert await second == 3
            assert await pool.run(calls.pid)

    asyncio.run(main())


def test_the_checks_of_one_caller_leave_half_of_the_places_to_others(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(check_processes, "MAX_WAITING", 3)
    pipes = Pipes(tmp_path)

    async def main() -> None:
        async with processes(limit=1) as pool:
            first = pipes.call(pool)
            await pipes.until_started()
            threads = {name: CompilerThreads(pool).on_behalf_of(name) for name in ("key:greedy", "key:other")}
            greedy, other = threads["key:greedy"], threads["key:other"]
            waiting = [asyncio.create_task(greedy.check(calls.add, a=1, b=2)) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(ChecksBusy, match="2 checks of key:greedy run or wait"):
                await greedy.check(calls.pid)
            waiting.append(asyncio.create_task(other.check(calls.add, a=1, b=2)))
            await asyncio.sleep(0)
            with pytest.raises(ChecksBusy, match="4 checks run or wait"):
                await other.check(calls.pid)
            await pipes.release()
            assert await asyncio.gather(*waiting) == [3, 3, 3]
            await first
            assert await greedy.check(calls.pid), "its places are free again"

    asyncio.run(main())


def test_one_caller_never_has_all_processes(tmp_path: Path):
    """However long its calls take, and however many wait: the calls of another one are done meanwhile."""
    pipes = Pipes(tmp_path)

    async def main() -> None:
        async with processes(limit=2) as pool:
            greedy, other = (CompilerThreads(pool).on_behalf_of(name) for name in ("key:greedy", "key:other"))
            first = asyncio.create_task(
                greedy.check(calls.wait, started=str(pipes.started), released=str(pipes.released))
            )
            await pipes.until_started()
            waiting = [asyncio.create_task(greedy.check(calls.pid)) for _ in range(3)]
            cancelled = asyncio.create_task(greedy.check(calls.pid))
            await asyncio.sleep(0)
            cancelled.cancel()
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert [await other.check(calls.add, a=1, b=2) for _ in range(3)] == [3, 3, 3]
            assert not any(call.done() for call in waiting)
            assert len(pool._waiting) == 3
            await pipes.release()
            await asyncio.gather(first, *waiting)

    asyncio.run(main())


def test_close_kills_a_process_that_works(tmp_path: Path):
    pipes = Pipes(tmp_path)

    async def main() -> None:
        async with processes() as pool:
            call = pipes.call(pool)
            await pipes.until_started()
            (pid,) = pool.pids()
        with pytest.raises(CheckLimitExceeded):
            await call
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(main())

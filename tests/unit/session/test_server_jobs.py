"""Jobs of a server, over a socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from dagmaster import (
    Client,
    JobStatus,
    OrchContext,
    blocking,
    create_job,
    create_task,
    get_job,
    list_jobs,
    run_job_test_async,
)
from dagmaster.errors import CommandRejected
from dagmaster.sdk.handler_registry import Registry, handler
from tests.unit.http.loopback import serve

if TYPE_CHECKING:
    from pathlib import Path


@handler("servers.work", queue="q")
async def work() -> None: ...


def test_an_exception_in_a_context_cancels_the_job_on_the_server():
    async def make_half(url: str, key: str) -> None:
        async with OrchContext(url=url, key=key):
            await create_job("half", create_task("servers.work", queue="q"))
            raise KeyError("half")

    with serve(Registry([work])) as server, Client(server.url, server.key) as client:
        with pytest.raises(KeyError):
            asyncio.run(make_half(server.url, server.key))
        assert client.wait("last", timeout_seconds=60).status is JobStatus.CANCELLED
        (event,) = [one for one in client.list_events("last").items if one.type == "CancelRequested"]
        assert (
            event.data["comment"]
            == "the code that makes this job raised KeyError: its graph may be half built"
        )


def test_a_job_of_a_server_is_not_run_here_and_nothing_is_opened_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DAGMASTER_DATA_DIR", str(tmp_path / "data"))

    async def story(url: str, key: str) -> None:
        async with OrchContext(url=url, key=key):
            held = await create_job("held", create_task("m.f", queue="nobody"))
            jobs = [held, await get_job(held.id), *await list_jobs()]
        jobs.append(await create_job("started", create_task("m.f", queue="nobody"), url=url, key=key))
        for job in jobs:
            with pytest.raises(CommandRejected, match=f"job {job.id} is on the server {url}, and runs there"):
                await run_job_test_async(job)
            with pytest.raises(CommandRejected, match="runs there"):
                blocking.run_job_test(job)

    with serve(Registry([])) as server:
        asyncio.run(story(server.url, server.key))
    assert not (tmp_path / "data").exists()

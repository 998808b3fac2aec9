"""The log on a page without scripts: as many chunks as fit, whatever their size."""

from __future__ import annotations

import asyncio
import html
import re

import pytest

from dagmaster.ports.read_records import LogRecord
from dagmaster.store.memory.database import MemoryDatabase, StoredLog
from dagmaster.store.memory.read_store import MemoryReadStore
from dagmaster.ui.pages.job import MAX_VALUE
from dagmaster.ui.routes.log_text import MAX_CHUNKS
from tests.unit.application.memory_application import finished
from tests.unit.ui.page_client import Pages, opened_pages

FLOW = """
workflow_id: plain
version: 1
nodes:
  a: {handler: greet, queue: q, params: {name: x}}
"""


async def a_job_with_a_log(pages: Pages, size: int, count: int) -> str:
    await pages.api.publish(FLOW)
    job_id: str = (await pages.api.post("/api/v1/jobs", {"workflow_id": "plain"})).json()["job_id"]
    await finished(pages.api.application, job_id)
    read = pages.api.application.read
    assert isinstance(read, MemoryReadStore)
    database: MemoryDatabase = read._database
    for number in range(1, count + 1):
        text = f"{number:06d} ".ljust(size - 1) + "\n"
        at = float(number)
        database.logs["5", number] = StoredLog(job_id, LogRecord("a", 1, at, text, (at, "5", number)))
    return job_id


@pytest.mark.parametrize(("size", "count"), [(65_536, 40), (100, 1_000), (20_000, 30)])
def test_pages_of_a_log_are_of_bounded_size_and_have_every_chunk_once(size, count):
    async def main() -> None:
        async with opened_pages() as pages:
            job_id = await a_job_with_a_log(pages, size, count)
            numbers: list[int] = []
            path, requests = f"/ui/jobs/{job_id}/logs", 0
            while path:
                text = (await pages.get(path)).text
                shown = re.findall(
                    r"^(\d{6}) ", html.unescape(text).replace('<pre class="code log">', "\n"), re.MULTILINE
                )
                assert len(shown) * size <= MAX_VALUE + 2 * size
                assert len(shown) <= MAX_CHUNKS
                numbers += map(int, shown)
                following = re.search(r'rel="next" href="([^"]+)"', text)
                path = "" if following is None else html.unescape(following[1])
                requests += 1
            assert numbers == list(range(1, count + 1))
            assert requests <= count * size / MAX_VALUE + count / MAX_CHUNKS + 2

    asyncio.run(main())


def test_the_page_of_a_node_reads_the_end_of_its_log_alone(monkeypatch):
    async def main() -> None:
        async with opened_pages() as pages:
            job_id = await a_job_with_a_log(pages, 65_536, 40)
            read = pages.api.application.read
            logs, limits = read.logs, []

            async def counted(*args, **options):
                limits.append(options["limit"])
                return await logs(*args, **options)

            monkeypatch.setattr(read, "logs", counted)
            text = (await pages.get(f"/ui/jobs/{job_id}/nodes/a")).text
            assert "000040 " not in text, "the chunk is longer than what is shown of it"
            assert limits == [1]

    asyncio.run(main())

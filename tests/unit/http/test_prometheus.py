"""What Prometheus scrapes: every metric has its name from one table, and no value of a job."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from dagmaster.http import auth
from dagmaster.telemetry.prometheus import ProcessMetrics
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import finished
from tests.unit.http.api_client import Api, opened_api
from tests.unit.http.test_metrics_api import CANARY, FLOW, halve

if TYPE_CHECKING:
    import httpx


def samples(text: str) -> dict[str, float]:
    """Return the samples without buckets, by name and labels."""
    return {
        f"{sample.name}{dict(sorted(sample.labels.items())) or ''}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def test_a_server_shows_the_fleet_and_its_requests_by_route():
    async def main() -> None:
        async with opened_api() as api:
            await api.get("/api/v1/jobs/123")
            await api.get("/wp-admin/x.php")
            answer: httpx.Response = await api.get("/metrics")
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            values = samples(answer.text)
            assert values["dagmaster_workers_active"] == 1
            assert values["dagmaster_orchestrators_active"] == 1
            assert values["dagmaster_database_up"] == 1
            labels = "{'method': 'GET', 'route': '/jobs/{job_id}', 'status': '404'}"
            assert values[f"dagmaster_http_request_duration_seconds_count{labels}"] == 1
            assert not re.search(r"wp-admin|/123", answer.text)

    asyncio.run(main())


async def check_lists(api: Api) -> None:
    """Check that the lists of services are those that were read last, and say so."""
    for path in ("workers", "orchestrators", "queues"):
        answer = await api.get(f"/api/v1/{path}")
        assert int(answer.headers["age"]) >= 1, path
        assert path == "queues" or len(answer.json()["items"]) == 1
    assert (await api.get("/api/v1/orchestrator/status")).json()["alive"] == 1


def test_what_was_read_last_is_shown_as_stale_while_the_database_does_not_answer(monkeypatch):
    monkeypatch.setattr(auth, "CACHE_SECONDS", -1.0)
    monkeypatch.setattr(auth, "KNOWN_SECONDS", 0.05)

    async def main() -> None:
        async with opened_api() as api:
            services = api.services
            assert (await api.get("/api/v1/workflows")).status_code == 200
            monkeypatch.setattr(services.fleet, "_answer_seconds", 0.05)
            is_released, read = asyncio.Event(), services.application.read.fleet

            async def hang(*_: Any) -> Any:
                await is_released.wait()
                return await read()

            find = services.keys.find
            monkeypatch.setattr(services.application.read, "fleet", hang)
            never_read = samples((await api.get("/metrics")).text)
            assert never_read["dagmaster_database_up"] == 0
            assert "dagmaster_workers_active" not in never_read
            problem = await api.get("/api/v1/fleet")
            assert (problem.status_code, problem.json()["code"]) == (503, "database_unavailable")
            is_released.set()
            monkeypatch.setattr(services.fleet, "_answer_seconds", PATIENCE_SECONDS)
            fresh = (await api.get("/api/v1/fleet")).json()
            assert fresh["read_at"] is None
            values = samples((await api.get("/metrics")).text)
            assert values["dagmaster_database_up"] == 1
            assert values["dagmaster_database_scrape_stale_seconds"] == 0
            # From here on, neither the fleet nor the keys are read.
            is_released.clear()
            monkeypatch.setattr(services.fleet, "_answer_seconds", 0.05)
            monkeypatch.setattr(services.keys, "find", hang)
            values = samples((await api.get("/metrics")).text)
            assert values["dagmaster_database_up"] == 0
            assert values["dagmaster_database_scrape_stale_seconds"] > 0
            assert values["dagmaster_workers_active"] == 1
            stale = (await api.get("/api/v1/fleet")).json()
            assert stale["read_at"] is not None
            assert {**stale, "read_at": None}.keys() == fresh.keys()
            await check_lists(api)
            # A key that was never seen cannot be checked: that is said.
            stranger = {"Authorization": f"Bearer dm_{0:012}_{'a' * 43}"}
            assert (await api.http.get("/metrics", headers=stranger)).status_code == 503
            monkeypatch.setattr(services.keys, "find", find)
            is_released.set()

    asyncio.run(main())


def test_metrics_are_written_outside_the_event_loop(monkeypatch):
    threads: list[threading.Thread] = []

    def render(_metrics: ProcessMetrics) -> bytes:
        threads.append(threading.current_thread())
        return b"# text\n"

    async def main() -> None:
        async with opened_api() as api:
            monkeypatch.setattr(ProcessMetrics, "render", render)
            assert (await api.get("/metrics")).text.endswith("# text\n")

    asyncio.run(main())
    (thread,) = threads
    assert thread is not threading.current_thread()


def test_services_count_jobs_and_tasks_by_name_only():
    async def main() -> str:
        async with opened_api(halve, metrics=ProcessMetrics()) as api:
            await api.publish(FLOW)
            for number in (2, 3):
                body = {"workflow_id": "halves", "inputs": {"number": number, "token": CANARY}}
                await finished(api.application, (await api.post("/api/v1/jobs", body)).json()["job_id"])
            return (await api.get("/metrics")).text

    text = asyncio.run(main())
    values = samples(text)
    for name in ("created", "completed", "failed"):
        assert values[f"dagmaster_jobs_{name}_total{{'workflow': 'halves'}}"] == (
            2 if name == "created" else 1
        )
    # They begin with zero.
    assert values["dagmaster_jobs_cancelled_total{'workflow': 'halves'}"] == 0
    assert values["dagmaster_attempts_lost_total{'workflow': 'halves'}"] == 0
    assert values["dagmaster_tasks_created_total{'queue': 'q'}"] == 2
    assert values["dagmaster_tasks_completed_total{'handler': 'halve'}"] == 1
    assert values["dagmaster_tasks_failed_total{'handler': 'halve'}"] == 1
    assert values["dagmaster_task_duration_seconds_count{'handler': 'halve'}"] == 2
    assert values["dagmaster_worker_task_execution_time_count{'handler': 'halve'}"] == 2
    assert values["dagmaster_job_duration_seconds_count{'workflow': 'halves'}"] == 2
    assert CANARY not in text

"""Metrics of finished jobs over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.errors import PermanentError
from dagmaster.sdk.handler_registry import handler
from dagmaster.store.memory.metrics import roll_up
from dagmaster.store.memory.read_store import MemoryReadStore
from tests.unit.application.memory_application import finished
from tests.unit.http.api_client import opened_api

if TYPE_CHECKING:
    from tests.unit.http.api_client import Api

CANARY = "canary-hunter-seven"
FLOW = """
workflow_id: halves
version: 1
inputs: {number: {type: integer}, token: {type: string, secret: true, default: none}}
nodes:
  halve: {handler: halve, queue: q, params: {number: "{{ inputs.number }}", token: "{{ inputs.token }}"}}
"""


@handler("halve", queue="q")
async def halve(number: int, token: str) -> dict[str, Any]:
    if number % 2:
        raise PermanentError(f"{number} is odd, {token}")
    return {"half": number // 2}


async def run_jobs(api: Api, *numbers: int) -> None:
    await api.publish(FLOW)
    for number in numbers:
        body = {"workflow_id": "halves", "inputs": {"number": number, "token": CANARY}}
        await finished(api.application, (await api.post("/api/v1/jobs", body)).json()["job_id"])
    assert isinstance(api.application.read, MemoryReadStore)
    roll_up(api.application.read._database, 100)


def test_metrics_count_jobs_nodes_failures_and_throughput_without_secrets():
    async def main() -> None:
        async with opened_api(halve) as api:
            await run_jobs(api, 2, 3, 4, 5)
            answer = await api.get("/api/v1/metrics/workflows", days=1)
            report = answer.json()
            (workflow,) = report["workflows"]
            assert (workflow["total_jobs"], workflow["completed"], workflow["failed"]) == (4, 2, 2)
            assert (workflow["success_rate"], workflow["percentiles"]) == (0.5, "exact")
            assert 0 <= workflow["p50_duration"] <= workflow["p95_duration"]
            assert [failure["message"] for failure in workflow["common_failures"]] == ["<n> is odd, ***"]
            nodes = (await api.get("/api/v1/metrics/workflows/halves/nodes")).json()["nodes"]
            assert [(node["node_id"], node["total_executions"], node["failed"]) for node in nodes] == [
                ("halve", 4, 2)
            ]
            failures = await api.get("/api/v1/metrics/failures", limit=5)
            assert [failure["count"] for failure in failures.json()["failures"]] == [2]
            for kind, count in (("workflows", 1), ("failures", 1)):
                of_one = (await api.get(f"/api/v1/metrics/{kind}", workflow_id="halves")).json()
                assert len(of_one[kind]) == count
            buckets = (await api.get("/api/v1/metrics/throughput", hours=1, bucket_minutes=60)).json()[
                "buckets"
            ]
            assert sum(bucket["submitted"] for bucket in buckets) == 4
            assert sum(bucket["completed"] + bucket["failed"] for bucket in buckets) == 4
            assert CANARY not in answer.text + failures.text

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("workflows?days=0", 422),
        ("workflows?days=91", 422),
        ("workflows?workflow_id=unknown", 404),
        ("failures?workflow_id=unknown", 404),
        ("workflows/unknown/nodes", 404),
        ("workflows/%00/nodes", 400),
        ("failures?limit=201", 422),
        ("throughput?hours=745", 422),
        ("throughput?bucket_minutes=0", 422),
    ],
)
def test_metrics_reject_bad_periods_and_unknown_workflows(path, status):
    async def main() -> None:
        async with opened_api() as api:
            answer = await api.http.get(f"/api/v1/metrics/{path}", headers=api.headers)
            assert answer.status_code == status

    asyncio.run(main())

"""Commands to single nodes and to several at once."""

from __future__ import annotations

import asyncio
from unittest.mock import ANY

from dagmaster.client.async_client import AsyncClient
from tests.unit.http.api_client import opened_api

WAITS = """
workflow_id: waits
version: 1
on_failure: continue
nodes:
  cancel: {type: wait, signal: go}
  tiles: {type: fan_out, source: [1, 2, 3], on_item_error: tolerate, task: {type: workflow, workflow_id: child}}
  ask: {type: approval}
"""
CHILD = "{workflow_id: child, version: 1, nodes: {w: {type: wait, signal: go}}}"


def test_nodes_are_cancelled_and_retried_one_by_one_and_together():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish(CHILD)
            await api.publish(WAITS)
            job_id = (await api.post("/api/v1/jobs", {"workflow_id": "waits"})).json()["job_id"]
            nodes = f"/api/v1/jobs/{job_id}/nodes"
            await api.until(job_id, "RUNNING")
            one = (await api.post(f"{nodes}/tiles__1/cancel")).json()
            assert (one["command"], one["node_id"], one["accepted"], one["is_done"]) == (
                "cancel_nodes",
                "tiles__1",
                True,
                True,
            )
            assert one["sentence"] == "key:ada requested cancellation of tiles__1"
            # A node may be called like the action: its own path is another.
            assert (await api.get(f"{nodes}/cancel")).json()["node_id"] == "cancel"
            several = await api.post(f"{nodes}/cancel", {"nodes": ["cancel", "ask", "ask"]})
            assert several.json()["sentence"] == "key:ada requested cancellation of 2 nodes"
            assert several.json()["node_id"] is None
            again = await api.post(f"{nodes}/cancel", {"nodes": ["ask"]})
            assert (again.status_code, again.json()["code"]) == (409, "node_not_cancellable")
            plan = (await api.post(f"{nodes}/retry?dry_run=true", {"nodes": ["ask", "cancel"]})).json()
            assert {node["node"] for node in plan["redone"]} == {"ask", "cancel"}
            retried = (await api.post(f"{nodes}/retry", {"nodes": ["ask", "cancel", "tiles"]})).json()
            assert retried["sentence"] == "run 2 starts: 2 nodes to run again; 1 other could not be retried"
            entries = (await api.get("/api/v1/audit", object_kind="job", object_id=job_id)).json()["items"][
                ::-1
            ]
            assert [(entry["action"], entry["details"]) for entry in entries][1:] == [
                ("node.cancel", {"node_id": "tiles__1", "command_id": ANY}),
                ("node.cancel", {"node_ids": ["cancel", "ask"], "count": 2, "command_id": ANY}),
                ("node.retry", {"node_ids": ["ask", "cancel", "tiles"], "count": 3, "command_id": ANY}),
            ]

    asyncio.run(main())


def test_names_are_checked_before_anything_is_sent():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish(CHILD)
            await api.publish(WAITS)
            job_id = (await api.post("/api/v1/jobs", {"workflow_id": "waits"})).json()["job_id"]
            await api.until(job_id, "RUNNING")
            for action in ("cancel", "retry"):
                path = f"/api/v1/jobs/{job_id}/nodes/{action}"
                unknown = await api.post(path, {"nodes": ["ask", "tils"]})
                assert (unknown.status_code, unknown.json()["code"]) == (404, "node_not_found")
                assert "Did you mean 'tiles'" in unknown.json()["detail"]
                bodies: list[dict[str, object]] = [
                    {"nodes": []},
                    {},
                    {"nodes": ["ask"] * 1_001},
                    {"nodes": "ask"},
                    {"node": "ask"},
                ]
                for bad in bodies:
                    assert (await api.post(path, bad)).status_code == 422, bad
            events = (await api.get(f"/api/v1/jobs/{job_id}/events")).json()["items"]
            assert "NodeCancelRequested" not in {event["type"] for event in events}

    asyncio.run(main())


def test_the_client_cancels_and_retries_nodes():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish(CHILD)
            await api.publish(WAITS)
            job_id = (await api.post("/api/v1/jobs", {"workflow_id": "waits"})).json()["job_id"]
            await api.until(job_id, "RUNNING")
            key = api.headers["Authorization"].removeprefix("Bearer ")
            async with AsyncClient("http://test", key=key, transport=api.http._transport) as client:
                assert (await client.cancel_node(job_id, "tiles__0")).is_done
                assert (await client.cancel_nodes(job_id, ["ask", "cancel"])).is_done
                plan = await client.plan_retry_nodes(job_id, ["ask", "cancel"])
                assert {node.node for node in plan.redone} == {"ask", "cancel"}
                assert (await client.retry_nodes(job_id, ["ask", "cancel"])).is_done

    asyncio.run(main())

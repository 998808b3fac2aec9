"""Every change over HTTP has its actor in the audit trail."""

from __future__ import annotations

import asyncio

import pytest

from dagmaster.http.app import route_scopes
from dagmaster.ports.api_keys import Scope
from tests.unit.http.api_client import FLOW, opened_api


def test_changes_are_in_the_audit_trail_and_reads_and_plans_are_not():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            await api.publish(FLOW.replace("version: 1", "version: 2"))
            await api.post("/api/v1/workflows/hello/activate", {"version": 1})
            job_id = (await api.post("/api/v1/jobs", {"workflow_id": "hello"})).json()["job_id"]
            await api.post(
                "/api/v1/jobs/batch", {"jobs": [{"workflow_id": "hello"}, {"workflow_id": "nothing"}]}
            )
            await api.post("/api/v1/plan", {"workflow_id": "hello"})
            await api.until(job_id, "WAITING")
            answered = await api.post(f"/api/v1/jobs/{job_id}/nodes/ask/reject", {"comment": "no"})
            await api.until(job_id, "FAILED")
            await api.post(f"/api/v1/jobs/{job_id}/resume?dry_run=true")
            await api.post(f"/api/v1/jobs/{job_id}/cancel")
            await api.post(f"/api/v1/jobs/{job_id}/nodes/ask/retry")
            key_id = (await api.post("/api/v1/keys", {"name": "ci", "scopes": ["read"]})).json()["key_id"]
            new = (await api.post(f"/api/v1/keys/{key_id}/rotate", {"overlap_hours": 0})).json()
            await api.post(f"/api/v1/keys/{new['key_id']}/revoke")
            await api.post("/api/v1/admin/migrate")
            await api.post("/api/v1/admin/metrics/rebuild")
            assert (await api.get("/api/v1/admin/invariants")).json()["violations"] == []
            entries = (await api.get("/api/v1/audit")).json()["items"][::-1]
            assert [entry["action"] for entry in entries] == [
                "key.create", "workflow.publish", "workflow.publish", "workflow.activate", "job.submit", "job.submit",
                "node.reject", "node.retry", "key.create", "key.rotate", "key.revoke", "metrics.rebuild",
            ]  # fmt: skip
            own = api.headers["Authorization"].split("_")[1]
            assert {(entry["actor"], entry["key_id"]) for entry in entries[1:]} == {("key:ada", own)}
            assert entries[0]["key_id"] is None, "a user of the database made the first key"
            assert not any("key_id" in entry["details"] for entry in entries)
            rejected = next(entry for entry in entries if entry["action"] == "node.reject")
            assert rejected["request_id"] == answered.headers["x-request-id"]
            of_job = (await api.get("/api/v1/audit", object_kind="job", object_id=job_id, limit=1)).json()
            assert [entry["action"] for entry in of_job["items"]] == ["node.retry"]
            assert of_job["next_cursor"]

    asyncio.run(main())


AUDITED = {
    "/submit": "job.submit",
    "/submit/batch": "job.submit",
    "/platforms": "platform.set",
    "/jobs": "job.submit",
    "/jobs/batch": "job.submit",
    "/jobs/definition": "job.submit",
    "/jobs/cancel": "job.cancel",
    "/jobs/resume": "job.resume",
    "/jobs/{job_id}/cancel": "job.cancel",
    "/jobs/{job_id}/resume": "job.resume",
    "/jobs/{job_id}/nodes/cancel": "node.cancel",
    "/jobs/{job_id}/nodes/retry": "node.retry",
    "/jobs/{job_id}/nodes/{node_id}/cancel": "node.cancel",
    "/jobs/{job_id}/nodes/{node_id}/retry": "node.retry",
    "/jobs/{job_id}/nodes/{node_id}/approve": "node.approve",
    "/jobs/{job_id}/nodes/{node_id}/reject": "node.reject",
    "/jobs/{job_id}/signals/{name}": "job.signal",
    "/jobs/graph": "job.submit",
    "/jobs/graph/lines": "job.submit",
    "/jobs/{job_id}/tasks": "job.add_nodes",
    "/jobs/{job_id}/tasks/lines": "job.add_nodes",
    "/jobs/{job_id}/holds/{signal}/release": "job.signal",
    "/workflows": "workflow.publish",
    "/workflows/batch": "workflow.publish",
    "/workflows/{workflow_id}/activate": "workflow.activate",
    "/handlers/test": "job.submit",
    "/handlers/{name}/test": "job.submit",
    "/workers": "worker.register",
    "/workers/{worker_id}/deregister": "worker.deregister",
    "/fleet/{service_id}/drain": "worker.drain",
    "/fleet/{service_id}/undrain": "worker.undrain",
    "/tenants": "tenant.create",
    "/tenants/{name}": "tenant.set",
    "/keys": "key.create",
    "/keys/{key_id}/revoke": "key.revoke",
    "/callbacks/replay": "callback.replay",
    "/callbacks/{callback_id}/replay": "callback.replay",
    "/callbacks/endpoints/pause": "callback_endpoint.pause",
    "/callbacks/endpoints/resume": "callback_endpoint.resume",
    "/callbacks/secrets": "signing_secret.create",
    "/callbacks/secrets/{secret_id}/revoke": "signing_secret.revoke",
    "/keys/{key_id}/rotate": "key.rotate",
    "/keys/sessions/{session_id}/revoke": "session.revoke",
    "/handlers/{name}/trust": "handler.trust",
    "/handlers/{name}/distrust": "handler.distrust",
    "/admin/migrate": "schema.migrate",
    "/admin/metrics/rebuild": "metrics.rebuild",
}
NOT_AUDITED = {
    "/plan",
    "/workflows/validate",
    "/tasks/claim",
    *(f"/callbacks/task-{word}" for word in ("heartbeat", "progress", "result")),
}
"""They change nothing, or are what a registered worker does with its tasks: the events of the job name the worker."""
SIGNALLED = """
workflow_id: signalled
version: 1
nodes: {receive: {type: wait, signal: go, next: ask}, ask: {type: approval, message: "go on?", next: end}, end: {type: wait, seconds: 3600}}
"""


def test_every_route_that_changes_something_has_an_action():
    posts = {path.removeprefix("/api/v1") for method, path in route_scopes() if method == "POST"}
    assert posts - NOT_AUDITED == set(AUDITED)


def test_commands_definitions_tests_and_workers_are_in_the_audit_trail():
    async def main() -> None:
        async with opened_api() as api:
            await api.use_key(Scope.ADMIN, Scope.WORK)
            definition = {
                "workflow_id": "defined",
                "version": 1,
                "nodes": {"a": {"type": "wait", "seconds": 0.01}},
            }
            await api.post("/api/v1/workflows/batch", {"workflows": [{"definition": definition}]})
            await api.post("/api/v1/jobs/definition", {"definition": definition, "jobs": [{}]})
            await api.post("/api/v1/handlers/greet/test", {"params": {"name": "Ada"}})
            await api.post("/api/v1/handlers/test", {"handler": "greet", "params": {"name": "Ada"}})
            worker = (await api.post("/api/v1/workers", {"handlers": [{"name": "far"}]})).json()["worker_id"]
            await api.post(f"/api/v1/workers/{worker}/deregister")
            await api.publish(SIGNALLED)
            job_id = (await api.post("/api/v1/jobs", {"workflow_id": "signalled"})).json()["job_id"]
            await api.until(job_id, "WAITING")
            for path in ("signals/go", "nodes/ask/approve", "cancel", "resume"):
                answer = await api.post(f"/api/v1/jobs/{job_id}/{path}", {} if path == "signals/go" else None)
                assert (answer.status_code, answer.json()["accepted"]) == (200, True), (path, answer.text)
            entries = (await api.get("/api/v1/audit")).json()["items"][::-1]
            assert [entry["action"] for entry in entries if entry["object_kind"] != "key"] == [
                "workflow.publish", "job.submit", "job.submit", "job.submit", "worker.register", "worker.deregister",
                "workflow.publish", "job.submit", "job.signal", "node.approve", "job.cancel", "job.resume",
            ]  # fmt: skip
            registered = next(entry for entry in entries if entry["action"] == "worker.register")
            assert (registered["actor"], registered["object_id"], registered["details"]["handlers"]) == (
                "key:ada", worker, ["far"],
            )  # fmt: skip

    asyncio.run(main())


def test_a_rotated_key_has_the_same_scopes_and_the_old_one_ends(monkeypatch):
    monkeypatch.setattr("dagmaster.http.auth.CACHE_SECONDS", -1.0)

    async def main() -> None:
        async with opened_api() as api:
            admin = api.headers
            old = await api.use_key(Scope.READ, name="ci")
            used = api.headers
            api.headers = admin
            new = (await api.post(f"/api/v1/keys/{old}/rotate", {"overlap_hours": 1})).json()
            assert (new["name"], new["scopes"]) == ("ci", ["read"])
            assert (await api.http.get("/api/v1/jobs", headers=used)).status_code == 200
            await api.post(f"/api/v1/keys/{old}/rotate", {"overlap_hours": 0})
            assert (await api.http.get("/api/v1/jobs", headers=used)).status_code == 401
            gone = await api.post(f"/api/v1/keys/{old}/rotate")
            assert (gone.status_code, gone.json()["code"]) == (404, "api_key_not_found")

    asyncio.run(main())


@pytest.mark.parametrize("scope", [Scope.READ, Scope.SUBMIT, Scope.OPERATE, Scope.WORK])
def test_only_admins_read_the_audit_trail(scope):
    async def main() -> None:
        async with opened_api() as api:
            await api.use_key(scope)
            assert (await api.get("/api/v1/audit")).status_code == 403

    asyncio.run(main())

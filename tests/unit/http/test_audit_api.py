"""Every change over HTTP has its actor in the audit trail."""

from __future__ import annotations

import asyncio

import pytest

from dagmaster.ports.api_keys import Scope
from tests.unit.http.api_client import FLOW, opened_api


def test_changes_are_in_the_audit_trail_and_reads_and_plans_are_not():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            await api.publish(FLOW.replace("version: 1", "version: 2"))
            await api.post("/api/v1/workflows/hello/activate", {"version": 1})
            job_id = (await api.post("/api/v1/jobs", {"workflow_id": "hello"})).json()["job_id"]
            await api.post("/api/v1/jobs/batch", {"jobs": [{"workflow_id": "hello"}, {"workflow_id": "nothing"}]})
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
            entries = (await api.get("/api/v1/audit")).json()["items"][::-1]
            assert [entry["action"] for entry in entries] == [
                "key.create", "workflow.publish", "workflow.publish", "workflow.activate", "job.submit", "job.submit",
                "node.reject", "node.retry", "key.create", "key.rotate", "key.revoke",
            ]  # fmt: skip
            own = api.headers["Authorization"].split("_")[1]
            assert {(entry["actor"], entry["key_id"]) for entry in entries[1:]} == {("ada", own)}
            assert entries[0]["key_id"] is None, "a user of the database made the first key"
            assert not any("key_id" in entry["details"] for entry in entries)
            rejected = next(entry for entry in entries if entry["action"] == "node.reject")
            assert rejected["request_id"] == answered.headers["x-request-id"]
            of_job = (await api.get("/api/v1/audit", object_kind="job", object_id=job_id, limit=1)).json()
            assert [entry["action"] for entry in of_job["items"]] == ["node.retry"]
            assert of_job["next_cursor"]

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

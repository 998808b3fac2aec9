"""Jobs over HTTP: submit, read, control."""

from __future__ import annotations

import asyncio

from tests.unit.application.memory_application import finished
from tests.unit.http.api_client import opened_api


def test_a_job_is_submitted_followed_and_controlled():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            accepted = await api.post("/api/v1/jobs", {"workflow_id": "hello", "inputs": {"name": "Ada"}})
            assert accepted.status_code == 202
            job_id = accepted.json()["job_id"]
            assert accepted.headers["location"] == f"/api/v1/jobs/{job_id}"
            await api.until(job_id, "WAITING")
            shown = (await api.get(f"/api/v1/jobs/{job_id}")).json()
            assert (shown["status"], shown["submitted_by"], shown["inputs"]) == (
                "WAITING",
                "key:ada",
                {"name": "Ada"},
            )
            node = (await api.get(f"/api/v1/jobs/{job_id}/nodes/greet")).json()
            assert node["output"] == {"text": "hello Ada"}
            approved = await api.post(f"/api/v1/jobs/{job_id}/nodes/ask/approve", {"comment": "yes"})
            assert (approved.status_code, approved.json()["accepted"]) == (200, True)
            await finished(api.application, job_id)
            events = (await api.get(f"/api/v1/jobs/{job_id}/events")).json()["items"]
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            assert [event["by"] for event in events if event["type"] == "Approved"] == ["key:ada"]
            again = await api.post(f"/api/v1/jobs/{job_id}/nodes/ask/approve")
            assert (again.status_code, again.json()["code"]) == (409, "job_finished")
            cancelled = await api.post(f"/api/v1/jobs/{job_id}/cancel")
            assert (cancelled.status_code, cancelled.json()["code"]) == (409, "job_finished")

    asyncio.run(main())


def test_the_same_key_is_the_same_job_and_another_body_a_conflict():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            body = {"workflow_id": "hello", "inputs": {"name": "Ada"}}
            first = await api.post("/api/v1/jobs", body, headers={"Idempotency-Key": "k"})
            second = await api.post("/api/v1/jobs", {**body, "idempotency_key": "k"})
            assert (first.status_code, second.status_code) == (202, 202)
            assert second.json() == {**first.json(), "outcome": "existing", "is_new": False}
            other = await api.post("/api/v1/jobs", {**body, "inputs": {}}, headers={"Idempotency-Key": "k"})
            assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
            for change in ({"priority": 6}, {"version": 1}, {"name": "x"}, {"correlation_id": "c"}):
                changed = await api.post("/api/v1/jobs", {**body, **change}, headers={"Idempotency-Key": "k"})
                assert (changed.status_code, changed.json()["code"]) == (409, "idempotency_conflict"), change
            differing = await api.post(
                "/api/v1/jobs", {**body, "idempotency_key": "x"}, headers={"Idempotency-Key": "k"}
            )
            assert differing.status_code == 400

    asyncio.run(main())


def test_a_key_of_a_whole_batch_is_rejected_rather_than_ignored():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            for path, body in (
                ("batch", {"jobs": [{"workflow_id": "hello"}]}),
                ("definition", {"definition": {}, "jobs": [{}]}),
            ):
                answer = await api.post(f"/api/v1/jobs/{path}", body, headers={"Idempotency-Key": "k"})
                assert (answer.status_code, answer.json()["code"]) == (400, "submission_rejected")
                assert "field idempotency_key" in answer.json()["detail"]
            assert (await api.get("/api/v1/stats")).json()["total"] == 0

    asyncio.run(main())


def test_a_resume_as_a_new_job_takes_its_key_from_the_header():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            job_id = (await api.post("/api/v1/jobs", {"workflow_id": "hello"})).json()["job_id"]
            await api.until(job_id, "WAITING")
            await api.post(f"/api/v1/jobs/{job_id}/cancel")
            await finished(api.application, job_id)
            url, body = f"/api/v1/jobs/{job_id}/resume", {"inputs": {"name": "Eve"}}
            first = await api.post(url, body, headers={"Idempotency-Key": "again"})
            second = await api.post(url, {**body, "idempotency_key": "again"})
            assert (first.json()["is_new"], second.json()["is_new"]) == (True, False)
            assert first.json()["job_id"] == second.json()["job_id"]
            differing = await api.post(
                url, {**body, "idempotency_key": "x"}, headers={"Idempotency-Key": "again"}
            )
            assert differing.status_code == 400

    asyncio.run(main())


def test_each_job_of_a_batch_has_its_own_outcome():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            jobs = [
                {"workflow_id": "hello"},
                {"workflow_id": "nothing"},
                {"workflow_id": "hello", "inputs": {"name": 7}},
            ]
            answer = await api.post("/api/v1/jobs/batch", {"jobs": jobs})
            assert answer.status_code == 202
            assert [result["outcome"] for result in answer.json()] == ["accepted", "error", "error"]
            assert [result["error"] and result["error"]["code"] for result in answer.json()] == [
                None, "workflow_not_found", "inputs_invalid",
            ]  # fmt: skip
            many = await api.post("/api/v1/jobs/batch", {"jobs": [{"workflow_id": "hello"}] * 101})
            assert (many.status_code, many.json()["errors"][0]["path"]) == (422, "body.jobs")

    asyncio.run(main())


def test_a_list_is_filtered_and_paged():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            for number in range(5):
                await api.post("/api/v1/jobs", {"workflow_id": "hello", "name": f"job {number % 2}"})
            first = (await api.get("/api/v1/jobs", limit=2)).json()
            second = (await api.get("/api/v1/jobs", limit=2, cursor=first["next_cursor"])).json()
            ids = [job["job_id"] for job in (*first["items"], *second["items"])]
            assert len(set(ids)) == 4
            assert sorted(ids, reverse=True) == ids
            named = (await api.get("/api/v1/jobs", name="job 1")).json()["items"]
            assert {job["name"] for job in named} == {"job 1"}
            assert (await api.get("/api/v1/stats")).json()["total"] == 5
            bad = await api.get("/api/v1/jobs", status="sleeping")
            assert (bad.status_code, bad.json()["code"]) == (400, "query_invalid")
            damaged = await api.get("/api/v1/jobs", cursor="abc")
            assert (damaged.status_code, damaged.json()["code"]) == (400, "cursor_invalid")

    asyncio.run(main())

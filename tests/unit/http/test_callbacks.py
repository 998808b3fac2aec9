"""The routes of callbacks: lists, changes, secrets that are shown once, and public keys for everybody."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, cast

import pytest

from dagmaster.application import callbacks as operations
from dagmaster.ports.api_keys import Scope
from dagmaster.records.callbacks import CallbackRecord, CallbackState, DeliveryStatus
from dagmaster.webhook_signatures import SignatureInvalid, verify
from tests.unit.http.api_client import FLOW, opened_api

if TYPE_CHECKING:
    from dagmaster.application.callbacks import Callbacks
    from dagmaster.store.memory.callback_store import MemoryCallbackStore
    from tests.unit.http.api_client import Api

DEAD = CallbackRecord(
    callback_id="msg_00000000000000000000000000000001",
    tenant="default",
    request_id=None,
    job_id="1",
    run=1,
    state=CallbackState.COMPLETED,
    status=DeliveryStatus.DEAD,
    url="https://a.example.com/x",
    endpoint="https://a.example.com",
    occurred_at=1_000.0,
    attempts=8,
    next_attempt_at=None,
    last_attempt_at=2_000.0,
    last_status=500,
    last_error="answered 500: no",
    delivered_at=None,
    dead_at=2_000.0,
    dead_reason="exhausted",
)
SENT = dataclasses.replace(
    DEAD, callback_id="msg_00000000000000000000000000000002", job_id="2", status=DeliveryStatus.DELIVERED, delivered_at=3_000.0,
    dead_at=None, dead_reason=None, endpoint="https://b.example.com",
)  # fmt: skip
BASE = "/api/v1/callbacks"


def put(callbacks: Callbacks, *records: CallbackRecord) -> None:
    cast("MemoryCallbackStore", callbacks.store).rows.extend(records)


def test_callbacks_are_listed_filtered_shown_and_sent_again():
    async def test(api: Api) -> None:
        put(api.services.callbacks, DEAD, SENT)
        page = (await api.get(BASE)).json()
        assert [item["callback_id"] for item in page["items"]] == [SENT.callback_id, DEAD.callback_id]
        for query, expected in (
            ({"status": "dead"}, DEAD),
            ({"subject": "2"}, SENT),
            ({"endpoint": "https://A.example.com/"}, DEAD),
        ):
            items = (await api.get(BASE, **query)).json()["items"]
            assert [item["callback_id"] for item in items] == [expected.callback_id], query
        first = (await api.get(BASE, limit=1)).json()
        second = (await api.get(BASE, limit=1, cursor=first["next_cursor"])).json()
        assert [item["job_id"] for item in first["items"] + second["items"]] == ["2", "1"]
        assert (await api.get(f"{BASE}/{DEAD.callback_id}")).json() == DEAD.to_dict()
        assert (await api.get(f"{BASE}/msg_x")).status_code == 404
        answer = await api.post(f"{BASE}/{DEAD.callback_id}/replay")
        assert (answer.status_code, answer.json()["count"]) == (200, 1)
        assert (await api.get(f"{BASE}/{DEAD.callback_id}")).json()["status"] == "waiting"
        assert (await api.post(f"{BASE}/{DEAD.callback_id}/replay")).json()["count"] == 0

    run(test)


def test_a_large_range_is_replayed_in_parts_that_say_what_is_left(monkeypatch):
    monkeypatch.setattr(operations, "MAX_CHANGED", 2)

    async def test(api: Api) -> None:
        put(
            api.services.callbacks,
            *(dataclasses.replace(DEAD, callback_id=f"msg_{number:032}") for number in range(3)),
        )
        first = (await api.post(f"{BASE}/replay")).json()
        assert (first["count"], first["left"]) == (2, 1)
        second = (await api.post(f"{BASE}/replay", params={"cursor": first["next_cursor"]})).json()
        assert (second["count"], second["left"], second["next_cursor"]) == (1, 0, None)
        assert (await api.post(f"{BASE}/replay", params={"cursor": "x"})).status_code == 400

    run(test)


def test_a_range_is_replayed_and_not_everything_that_was_delivered():
    async def test(api: Api) -> None:
        put(api.services.callbacks, DEAD, SENT)
        assert (await api.post(f"{BASE}/replay", params={"status": "delivered"})).status_code == 400
        assert (
            await api.post(f"{BASE}/replay", params={"status": "waiting", "endpoint": "x"})
        ).status_code == 400
        assert (await api.post(f"{BASE}/replay", params={"status": "nonsense"})).status_code == 422
        assert (await api.post(f"{BASE}/replay", params={"since": "nonsense"})).status_code == 400
        assert (
            await api.post(f"{BASE}/replay", params={"status": "delivered", "endpoint": SENT.endpoint})
        ).json()["count"] == 1
        assert (await api.post(f"{BASE}/replay", params={})).json()["count"] == 1

    run(test)


def test_an_endpoint_is_paused_and_resumed_with_an_entry_in_the_audit_trail():
    async def test(api: Api) -> None:
        put(api.services.callbacks, DEAD, SENT)
        body = {"endpoint": DEAD.endpoint}
        assert (await api.post(f"{BASE}/endpoints/resume", body)).status_code == 404
        assert (await api.post(f"{BASE}/endpoints/pause", body)).json()["count"] == 1
        assert (await api.post(f"{BASE}/endpoints/pause", body)).status_code == 404
        (paused,) = (await api.get(f"{BASE}/endpoints", is_paused=True)).json()
        assert (paused["endpoint"], paused["pause_reason"], paused["dead"]) == (DEAD.endpoint, "operator", 1)
        assert (await api.post(f"{BASE}/endpoints/resume", body)).status_code == 200
        entries = (await api.get("/api/v1/audit", object_kind="callback_endpoint")).json()["items"]
        assert [entry["action"] for entry in entries] == [
            "callback_endpoint.resume",
            "callback_endpoint.pause",
        ]

    run(test)


def test_a_secret_is_shown_once_and_public_keys_are_open_to_everybody():
    async def test(api: Api) -> None:
        made = await api.post(f"{BASE}/secrets", {"kind": "hmac"})
        assert made.status_code == 201
        assert made.headers["cache-control"] == "no-store"
        secret = made.json()["secret"]
        assert secret.startswith("whsec_")
        pair = (await api.post(f"{BASE}/secrets", {"kind": "ed25519", "tenant": "acme"})).json()
        assert pair["secret"] is None
        listed = await api.get(f"{BASE}/secrets")
        assert secret not in listed.text
        assert len(listed.json()) == 2
        api.headers = {}
        keys = await api.get(f"/.well-known/webhook-keys/{pair['key_set']}")
        assert [key["public_key"] for key in keys.json()["keys"]] == [pair["public_key"]]
        # A set that nobody has looks like one without keys, and so does that of the installation here.
        for path in ("", "/00000000-0000-0000-0000-000000000000"):
            assert (await api.get(f"/.well-known/webhook-keys{path}")).json() == {"keys": []}
        with pytest.raises(SignatureInvalid):
            verify(
                [pair["public_key"]],
                {"webhook-id": "x", "webhook-timestamp": "1", "webhook-signature": "v1a,AA=="},
                b"",
                now=1,
            )

    run(test)


def test_a_third_secret_of_a_kind_is_refused_until_one_is_revoked():
    async def test(api: Api) -> None:
        ids = [(await api.post(f"{BASE}/secrets", {})).json()["secret_id"] for _ in range(2)]
        assert (await api.post(f"{BASE}/secrets", {})).status_code == 409
        assert (await api.post(f"{BASE}/secrets/{ids[0]}/revoke")).json()["revoked_at"] is not None
        assert (await api.post(f"{BASE}/secrets", {})).status_code == 201
        assert (await api.post(f"{BASE}/secrets/nonsense/revoke")).status_code == 404

    run(test)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/x",
        "https://127.0.0.1/",
        "https://169.254.169.254/",
        "https://user@example.com/",
        "x" * 513,
        "",
    ],
)
def test_a_job_with_an_address_that_callbacks_may_not_have_is_rejected(url):
    async def test(api: Api) -> None:
        await api.publish(FLOW)
        answer = await api.post("/api/v1/jobs", {"workflow_id": "hello", "callback_url": url})
        assert 400 <= answer.status_code < 500
        assert (
            await api.post("/api/v1/plan", {"workflow_id": "hello", "callback_url": url})
        ).status_code == answer.status_code
        (outcome,) = (
            (
                await api.post(
                    "/api/v1/jobs/batch", {"jobs": [{"workflow_id": "hello", "callback_url": url}]}
                )
            ).json()
            if (1 <= len(url) <= 512)
            else [{"outcome": "error"}]
        )
        assert outcome["outcome"] == "error"
        assert (await api.get("/api/v1/jobs")).json()["items"] == []

    run(test)


def test_a_job_keeps_its_address_which_is_part_of_what_its_key_stands_for():
    async def test(api: Api) -> None:
        await api.publish(FLOW)
        body = {
            "workflow_id": "hello",
            "callback_url": "https://example.com/x?token=canary-1",
            "idempotency_key": "k",
        }
        job = (await api.post("/api/v1/jobs", body)).json()
        assert (await api.post("/api/v1/jobs", body)).json()["job_id"] == job["job_id"]
        assert (
            await api.post("/api/v1/jobs", {**body, "callback_url": "https://example.com/y"})
        ).status_code == 409
        # Its query may have a token: readers of jobs do not see it.
        assert "canary-1" not in (await api.get(f"/api/v1/jobs/{job['job_id']}")).text

    run(test)


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [(Scope.READ, {"list"}), (Scope.OPERATE, {"replay"}), (Scope.SUBMIT, set()), (Scope.WORK, set())],
)
def test_a_key_does_with_callbacks_what_its_scopes_allow(scope, allowed):
    async def test(api: Api) -> None:
        put(api.services.callbacks, DEAD)
        await api.use_key(scope)
        statuses = {
            "list": (await api.get(BASE)).status_code,
            "replay": (await api.post(f"{BASE}/{DEAD.callback_id}/replay")).status_code,
            "secrets": (await api.post(f"{BASE}/secrets", {})).status_code,
        }
        assert {name for name, status in statuses.items() if status != 403} == allowed

    run(test)


def run(test: object) -> None:
    async def main() -> None:
        async with opened_api() as api:
            await test(api)  # type: ignore[operator]

    asyncio.run(main())

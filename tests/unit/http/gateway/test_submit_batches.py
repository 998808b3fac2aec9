"""Submits of one caller that arrive together are forwarded together, and answered as if each had come alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

from tests.unit.http.gateway.gateway_client import RESULT, SUBMIT, Gateway, opened_gateway


def answer_as_server(request: httpx.Request) -> httpx.Response:
    """Accept every submit but those that say what becomes of them."""
    body = json.loads(request.content)
    if "requests" not in body:
        return _alone(body)
    if any(one["input_params"].get("broken") for one in body["requests"]):
        return httpx.Response(422, json={"code": "request_invalid"})
    return httpx.Response(202, json=[_outcome(one) for one in body["requests"]])


def _outcome(body: dict[str, Any]) -> dict[str, Any]:
    if body["input_params"].get("conflict"):
        return {
            "outcome": "error",
            "request_id": None,
            "error": {"code": "idempotency_conflict", "message": "…"},
        }
    return RESULT | {"request_id": body["request_id"]}


def _alone(body: dict[str, Any]) -> httpx.Response:
    if body["input_params"].get("conflict"):
        return httpx.Response(409, json={"code": "idempotency_conflict"})
    if body["input_params"].get("broken"):
        return httpx.Response(422, json={"code": "request_invalid"})
    return httpx.Response(202, json=RESULT | {"request_id": body["request_id"]})


async def submit_all(
    gateway: Gateway, bodies: list[dict[str, Any]], key: str = "acme"
) -> list[httpx.Response]:
    return await asyncio.gather(
        *(gateway.post("/platform/submit", {**SUBMIT, "input_params": body}, key) for body in bodies)
    )


def test_many_submits_at_once_are_few_requests_and_each_gets_its_own_answer():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            gateway.server = answer_as_server
            answers = await submit_all(gateway, [{"n": number} for number in range(60)])
            assert {answer.status_code for answer in answers} == {202}
            sent = [json.loads(request.content) for request in gateway.sent]
            asked = [one for body in sent for one in body.get("requests", [body])]
            assert len(sent) < 30
            ids = {one["input_params"]["n"]: one["request_id"] for one in asked}
            assert [answer.json()["request_id"] for answer in answers] == [
                ids[number] for number in range(60)
            ]

    asyncio.run(scenario())


def test_what_is_not_accepted_of_a_batch_is_answered_as_if_it_had_come_alone():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            gateway.server = answer_as_server
            for odd, status in (("conflict", 409), ("broken", 422)):
                bodies: list[dict[str, Any]] = [{odd: number % 5 == 0} for number in range(20)]
                answers = await submit_all(gateway, bodies)
                assert [answer.status_code for answer in answers] == [
                    status if body[odd] else 202 for body in bodies
                ]
            gateway.server = lambda _: httpx.Response(429, json={"code": "rate_limit_exceeded"}, headers={"Retry-After": "7"})  # fmt: skip
            answers = await submit_all(gateway, [{}] * 20)
            assert {(answer.status_code, answer.headers["retry-after"]) for answer in answers} == {(429, "7")}

    asyncio.run(scenario())


def test_callers_share_no_request_and_large_or_traced_submits_go_alone():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            gateway.server = answer_as_server
            await asyncio.gather(*(submit_all(gateway, [{"by": key}] * 10, key) for key in ("acme", "other")))
            for request in gateway.sent:
                name = (
                    "acme"
                    if request.headers["authorization"] == gateway.key("acme")["Authorization"]
                    else "other"
                )
                body = json.loads(request.content)
                assert {one["input_params"]["by"] for one in body.get("requests", [body])} == {name}
            gateway.sent.clear()
            await submit_all(gateway, [{"text": "x" * 9_000}] * 5)
            assert [request.url.path for request in gateway.sent] == ["/api/v1/submit"] * 5

    asyncio.run(scenario())

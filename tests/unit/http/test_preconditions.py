"""Two people who change a workflow at once: with If-Match, the second one is told what the first one did."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dagmaster.application.commands.publication import WorkflowSource
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.client.async_client import AsyncClient
from dagmaster.errors import WorkflowChanged
from tests.unit.http.api_client import FLOW, opened_api

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.http.api_client import Api

PUBLISH, ACTIVATE, SHOW = "/api/v1/workflows", "/api/v1/workflows/hello/activate", "/api/v1/workflows/hello"


def version(number: int, name: str = "world") -> str:
    return FLOW.replace("version: 1", f"version: {number}").replace("default: world", f"default: {name}")


def with_api(work: Callable[[Api], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened_api() as api:
            await work(api)

    asyncio.run(main())


def test_a_publication_on_top_of_another_one_is_answered_with_what_is_there_now():
    async def work(api: Api) -> None:
        await api.publish()
        tag = (await api.get(SHOW)).headers["etag"]
        first = await api.post(PUBLISH, {"text": version(2, "ann")}, headers={"If-Match": tag})
        assert first.status_code == 201
        second = await api.post(PUBLISH, {"text": version(3, "bob")}, headers={"If-Match": tag})
        problem = second.json()
        assert (second.status_code, problem["code"]) == (412, "workflow_changed")
        shown = (await api.get(SHOW)).json()
        assert problem["current"] == {
            "workflow_id": "hello", "state": shown["state"], "active_version": 2, "versions": [1, 2],
        }  # fmt: skip
        assert "has v1 and v2, and v2 is active" in problem["detail"]
        assert len(shown["versions"]) == 2
        again = await api.post(
            PUBLISH, {"text": version(3, "bob")}, headers={"If-Match": f'"{shown["state"]}"'}
        )
        assert again.status_code == 201

    with_api(work)


def test_a_replacement_and_an_activation_are_changes_for_both():
    async def work(api: Api) -> None:
        await api.publish()
        await api.publish(version(2))
        tag = {"If-Match": (await api.get(SHOW)).headers["etag"]}
        assert (await api.post(ACTIVATE, {"version": 1}, headers=tag)).status_code == 200
        assert (await api.post(ACTIVATE, {"version": 2}, headers=tag)).status_code == 412
        replaced = {"text": version(2, "ann"), "replace": True}
        assert (await api.post(PUBLISH, replaced, headers=tag)).status_code == 412
        # The tag of one version is about the same workflow.
        tag = {"If-Match": (await api.get(SHOW, version=2)).headers["etag"]}
        assert (await api.post(PUBLISH, replaced, headers=tag)).status_code == 201
        assert (await api.post(ACTIVATE, {"version": 2}, headers=tag)).status_code == 412
        assert (await api.post(ACTIVATE, {"version": 2})).status_code == 200, "without it, the last one wins"

    with_api(work)


def test_a_workflow_is_created_once_and_any_of_several_tags_will_do():
    async def work(api: Api) -> None:
        create = {"If-None-Match": "*"}
        assert (await api.post(PUBLISH, {"text": FLOW}, headers={"If-Match": "*"})).status_code == 412
        assert (await api.post(PUBLISH, {"text": FLOW}, headers=create)).status_code == 201
        assert (await api.post(PUBLISH, {"text": version(2)}, headers=create)).status_code == 412
        assert (await api.post(PUBLISH, {"text": version(2)}, headers={"If-Match": "*"})).status_code == 201
        state = (await api.get(SHOW)).json()["state"]
        several = {"If-Match": f'"0123", W/"{state}"'}
        assert (await api.post(ACTIVATE, {"version": 1}, headers=several)).status_code == 200
        for headers in ({"If-None-Match": '"x"'}, {"If-None-Match": "*", "If-Match": "*"}):
            assert (await api.post(PUBLISH, {"text": version(3)}, headers=headers)).status_code == 400
        batch: dict[str, Any] = {"workflows": [{"definition": {}}]}
        ignored = await api.post("/api/v1/workflows/batch", batch, headers={"If-Match": "*"})
        assert (ignored.status_code, "expected" in ignored.text) == (400, True)

    with_api(work)


def test_clients_publish_and_activate_on_what_they_have_read():
    async def work(api: Api) -> None:
        await api.publish()
        key = api.headers["Authorization"].removeprefix("Bearer ")
        async with AsyncClient("http://test", key, transport=httpx.ASGITransport(api.app)) as client:
            known = {"hello": [(await client.workflow_detail("hello")).state]}
            sources = [[WorkflowSource(compile_text(version(number)).graph)] for number in (2, 3)]
            await client.publish_workflows(sources[0], expected=known)
            with pytest.raises(WorkflowChanged, match="v2 is active"):
                await client.publish_workflows(sources[1], expected=known)
            with pytest.raises(WorkflowChanged, match="v2 is active"):
                await client.activate_version("hello", 1, expected=known["hello"])

    with_api(work)

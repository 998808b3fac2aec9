"""The page of callbacks: endpoints with their health, dead letters, and what may be done about them."""

from __future__ import annotations

import asyncio

import pytest

from dagmaster.ports.api_keys import Scope
from tests.unit.http.test_callbacks import DEAD, SENT, put
from tests.unit.ui.page_client import opened_pages, text_of


def test_an_empty_page_says_what_to_do():
    async def main() -> None:
        async with opened_pages() as pages:
            assert "--callback-url https://" in text_of((await pages.get("/ui/callbacks")).text)

    asyncio.run(main())


def test_callbacks_are_filtered_and_a_dead_one_is_sent_again():
    async def main() -> None:
        async with opened_pages() as pages:
            put(pages.api.services.callbacks, DEAD, SENT)
            text = (await pages.get("/ui/callbacks")).text
            assert DEAD.callback_id in text
            assert SENT.callback_id in text
            dead = (await pages.get("/ui/callbacks?status=dead")).text
            assert SENT.callback_id not in dead
            assert "answered 500: no" in dead
            assert (await pages.get("/ui/callbacks?status=nonsense")).status_code == 400
            assert "No callback matches" in (await pages.get("/ui/callbacks?endpoint=https://nobody")).text
            answer = await pages.post(f"/ui/callbacks/{DEAD.callback_id}/replay")
            assert answer.status_code == 303
            assert DEAD.callback_id not in (await pages.get("/ui/callbacks?status=dead")).text

    asyncio.run(main())


def test_an_endpoint_is_paused_resumed_and_its_dead_callbacks_are_sent_again():
    async def main() -> None:
        async with opened_pages() as pages:
            put(pages.api.services.callbacks, DEAD)
            form = {"endpoint": DEAD.endpoint, "tenant": "default"}
            assert (
                await pages.post("/ui/callbacks/endpoints", {"action": "pause", **form})
            ).status_code == 303
            assert "Resume https://a.example.com" in (await pages.get("/ui/callbacks")).text
            assert (
                await pages.post("/ui/callbacks/endpoints", {"action": "resume", **form})
            ).status_code == 303
            assert (
                await pages.post("/ui/callbacks/endpoints", {"action": "replay", **form})
            ).status_code == 303
            assert (
                "dead"
                not in text_of((await pages.get("/ui/callbacks?status=waiting")).text).split("Callback Says")[
                    -1
                ]
            )
            assert (
                await pages.post("/ui/callbacks/endpoints", {"action": "delete", **form})
            ).status_code == 400

    asyncio.run(main())


@pytest.mark.parametrize("scope", [Scope.READ])
def test_a_viewer_without_the_scope_operate_sees_no_buttons(scope):
    async def main() -> None:
        async with opened_pages() as pages:
            put(pages.api.services.callbacks, DEAD)
            await pages.log_in(scope)
            text = (await pages.get("/ui/callbacks")).text
            assert "Replay" not in text
            assert (await pages.post(f"/ui/callbacks/{DEAD.callback_id}/replay")).status_code == 403

    asyncio.run(main())

"""Submits of a caller that arrive together are forwarded together: an HTTP request costs more than a submit.

What the server does not accept of a batch is sent again alone, so that its answer is that of a single submit.
Nothing was stored of it, or the same request is found by its id.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from dagmaster.application.batching import KeyedBatcher
from dagmaster.http.gateway.rejections import ACCEPTED
from dagmaster.http.gateway.upstream import Forwarded, Upstream
from dagmaster.http.request_bodies import MAX_REQUESTS

MAX_BODY_BYTES: Final = 8_192
"""The largest body that is sent together with others: a hundred of them fit one request."""
_ALONE: Final = frozenset(
    (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)
)
"""What a server answers to a batch because of one of its submits."""
_Order = tuple[Mapping[str, Any], Mapping[str, str]]


class SubmitBatches:
    """Forwards submits. Those that arrive alone are forwarded alone, and at once."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._batcher = KeyedBatcher(self._forward, max_size=MAX_REQUESTS)

    async def submit(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Forwarded:
        """Forward a submit; raise `ServerUnavailable` if it is not known what became of it."""
        if "traceparent" in headers or len(json.dumps(body)) > MAX_BODY_BYTES:
            return await self._upstream.submit(body, headers)
        return await self._batcher.run(headers["Authorization"], (body, headers))

    async def _forward(self, orders: Sequence[_Order]) -> list[Forwarded]:
        if len(orders) == 1:
            return [await self._upstream.submit(*orders[0])]
        forwarded = await self._upstream.submit_batch([body for body, _ in orders], orders[0][1])
        documents = forwarded.document
        if forwarded.status in _ALONE:
            documents = [None] * len(orders)
        elif forwarded.status != HTTPStatus.ACCEPTED or not _is_answer(documents, len(orders)):
            return [forwarded] * len(orders)
        return await asyncio.gather(*map(partial(self._answer, forwarded), orders, documents))

    async def _answer(self, forwarded: Forwarded, order: _Order, document: Any) -> Forwarded:
        if isinstance(document, dict) and document.get("outcome") in ACCEPTED:
            return forwarded._replace(document=document)
        return await self._upstream.submit(*order)


def _is_answer(documents: Any, count: int) -> bool:
    return isinstance(documents, list) and len(documents) == count

"""What workers publish about their handlers, so that others can validate workflows without the code."""

from __future__ import annotations

from typing import NamedTuple


class HandlerDefinition(NamedTuple):
    """A version of a handler as it is published.

    `document` is JSON, made by `authoring.handler_definitions`.
    """

    name: str
    version: str
    content_hash: str
    document: str

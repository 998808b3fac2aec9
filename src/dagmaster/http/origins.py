"""Whether a browser sends a request for a page of this server, or for that of another site."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_own_fetch(headers: Mapping[str, str]) -> bool:
    """Return whether a request comes from a page of this server, from the address bar, or from a program."""
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def is_own_origin(headers: Mapping[str, str]) -> bool:
    """Return whether `Origin`, if there is one, is this server. Programs send none."""
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()

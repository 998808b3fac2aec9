"""Which addresses callbacks of this installation may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.ports.callback_urls import parse_callback_url

if TYPE_CHECKING:
    from dagmaster.application.context import Application


def check_callback_url(app: Application, url: str | None) -> None:
    """Raise `CallbackUrlInvalid` about an address that callbacks may not have; None: there are none."""
    if url is not None:
        parse_callback_url(url, allows_loopback=app.callback_loopback)

"""What is drawn on a terminal, as plain text."""

from __future__ import annotations

from typing import Any

from rich.console import Group

from dagmaster.sdk.terminal import open_console


def drawn(*parts: Any, width: int = 80) -> str:
    """Return the drawn text without colours."""
    console = open_console(width=width)
    console.no_color = True
    with console.capture() as capture:
        console.print(Group(*parts))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())

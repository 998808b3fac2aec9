"""What is drawn on a terminal, as plain text."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group


def drawn(*parts: Any, width: int = 80) -> str:
    """Return the drawn text without colours."""
    console = Console(width=width, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(Group(*parts))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())

"""How a status looks: a word, an icon and one of seven tones.

`static/statuses.json` is the table, for scripts, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Final


@dataclass(frozen=True, slots=True)
class StatusLook:
    """The look of a status."""

    word: str
    icon: str
    tone: str


_LOOKS: Final = {
    name: StatusLook(**look)
    for name, look in json.loads(
        files("dagmaster.ui").joinpath("static", "statuses.json").read_text(encoding="utf-8")
    ).items()
}


def status_look(status: str) -> StatusLook:
    """Return the look of a status; one of a newer version has no tone."""
    return _LOOKS.get(str(status)) or StatusLook(str(status).lower(), "circle", "pending")

"""What a change led to, shown on the next page: kept in a cookie of the browser for that time."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from dagmaster.application.views import CommandResult

COOKIE: Final = "dagmaster_notice"
SECONDS: Final = 30
MAX_TEXT: Final = 1_000
TONES: Final = ("ok", "failed", "warning")


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence, and whether it is good news (`ok`), bad (`failed`), or a warning."""

    text: str
    tone: str = "ok"


def command_notice(result: CommandResult) -> Notice:
    text = f"{result.sentence[:1].upper()}{result.sentence[1:]}."
    return Notice(text, "ok" if result.accepted else "failed")


def leave_notice(response: Response, notice: Notice) -> None:
    """Let the next page show a notice."""
    document = json.dumps(asdict(Notice(notice.text[:MAX_TEXT], notice.tone)))
    value = base64.urlsafe_b64encode(document.encode()).decode()
    response.set_cookie(COOKIE, value, max_age=SECONDS, httponly=True, samesite="strict", path="/ui")


def take_notice(request: Request) -> Notice | None:
    try:
        document = json.loads(base64.urlsafe_b64decode(request.cookies[COOKIE]))
        text, tone = document["text"], document["tone"]
    except (KeyError, TypeError, ValueError, binascii.Error):
        return None
    return Notice(text, tone) if isinstance(text, str) and tone in TONES else None


def clear_notice(response: Response) -> None:
    response.delete_cookie(COOKIE, path="/ui", httponly=True, samesite="strict")

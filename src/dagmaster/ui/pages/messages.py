"""Pages that say what happened and what to do next: not found, forbidden, invalid, unavailable, failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.errors import Category
from dagmaster.ui.pages.addresses import join_query

if TYPE_CHECKING:
    from dagmaster.errors import DagmasterError

_HEADINGS: Final = {
    Category.NOT_FOUND: ("Not found", "search", "It may have been removed, or the address has a typo."),
    Category.FORBIDDEN: (
        "Not allowed",
        "lock",
        "Log in with a key that has more scopes, or ask for one.",
    ),
    Category.UNAVAILABLE: ("Not available now", "cloud-off", "This page tries again by itself."),
    Category.INVALID: ("That did not work", "alert", "Correct it and try again."),
    Category.CONFLICT: ("That is not possible now", "alert", "The state may have changed: look at it again."),
    Category.UNAUTHENTICATED: ("Log in", "lock", "Your key is no longer accepted."),
    Category.INTERNAL: (
        "Something failed",
        "alert",
        "This is a mistake in dagmaster. The log of the server has the reason.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """One sentence, and what to do."""

    title: str
    icon: str
    status: int
    sentence: str
    advice: str
    request_id: str
    problems: tuple[str, ...] = ()
    retries: bool = False
    """Whether the page loads itself again after some seconds."""
    asks_login: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPage:
    """A page that goes on to another by itself: the browser asks for that one from our own origin."""

    target: str
    label: str = "Continue to dagmaster"
    title: str = "dagmaster"


def error_page(error: DagmasterError, status: int, request_id: str) -> MessagePage:
    heading, icon, advice = _HEADINGS[error.category]
    document = error.to_dict()
    return MessagePage(
        title=heading,
        icon=icon,
        status=status,
        sentence=sentence_of(document["message"]),
        advice=advice,
        request_id=request_id if error.category is Category.INTERNAL else "",
        problems=tuple(_problem(problem) for problem in document.get("problems", ())),
        retries=error.category is Category.UNAVAILABLE,
        asks_login=error.category in (Category.FORBIDDEN, Category.UNAUTHENTICATED),
    )


def unexpected_page(request_id: str) -> MessagePage:
    heading, icon, advice = _HEADINGS[Category.INTERNAL]
    return MessagePage(
        title=heading,
        icon=icon,
        status=500,
        sentence="The server failed to make this page.",
        advice=advice,
        request_id=request_id,
    )


def offline_page() -> MessagePage:
    """Return the page that a browser keeps for when the server cannot be reached."""
    return MessagePage(
        title="The server cannot be reached",
        icon="cloud-off",
        status=200,
        sentence="Jobs continue without it: orchestrators and workers do not need this page.",
        advice="As soon as the server is back, the page that you opened is shown.",
        request_id="",
    )


def cross_site_page(path: str, query: str) -> ForwardPage:
    return ForwardPage(target=join_query(path, query))


def sentence_of(text: str) -> str:
    """Return a sentence with a capital letter and a full stop, without the backticks of a terminal."""
    text = text.strip().replace("`", "")
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _problem(problem: dict[str, str]) -> str:
    return f"{problem['path']}: {problem['message']}" if problem["path"] else problem["message"]

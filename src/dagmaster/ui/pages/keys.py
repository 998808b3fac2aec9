"""API keys: who may do what, a new one shown once, and what replaces or ends one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dagmaster.ports.api_keys import Scope
from dagmaster.text_format import format_count
from dagmaster.ui.pages.times import Moment, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import ApiKeyView, NewApiKeyView, Page

PATH: Final = "/ui/keys"
MEANINGS: Final = {
    Scope.READ: "see jobs, workflows and the fleet",
    Scope.SUBMIT: "submit jobs",
    Scope.OPERATE: "cancel, resume, retry, approve, signal",
    Scope.WORK: "claim and report tasks, as a worker",
    Scope.ADMIN: "all of this but work; publish workflows, manage keys",
}
DAYS: Final = (
    ("", "never"),
    ("1", "after a day"),
    ("30", "after 30 days"),
    ("90", "after 90 days"),
    ("365", "after a year"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """A key of the list. `state`: valid, expired or revoked; `is_own`: the viewer's own."""

    key_id: str
    name: str
    scopes: tuple[str, ...]
    state: str
    icon: str
    tone: str
    is_valid: bool
    is_own: bool
    created: Moment | None
    created_by: str
    expires: Moment | None
    ended: Moment | None
    used: Moment | None


@dataclass(frozen=True, slots=True)
class ScopeChoice:
    """A scope to choose."""

    value: str
    meaning: str
    is_chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """What was typed for a new key."""

    name: str = ""
    scopes: Sequence[str] = (Scope.READ.value,)
    days: str = "90"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key that was just made: the only time that its text is shown."""

    key: str = field(repr=False)
    name: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysPage:
    """The list, the form for a new key, and the key that was just made."""

    rows: tuple[KeyRow, ...]
    entry: KeyEntry
    choices: tuple[ScopeChoice, ...]
    days: tuple[tuple[str, str], ...]
    problem: str
    made: NewKey | None
    summary: str
    first: str
    next: str
    title: str = "Keys"


def keys_page(
    page: Page[ApiKeyView],
    *,
    own_id: str | None,
    now: float,
    cursor: str | None,
    entry: KeyEntry | None = None,
    problem: str = "",
    made: NewKey | None = None,
) -> KeysPage:
    entry = entry or KeyEntry()
    return KeysPage(
        rows=tuple(_row(view, own_id, now) for view in page.items),
        entry=entry,
        choices=tuple(
            ScopeChoice(scope.value, MEANINGS[scope], scope.value in entry.scopes) for scope in MEANINGS
        ),
        days=DAYS,
        problem=problem,
        made=made,
        summary=f"{format_count(len(page.items), 'key')} on this page",
        first="" if cursor is None else PATH,
        next="" if page.next_cursor is None else f"{PATH}?cursor={page.next_cursor}",
    )


def new_key(view: NewApiKeyView, *, replaced: str = "", hours: float = 0.0) -> NewKey:
    """Return a key that was just made, and what happens to the one that it replaces."""
    sentence = f"It may: {', '.join(view.scopes)}."
    if replaced:
        until = f"for {hours:g} more hours" if hours else "no longer"
        sentence = f"It replaces {replaced}, which works {until}."
    return NewKey(key=view.key, name=view.name, sentence=sentence)


def _row(view: ApiKeyView, own_id: str | None, now: float) -> KeyRow:
    state, icon, tone = "valid", "check", "ok"
    if view.revoked_at is not None:
        state, icon, tone = "revoked", "slash", "skipped"
    elif view.expires_at is not None and view.expires_at <= now:
        state, icon, tone = "expired", "clock", "warning"
    return KeyRow(
        key_id=view.key_id,
        name=view.name,
        scopes=view.scopes,
        state=state,
        icon=icon,
        tone=tone,
        is_valid=state == "valid",
        is_own=view.key_id == own_id,
        created=moment(view.created_at, now),
        created_by=view.created_by,
        expires=moment(view.expires_at, now),
        ended=moment(view.revoked_at, now),
        used=moment(view.last_used_at, now),
    )

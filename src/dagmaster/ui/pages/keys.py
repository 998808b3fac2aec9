"""API keys: who may do what, a new one shown once, and what replaces or ends one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dagmaster.ports.api_keys import Scope
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.ui.pages.list_pages import ListPage, ListQuery
from dagmaster.ui.pages.times import Moment, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import ApiKeyView, BrowserSessionView, NewApiKeyView, Page

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

    record: ApiKeyView
    state: str
    icon: str
    tone: str
    is_own: bool
    created: Moment | None
    expires: Moment | None
    ended: Moment | None
    used: Moment | None

    @property
    def is_valid(self) -> bool:
        return self.state == "valid"

    @property
    def narrowed(self) -> str:
        """Return what the key is narrowed to, in words; empty: to nothing."""
        key = self.record
        names = (("queue", key.queues), ("handler", key.handlers), ("workflow", key.workflows))
        words = [f"{noun} {name}" for noun, chosen in names for name in chosen]
        kinds = {"own jobs": key.is_own, "sandbox: nothing runs": key.is_sandbox}
        return ", ".join([*words, *(kind for kind, applies in kinds.items() if applies)])


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session of a browser."""

    record: BrowserSessionView
    since: Moment | None
    until: Moment | None


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
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key that was just made: the only time that its text is shown."""

    key: str = field(repr=False)
    name: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysQuery(ListQuery):
    """The keys have no filters."""

    address = PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysPage(ListPage[KeysQuery, KeyRow]):
    """The list, the form for a new key and its `problem`, and the key that was just made."""

    noun = "key"
    entry: KeyEntry
    choices: tuple[ScopeChoice, ...]
    days: tuple[tuple[str, str], ...]
    made: NewKey | None
    sessions: tuple[SessionRow, ...] = ()
    tenants: tuple[str, ...] = ()
    """The tenants for which the viewer may make keys, if there are several."""


def keys_page(
    page: Page[ApiKeyView],
    *,
    sessions: Sequence[BrowserSessionView] = (),
    own_id: str | None,
    now: float,
    cursor: str | None,
    entry: KeyEntry | None = None,
    problem: str = "",
    made: NewKey | None = None,
    tenants: Sequence[str] = (),
) -> KeysPage:
    entry = entry or KeyEntry()
    return KeysPage(
        query=KeysQuery(),
        rows=tuple(_row(key, own_id, now) for key in page.items),
        cursor=cursor,
        next_cursor=page.next_cursor,
        entry=entry,
        choices=tuple(
            ScopeChoice(scope.value, MEANINGS[scope], scope.value in entry.scopes) for scope in MEANINGS
        ),
        days=DAYS,
        problem=problem,
        made=made,
        tenants=tuple(tenants) if len(tenants) > 1 else (),
        sessions=tuple(
            SessionRow(
                record=session, since=moment(session.created_at, now), until=moment(session.expires_at, now)
            )
            for session in sessions
        ),
    )


def new_key(view: NewApiKeyView, *, replaced: str = "", hours: float = 0.0) -> NewKey:
    """Return a key that was just made, and what happens to the one that it replaces."""
    sentence = f"It may: {', '.join(view.scopes)}."
    if replaced:
        until = f"for {hours:g} more hours" if hours else "no longer"
        sentence = f"It replaces {replaced}, which works {until}."
    return NewKey(key=view.key, name=view.name, sentence=sentence)


def _row(key: ApiKeyView, own_id: str | None, now: float) -> KeyRow:
    state, icon, tone = "valid", "check", "ok"
    if key.revoked_at is not None:
        state, icon, tone = "revoked", "slash", "skipped"
    elif key.expires_at is not None and key.expires_at <= now:
        state, icon, tone = "expired", "clock", "warning"
    return KeyRow(
        record=key,
        state=state,
        icon=icon,
        tone=tone,
        is_own=key.key_id == own_id,
        created=moment(key.created_at, now),
        expires=moment(key.expires_at, now),
        ended=moment(key.revoked_at, now),
        used=moment(key.last_used_at, now),
    )

"""What the web page offers and how it calls it, by mode: navigation, features and terms, one table each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from dagmaster.application.api_keys import allows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dagmaster.ports.api_keys import Scope


class Mode(StrEnum):
    """Where the page is served."""

    DEV = "dev"
    """By `dagmaster dev`, to the person who runs it."""
    SERVER = "server"


class Feature(StrEnum):
    """What a page may have in some modes only."""

    LOCAL_COMMANDS = "local_commands"
    """Commands to type on this machine: the services run here."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the mode is called, and what that means."""

    mode: str
    meaning: str


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """A page in the sidebar. `keys`: the shortcut that goes there. It is shown where its route is served."""

    path: str
    label: str
    icon: str
    section: str = ""
    keys: str = ""


FEATURES: Final[Mapping[Mode, frozenset[Feature]]] = {
    Mode.DEV: frozenset({Feature.LOCAL_COMMANDS}),
    Mode.SERVER: frozenset(),
}
TERMS: Final[Mapping[Mode, Terms]] = {
    Mode.DEV: Terms("dev", "Everything runs on this machine; Ctrl-C in the terminal stops it"),
    Mode.SERVER: Terms("server", "A server for several people"),
}
NAVIGATION: Final = (
    NavigationItem("/ui/", "Overview", "home", keys="g h"),
    NavigationItem("/ui/jobs", "Jobs", "list", keys="g j"),
    NavigationItem("/ui/workflows", "Workflows", "graph", keys="g w"),
    NavigationItem("/ui/submit", "Submit", "play", keys="g s"),
    NavigationItem("/ui/requests", "Requests", "inbox", keys="g r"),
    NavigationItem("/ui/editor", "Editor", "edit", keys="g e"),
    NavigationItem("/ui/fleet", "Fleet", "server", "Run", keys="g f"),
    NavigationItem("/ui/queues", "Queues", "stack", "Run", keys="g q"),
    NavigationItem("/ui/nodes", "Nodes", "node", "Run", keys="g n"),
    NavigationItem("/ui/tasks", "Tasks", "task", "Run", keys="g t"),
    NavigationItem("/ui/callbacks", "Callbacks", "external", "Run", keys="g c"),
    NavigationItem("/ui/health", "Health", "pulse", "System"),
    NavigationItem("/ui/tenants", "Tenants", "stack", "System"),
    NavigationItem("/ui/keys", "Keys", "key", "System"),
    NavigationItem("/ui/audit", "Audit", "shield", "System"),
)


@dataclass(frozen=True, slots=True)
class NavigationSection:
    """Some items of the sidebar under one heading, which may be empty."""

    label: str
    items: tuple[NavigationItem, ...]


def navigation_for(
    scopes: Collection[Scope], served: Mapping[tuple[str, str], Scope | None]
) -> tuple[NavigationSection, ...]:
    """Return the sidebar of a caller: the pages that exist and that its scopes allow."""
    shown = [item for item in NAVIGATION if _is_allowed(item, scopes, served)]
    labels = dict.fromkeys(item.section for item in shown)
    return tuple(
        NavigationSection(label, tuple(item for item in shown if item.section == label)) for label in labels
    )


def _is_allowed(
    item: NavigationItem, scopes: Collection[Scope], served: Mapping[tuple[str, str], Scope | None]
) -> bool:
    route = ("GET", item.path)
    if route not in served:
        return False
    needed = served[route]
    return needed is None or allows(scopes, needed)

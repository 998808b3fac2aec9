"""What surrounds every page: title, navigation, the viewer and their rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dagmaster.ui.navigation import Feature, Mode, NavigationSection, Terms
    from dagmaster.ui.notices import Notice


class Titled(Protocol):
    """A page: a frozen dataclass with a title."""

    @property
    def title(self) -> str:
        """Return what the tab of the browser shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The shell of a page. `token`: what every form of the viewer's session contains."""

    title: str
    path: str
    user: str
    token: str
    can_operate: bool
    can_submit: bool
    can_administer: bool
    navigation: tuple[NavigationSection, ...]
    mode: Mode
    terms: Terms
    features: frozenset[Feature]
    theme: str
    version: str
    notice: Notice | None

    def is_current(self, path: str) -> bool:
        """Return whether an item of the navigation is the page, or what the page belongs to."""
        return self.path == path or (path != "/ui/" and self.path.startswith(f"{path}/"))

    def offers(self, path: str) -> bool:
        """Return whether the navigation has a page: it is served, and the viewer may see it."""
        return any(item.path == path for section in self.navigation for item in section.items)

    def has(self, feature: str) -> bool:
        return feature in self.features

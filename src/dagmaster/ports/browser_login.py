"""The login of a browser at an identity provider: it leaves for the provider and comes back with a code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedLogin:
    """Where the browser goes, and the ticket that it keeps until it is back."""

    address: str
    ticket: str = field(repr=False)
    seconds: int
    """How long the ticket is valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedLogin:
    """The token of a session, and the page that the login was for."""

    token: str = field(repr=False)
    seconds: int
    """How long the token is valid."""
    target: str


class BrowserLogin(Protocol):
    """Logs browsers in. It keeps nothing: another server may finish what this one started."""

    @property
    def provider(self) -> str:
        """Return the name of the provider, for people."""

    @property
    def public_url(self) -> str:
        """Return the address at which browsers reach this server."""

    async def start(self, target: str) -> StartedLogin:
        """Start a login that leads to a page; raise `IssuerUnavailable` if the provider cannot be reached."""

    async def finish(self, ticket: str, answer: Mapping[str, str]) -> FinishedLogin:
        """Return the session that the provider's answer leads to.

        Raise `LoginRejected`, `TokenRejected` or `ScopeMissing` if it leads to none, and `IssuerUnavailable`
        if the provider cannot be reached.
        """

    async def logout_address(self) -> str | None:
        """Return where a browser logs out of the provider; None if the provider does not offer it now."""

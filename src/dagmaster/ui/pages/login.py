"""The login."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginPage:
    """The form for a key, and the link to an identity provider. `target`: where they lead."""

    target: str
    problem: str = ""
    """What is wrong with the key."""
    provider: str = ""
    """The name of the identity provider; empty without one."""
    provider_url: str = ""
    failure: str = ""
    """Why the login at the provider led to nothing."""
    title: str = "Log in"

"""Wires who may call a server or a gateway: tokens, rate limits, hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dagmaster.errors import SettingsInvalid
from dagmaster.ports.api_keys import Scope

if TYPE_CHECKING:
    from dagmaster.adapters.oidc import OidcVerifier
    from dagmaster.http.rate_limits import RateLimiter
    from dagmaster.settings import Settings


def make_token_verifier(settings: Settings) -> OidcVerifier | None:
    """Return the check of bearer tokens; None if no issuer is set.

    Raise `SettingsInvalid` if it cannot work.
    """
    if settings.oidc_issuer is None:
        return None
    if not settings.oidc_audience:
        raise SettingsInvalid(
            "DAGMASTER_OIDC_ISSUER needs DAGMASTER_OIDC_AUDIENCE: tokens for others are not for us"
        )
    try:
        from dagmaster.adapters.oidc import OidcConfig, OidcVerifier
    except ImportError as error:
        raise SettingsInvalid(
            f"DAGMASTER_OIDC_ISSUER needs the package {error.name}: install dagmaster[oidc]"
        ) from error
    pairs = [item.split("=", 1) for item in settings.oidc_scope_map]
    return OidcVerifier(
        OidcConfig(
            issuer=settings.oidc_issuer,
            audience=settings.oidc_audience,
            name_claim=settings.oidc_name_claim,
            scopes_claim=settings.oidc_scopes_claim,
            scope_map={value: frozenset(map(Scope, names.split("+"))) for value, names in pairs},
            leeway_seconds=settings.oidc_leeway_seconds,
            tenant_claim=settings.oidc_tenant_claim,
        )
    )


def allowed_hosts(settings: Settings) -> frozenset[str]:
    """Return the hosts that requests may name, besides this machine's own."""
    public = urlsplit(settings.public_url or "").hostname
    return frozenset({*settings.allowed_hosts, *([] if public is None else [public])})


def make_rate_limiter(settings: Settings) -> RateLimiter | None:
    from dagmaster.http.rate_limits import RateLimiter

    if not settings.rate_limit:
        return None
    return RateLimiter(settings.rate_limit, settings.rate_burst or max(1, round(settings.rate_limit)))

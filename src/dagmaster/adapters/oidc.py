"""Bearer tokens of an OpenID Connect issuer: its keys, and the checks of a token.

The keys are fetched when a token needs them and kept in memory. A token of a new key causes one more fetch,
at most one in `REFETCH_SECONDS`, so that tokens with invented key ids cannot make this process flood the
issuer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import jwt

from dagmaster.adapters.oidc_issuer import IssuerClient, secure_address
from dagmaster.errors import IssuerUnavailable, TokenRejected
from dagmaster.ports.api_keys import SUBJECT_PREFIX, Caller, Namespace, Scope
from dagmaster.ports.default_settings import OIDC_LEEWAY_SECONDS, OIDC_NAME_CLAIM, OIDC_SCOPES_CLAIM
from dagmaster.ports.tenants import DEFAULT_TENANT, is_tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx

MAX_TOKEN: Final = 16_384
MAX_NAME: Final = 64
MAX_SUBJECT: Final = 255
MIN_RSA_BITS: Final = 2048
REFRESH_SECONDS: Final = 600.0
"""Keys older than this are fetched again in the background, so that a withdrawn key is not used for long."""
REFETCH_SECONDS: Final = 30.0
"""The shortest time between two fetches."""
STALE_SECONDS: Final = 86_400.0
"""How long keys are used while the issuer cannot be reached."""

# Only signatures of the issuer's private key. With HS256 the public key would be the secret (key confusion),
# and with
# `none` there is no signature.
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {
    "P-256": frozenset({"ES256"}),
    "P-384": frozenset({"ES384"}),
    "P-521": frozenset({"ES512"}),
    "Ed25519": frozenset({"EdDSA"}),
}
ALGORITHMS: Final = _RSA.union(*_CURVES.values())
_REQUIRED: Final = ("exp", "iss", "aud", "sub")
_LOGGER = logging.getLogger("dagmaster.oidc")


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcConfig:
    """An issuer, and what its claims mean here."""

    issuer: str
    audience: str
    name_claim: str = OIDC_NAME_CLAIM
    scopes_claim: str = OIDC_SCOPES_CLAIM
    scope_map: Mapping[str, frozenset[Scope]] = field(default_factory=dict)
    """What a value of the claim allows. Empty: values are the names of scopes."""
    leeway_seconds: float = OIDC_LEEWAY_SECONDS
    tenant_claim: str | None = None
    """The claim with the tenant of the caller. None: all callers are of the installation."""


@dataclass(frozen=True, slots=True)
class _SigningKey:
    key: Any
    algorithms: frozenset[str]


class OidcVerifier:
    """Checks tokens of one issuer."""

    def __init__(
        self,
        config: OidcConfig,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.issuer = IssuerClient(config.issuer, transport=transport, monotonic=monotonic)
        self._config = config
        self._monotonic = monotonic
        self._keys: dict[str | None, _SigningKey] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._refresh: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._refresh is not None:
            self._refresh.cancel()
        await self.issuer.close()

    async def find_caller(self, token: str) -> Caller:
        return self.caller_of(await self.read_claims(token))

    async def read_claims(self, token: str, audience: str | None = None) -> dict[str, Any]:
        """Return a token's claims for an audience, by default this server; raise as `find_caller` does."""
        algorithm, key_id = _read_header(token)
        key = await self._signing_key(key_id)
        if algorithm not in key.algorithms:
            raise TokenRejected(f"the token is signed with {algorithm}, its key is not for that")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                # One of `ALGORITHMS`, and one that this key is for.
                algorithms=[algorithm],
                audience=audience or self._config.audience,
                issuer=self._config.issuer,
                leeway=self._config.leeway_seconds,
                options={"require": list(_REQUIRED)},
            )
        except jwt.PyJWTError as error:
            raise TokenRejected(f"the token is rejected: {_reason(error)}") from None
        return claims

    def caller_of(self, claims: Mapping[str, Any]) -> Caller:
        """Return the caller that claims name; raise `TokenRejected` if they name none."""
        name, subject = claims.get(self._config.name_claim), claims["sub"]
        if not (isinstance(name, str) and 1 <= len(name) <= MAX_NAME and name.isprintable()):
            raise TokenRejected(
                f"the token has no name: its claim {self._config.name_claim!r} is not a text of 1 to"
                f" {MAX_NAME} printable characters"
            )
        if not 1 <= len(subject) <= MAX_SUBJECT:
            raise TokenRejected(
                f"the claim 'sub' of the token has more than {MAX_SUBJECT} characters, or none"
            )
        scopes = self._scopes(claims.get(self._config.scopes_claim))
        return Caller(
            key_id=f"{SUBJECT_PREFIX}{subject}",
            name=name,
            scopes=scopes,
            namespace=Namespace.OIDC,
            expires_at=claims["exp"],
            tenant=self._tenant(claims),
        )

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        claim = self._config.tenant_claim
        if claim is None:
            return DEFAULT_TENANT
        tenant = claims.get(claim)
        if not (isinstance(tenant, str) and is_tenant(tenant)):
            raise TokenRejected(f"the token has no tenant: its claim {claim!r} is not the name of one")
        return tenant

    def _scopes(self, value: object) -> frozenset[Scope]:
        values = value.split() if isinstance(value, str) else value
        if not isinstance(values, list):
            values = []
        scope_map = self._config.scope_map or {scope.value: frozenset({scope}) for scope in Scope}
        return frozenset().union(*(scope_map.get(item, ()) for item in values if isinstance(item, str)))

    # ── The keys of the issuer ──

    async def _signing_key(self, key_id: str | None) -> _SigningKey:
        age = self._monotonic() - self._fetched_at
        if age > STALE_SECONDS:
            self._keys = {}
        if key_id not in self._keys:
            await self._fetch_once()
        elif (
            age > REFRESH_SECONDS and self._is_fetch_due() and (self._refresh is None or self._refresh.done())
        ):
            self._refresh = asyncio.create_task(self._refresh_keys())
        key = self._keys.get(key_id)
        if key is None:
            raise TokenRejected("the token is signed with a key that its issuer does not publish")
        return key

    async def _refresh_keys(self) -> None:
        try:
            await self._fetch_once()
        except IssuerUnavailable as error:
            _LOGGER.warning(
                "%s; the keys of %.0f s ago are used", error, self._monotonic() - self._fetched_at
            )

    def _is_fetch_due(self) -> bool:
        return self._monotonic() - self._tried_at >= REFETCH_SECONDS

    async def _fetch_once(self) -> None:
        """Fetch the keys unless another request just did; raise `IssuerUnavailable` if that failed."""
        async with self._fetching:
            if self._is_fetch_due():
                self._tried_at = self._monotonic()
                self._keys = await self._fetch_keys()
                self._fetched_at = self._monotonic()
            elif self._fetched_at < self._tried_at:
                raise IssuerUnavailable(f"the issuer {self._config.issuer} could not be reached a moment ago")

    async def _fetch_keys(self) -> dict[str | None, _SigningKey]:
        address = secure_address(await self.issuer.fetch_discovery(), "jwks_uri")
        documents = (await self.issuer.get(address)).get("keys")
        if not isinstance(documents, list):
            raise IssuerUnavailable(f"{address} has no keys")
        keys = {
            _key_id(document): key for document in documents if (key := _signing_key(document)) is not None
        }
        if len(keys) == 1:
            # A token may leave out the id of the only key.
            keys.setdefault(None, next(iter(keys.values())))
        return keys


def _read_header(token: str) -> tuple[str, str | None]:
    if len(token) > MAX_TOKEN:
        raise TokenRejected(f"a token has at most {MAX_TOKEN:,} characters")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, RecursionError):
        raise TokenRejected("the credential is neither a key of dagmaster nor a signed token") from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRejected(f"the token is not signed with one of: {', '.join(sorted(ALGORITHMS))}")
    return algorithm, key_id


def _key_id(document: Mapping[str, Any]) -> str | None:
    key_id = document.get("kid")
    return key_id if isinstance(key_id, str) else None


def _signing_key(document: object) -> _SigningKey | None:
    """Return a key of the issuer; None if it is not for signatures, or too weak."""
    if not isinstance(document, dict) or document.get("use", "sig") != "sig":
        return None
    algorithms = _RSA if document.get("kty") == "RSA" else _CURVES.get(str(document.get("crv")), frozenset())
    if "alg" in document:
        algorithms &= {document["alg"]}
    if not algorithms:
        return None
    try:
        key = jwt.PyJWK(document, algorithm=min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if document["kty"] == "RSA" and key.key_size < MIN_RSA_BITS:
        _LOGGER.warning(
            "a key of the issuer has %d bits and is not used: at least %d", key.key_size, MIN_RSA_BITS
        )
        return None
    return _SigningKey(key, algorithms)


def _reason(error: jwt.PyJWTError) -> str:
    match error:
        case jwt.ExpiredSignatureError():
            return "it has expired"
        case jwt.ImmatureSignatureError():
            return "it is not valid yet"
        case jwt.InvalidAudienceError():
            return "it is for another audience"
        case jwt.InvalidIssuerError():
            return "it is of another issuer"
        case jwt.MissingRequiredClaimError():
            return f"it has no claim {error.claim!r}"
        case jwt.InvalidSignatureError():
            return "its signature is wrong"
    return "it is not well-formed"

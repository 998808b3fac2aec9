"""The login of browsers at an OpenID Connect issuer: authorization code with PKCE, state and nonce.

Nothing is kept here between the start and the end of a login. State, nonce and code verifier are in the
ticket, a cookie that is encrypted with a key that all servers have: it binds the code to the browser that
asked for it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus

import httpx
from cryptography.fernet import Fernet, InvalidToken

from dagmaster.adapters.oidc_issuer import secure_address
from dagmaster.errors import DagmasterError, IssuerUnavailable, LoginRejected, ScopeMissing, TokenRejected
from dagmaster.ports.browser_login import FinishedLogin, StartedLogin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dagmaster.adapters.oidc import OidcVerifier

LOGIN_SECONDS: Final = 600
"""How long a person may take at the issuer."""
CALLBACK: Final = "/ui/login/callback"
AFTER_LOGOUT: Final = "/ui/login"
MAX_REASON: Final = 200
_KEY_CONTEXT: Final = "dagmaster: ticket of a login"
_LOGGER = logging.getLogger("dagmaster.oidc")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginConfig:
    """A server as a client of the issuer.

    `public_url`: where browsers reach it, without a slash at the end.
    """

    client_id: str
    public_url: str
    provider: str
    client_secret: str | None = field(default=None, repr=False)
    ticket_secret: str | None = field(default=None, repr=False)
    """What tickets are encrypted with. None: the client secret; without both, only this process can finish a
    login."""
    scopes: tuple[str, ...] = ("openid",)


@dataclass(frozen=True, slots=True)
class _Ticket:
    state: str
    nonce: str
    verifier: str
    target: str


class OidcLogin:
    """Logs browsers in at the issuer of a verifier, with tokens that the verifier accepts."""

    def __init__(
        self, config: LoginConfig, tokens: OidcVerifier, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._config = config
        self._tokens = tokens
        self._issuer = tokens.issuer
        self._clock = clock
        secret = config.ticket_secret or config.client_secret or secrets.token_urlsafe(32)
        context = f"{_KEY_CONTEXT}\n{self._issuer.url}\n{config.client_id}"
        digest = hmac.new(secret.encode(), context.encode(), hashlib.sha256).digest()
        self._cipher = Fernet(base64.urlsafe_b64encode(digest))

    @property
    def provider(self) -> str:
        return self._config.provider

    @property
    def public_url(self) -> str:
        return self._config.public_url

    async def start(self, target: str) -> StartedLogin:
        endpoint = secure_address(await self._issuer.discovery(), "authorization_endpoint")
        ticket = _Ticket(_random_text(), _random_text(), _random_text(), target)
        challenge = hashlib.sha256(ticket.verifier.encode()).digest()
        address = httpx.URL(endpoint).copy_merge_params(
            {
                "response_type": "code",
                "client_id": self._config.client_id,
                "redirect_uri": self._redirect_uri,
                "scope": " ".join(self._config.scopes),
                "state": ticket.state,
                "nonce": ticket.nonce,
                "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
                "code_challenge_method": "S256",
            }
        )
        return StartedLogin(address=str(address), ticket=self._seal(ticket), seconds=LOGIN_SECONDS)

    async def finish(self, ticket: str, answer: Mapping[str, str]) -> FinishedLogin:
        opened = self._open(ticket)
        if opened is None:
            raise LoginRejected("this browser has no login under way here, or it took too long: log in again")
        # The first check: before it, the answer may be that of any site.
        if not _is_same(opened.state, answer.get("state", "")):
            raise LoginRejected("the answer belongs to another login than that of this browser: log in again")
        await self._check_answer(answer)
        tokens = await self._exchange(answer["code"], opened.verifier)
        subject = await self._check_id_token(tokens.get("id_token"), opened.nonce)
        token, seconds = await self._choose_token(tokens, subject)
        return FinishedLogin(token=token, seconds=seconds, target=opened.target)

    async def logout_address(self) -> str | None:
        try:
            endpoint = secure_address(await self._issuer.discovery(), "end_session_endpoint")
        except IssuerUnavailable:
            return None
        # Without `id_token_hint`: the token is still valid here, and addresses are logged and kept in
        # histories.
        query = {
            "client_id": self._config.client_id,
            "post_logout_redirect_uri": f"{self.public_url}{AFTER_LOGOUT}",
        }
        return str(httpx.URL(endpoint).copy_merge_params(query))

    # ── The ticket ──

    def _seal(self, ticket: _Ticket) -> str:
        content = json.dumps([ticket.state, ticket.nonce, ticket.verifier, ticket.target])
        return self._cipher.encrypt_at_time(content.encode(), int(self._clock())).decode()

    def _open(self, ticket: str) -> _Ticket | None:
        try:
            content = self._cipher.decrypt_at_time(ticket.encode(), LOGIN_SECONDS, int(self._clock()))
        except InvalidToken:
            return None
        return _Ticket(*json.loads(content))

    # ── What the issuer answers ──

    @property
    def _redirect_uri(self) -> str:
        return f"{self.public_url}{CALLBACK}"

    async def _check_answer(self, answer: Mapping[str, str]) -> None:
        """Raise `LoginRejected` unless this issuer answered, with a code."""
        discovery = await self._issuer.discovery()
        is_named = discovery.get("authorization_response_iss_parameter_supported") is True
        # RFC 9207: the code of another issuer is not sent to this one.
        if answer.get("iss", None if is_named else self._issuer.url) != self._issuer.url:
            raise LoginRejected(f"the answer is not of {self.provider}: log in again")
        if "error" in answer:
            raise LoginRejected(f"{self.provider} refused the login: {_reason(answer)}")
        if not answer.get("code"):
            raise LoginRejected(f"the answer of {self.provider} has no code: log in again")

    async def _exchange(self, code: str, verifier: str) -> dict[str, Any]:
        discovery = await self._issuer.discovery()
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        headers = {}
        client_id, secret = self._config.client_id, self._config.client_secret
        # Basic is the default of OpenID Connect Discovery; RFC 6749 2.3.1 encodes both parts as a form does.
        if secret is None:
            fields["client_id"] = client_id
        elif "client_secret_basic" in discovery.get(
            "token_endpoint_auth_methods_supported", ["client_secret_basic"]
        ):
            pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            fields |= {"client_id": client_id, "client_secret": secret}
        status, answer = await self._issuer.post(secure_address(discovery, "token_endpoint"), fields, headers)
        if status == httpx.codes.OK:
            return answer
        _LOGGER.warning("%s gave no token for a code: %s", self._issuer.url, _reason(answer))
        if answer.get("error") == "invalid_grant":
            raise LoginRejected(
                "the code of this login was used already, has expired, or is of another: log in again"
            )
        raise LoginRejected(
            f"{self.provider} gave no token ({_reason(answer)}): an administrator checks the client id and"
            " secret"
        )

    async def _check_id_token(self, token: object, nonce: str) -> str:
        """Return the subject of the id token; raise `TokenRejected` unless it is of this login."""
        if not isinstance(token, str):
            raise TokenRejected(
                f"{self.provider} sent no id token: the scopes of the login must contain openid"
            )
        client_id = self._config.client_id
        claims = await self._tokens.read_claims(token, client_id)
        audience = claims["aud"]
        needs_party = isinstance(audience, list) and len(audience) > 1
        if claims.get("azp", None if needs_party else client_id) != client_id:
            raise TokenRejected("the id token was issued to another client")
        if not _is_same(nonce, claims.get("nonce")):
            raise TokenRejected("the id token is of another login than that of this browser: log in again")
        subject: str = claims["sub"]
        return subject

    async def _choose_token(self, tokens: Mapping[str, Any], subject: str) -> tuple[str, int]:
        """Return the token that is accepted here and how long it is valid: access token, else id token."""
        problem: DagmasterError | None = None
        for name in ("access_token", "id_token"):
            token = tokens.get(name)
            # An access token may be a text that only the issuer understands.
            if not isinstance(token, str) or token.count(".") != 2:  # noqa: PLR2004 - of three parts
                continue
            try:
                return token, await self._check_session(token, subject)
            except (TokenRejected, ScopeMissing) as error:
                # A token for this audience that lacks scopes says more than one for another audience.
                problem = error if problem is None or isinstance(error, ScopeMissing) else problem
        raise problem or TokenRejected(f"{self.provider} sent no signed token")

    async def _check_session(self, token: str, subject: str) -> int:
        """Return how long a token is valid; raise why it cannot be that of a session."""
        claims = await self._tokens.read_claims(token)
        caller = self._tokens.caller_of(claims)
        if claims["sub"] != subject:
            raise TokenRejected("the access token is of another user than the id token")
        if not caller.scopes:
            raise ScopeMissing(
                f"the token of {self.provider} allows {caller.name} nothing here: an administrator grants"
                " scopes"
            )
        return max(1, int(claims["exp"] - self._clock()))


def _random_text() -> str:
    return secrets.token_urlsafe(32)


def _is_same(expected: str, value: object) -> bool:
    return isinstance(value, str) and hmac.compare_digest(expected.encode(), value.encode(errors="replace"))


def _reason(answer: Mapping[str, Any]) -> str:
    """Return what an issuer says about an error, as one short line."""
    texts = [text for name in ("error", "error_description") if isinstance(text := answer.get(name), str)]
    line = ": ".join(texts)
    return "".join(character for character in line if character.isprintable())[:MAX_REASON] or "no reason"

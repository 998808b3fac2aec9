"""The settings of who may call the HTTP API, and how often."""

from __future__ import annotations

import re
from typing import Final

from pydantic import BaseModel, Field, SecretStr, field_validator

from dagmaster.ports.api_keys import Scope
from dagmaster.ports.default_settings import (
    HANDLERS_PER_KEY,
    OIDC_LEEWAY_SECONDS,
    OIDC_NAME_CLAIM,
    OIDC_SCOPES_CLAIM,
    QUEUES_PER_KEY,
    WORKERS_PER_KEY,
)
from dagmaster.settings.name_lists import Names

_ISSUER: Final = re.compile(
    r"(https://[^\s/?#@]+|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?)(/[^\s?#@]*)?"
)
_PUBLIC_URL: Final = re.compile(r"(https://[^\s/?#@]+|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?)/?")
MIN_SECRET: Final = 32
_MAPPING: Final = re.compile(rf"[^=]+=({'|'.join(Scope)})(\+({'|'.join(Scope)}))*")


class AccessSettings(BaseModel):
    """Callers of the HTTP API: their rate limit, and the tokens that are accepted besides keys."""

    admin_key: SecretStr | None = Field(
        default=None,
        description="A key of the HTTP API with the scope admin that needs no database: to migrate a new"
        " one, and to create the first keys. At least 32 characters.",
    )
    rate_limit: float = Field(
        default=1000.0,
        ge=0,
        le=1_000_000,
        description="Requests a second that a server accepts from one key or token; more are answered with"
        " 429. Each server counts for itself. 0: no limit.",
    )
    rate_burst: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Requests that one key or token may send at once. Default: as many as in a second.",
    )
    streams_per_key: int = Field(
        default=100,
        ge=0,
        le=1_000_000,
        description="Live streams (of jobs, lists and logs, and WebSockets) and requests that wait for a job"
        " that one key or token may have on a server at once; more are answered with 429. 0: no limit.",
    )
    access_log: bool = Field(
        default=False,
        description="Log each request that a server has answered, at the level info: method, path without"
        " query, status, seconds, caller, request id.",
    )
    workers_per_key: int = Field(
        default=WORKERS_PER_KEY,
        ge=0,
        le=1_000_000,
        description="Live workers that one key or token with the scope work may have registered over HTTP;"
        " more are answered with 403. 0: no limit.",
    )
    queues_per_key: int = Field(
        default=QUEUES_PER_KEY,
        ge=0,
        le=1_000_000,
        description="Queues that all live workers of one key or token may name together. 0: no limit.",
    )
    handlers_per_key: int = Field(
        default=HANDLERS_PER_KEY,
        ge=0,
        le=1_000_000,
        description="Handlers whose contract one key or token may have published or proposed. 0: no limit.",
    )
    allowed_hosts: Names = Field(
        default=(),
        description="Names by which clients reach the server, as dagmaster.example.com,10.0.0.7; * for any."
        " They are allowed besides localhost, the address on which a request arrives, and the host of the"
        " public URL. Requests that name another host are answered with 421.",
    )
    failed_logins: int = Field(
        default=60,
        ge=0,
        le=1_000_000,
        description="Keys and tokens that are not valid, which one address may send to a server in a minute;"
        " more are answered with 429. 0: no limit.",
    )
    oidc_issuer: str | None = Field(
        default=None,
        description="The issuer of bearer tokens (OpenID Connect), such as https://login.example.com/tenant."
        " Default: only keys are accepted.",
    )
    oidc_audience: str | None = Field(
        default=None, description="The audience that a token must be for. Required with an issuer."
    )
    oidc_name_claim: str = Field(
        default=OIDC_NAME_CLAIM,
        description="The claim with the name of the caller, at most 64 characters. Choose one that users"
        " cannot change: it is the submitter of jobs and the sender of commands.",
    )
    oidc_scopes_claim: str = Field(
        default=OIDC_SCOPES_CLAIM,
        description="The claim with what the caller may do: a text with spaces, or a list.",
    )
    oidc_scope_map: Names = Field(
        default=(),
        description="What values of that claim allow, as team-a=submit+read,ops=admin. Default: the values"
        " are the names of scopes.",
    )
    oidc_tenant_claim: str | None = Field(
        default=None,
        min_length=1,
        description="The claim with the tenant of the caller. A token without it is rejected. Default:"
        " callers with tokens belong to the installation, the tenant `default`.",
    )
    oidc_leeway_seconds: float = Field(
        default=OIDC_LEEWAY_SECONDS,
        ge=0,
        le=300,
        description="How far the clocks of the issuer and of a server may differ.",
    )
    public_url: str | None = Field(
        default=None,
        description="The address at which browsers reach the server, such as https://dagmaster.example.com."
        " Required for the login with an issuer, which leads back to it.",
    )
    oidc_client_id: str | None = Field(
        default=None,
        description="This server as a client of the issuer: the web page offers a login there. Its redirect"
        " URI is /ui/login/callback below the public URL. Default: the web page accepts keys and tokens"
        " only.",
    )
    oidc_client_secret: SecretStr | None = Field(
        default=None, description="The secret of that client. Default: a public client, which has none."
    )
    oidc_login_scopes: Names = Field(
        default=("openid",), description="The scopes that a login asks the issuer for; openid is one of them."
    )
    oidc_issuer_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="The name of the issuer on the login page. Default: its host.",
    )
    oidc_ticket_secret: SecretStr | None = Field(
        default=None,
        description="What encrypts the cookie of a login that is under way, the same for all servers; at"
        " least 32 characters. Default: the secret of the client. Without both, a login ends on the server"
        " where it began.",
    )

    @field_validator("admin_key", "oidc_ticket_secret")
    @classmethod
    def _check_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value) < MIN_SECRET:
            raise ValueError(f"must have at least {MIN_SECRET} characters")
        return value

    @field_validator("oidc_issuer")
    @classmethod
    def _check_issuer(cls, value: str | None) -> str | None:
        if value is not None and not _ISSUER.fullmatch(value):
            raise ValueError("must be an https URL without a query (http only on this machine)")
        return value

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not _PUBLIC_URL.fullmatch(value):
            raise ValueError("must be an https URL without a path (http only on this machine)")
        return value.rstrip("/")

    @field_validator("oidc_login_scopes")
    @classmethod
    def _check_login_scopes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in value or any(len(scope.split()) != 1 for scope in value):
            raise ValueError("must be SCOPE,SCOPE with openid as one of them")
        return value

    @field_validator("oidc_scope_map")
    @classmethod
    def _check_scope_map(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not _MAPPING.fullmatch(item) for item in value):
            raise ValueError(f"must be VALUE=SCOPE+SCOPE,VALUE=SCOPE; the scopes are: {', '.join(Scope)}")
        return value

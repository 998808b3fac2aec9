"""Tokens of an issuer on loopback: what is accepted, and every way to forge one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import jwt
import pytest

from dagmaster.adapters import oidc
from dagmaster.adapters.oidc import OidcConfig, OidcVerifier
from dagmaster.adapters.oidc_issuer import MAX_DOCUMENT_BYTES
from dagmaster.bootstrap.access import make_token_verifier
from dagmaster.errors import IssuerUnavailable, SettingsInvalid, TokenRejected
from dagmaster.ports.api_keys import Scope
from dagmaster.settings import Settings, read_settings
from tests.unit.http.api_client import opened_api
from tests.unit.http.local_issuer import (
    AUDIENCE,
    DISCOVERY,
    ec_key,
    ed_key,
    public_jwk,
    rsa_key,
    served_issuer,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.unit.http.local_issuer import LocalIssuer

SHARED_SECRET = "a shared secret of more than thirty-two bytes"


class Hand:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    with served_issuer() as issuer:
        yield issuer


@contextlib.asynccontextmanager
async def verifier_of(
    issuer: LocalIssuer, hand: Hand | None = None, **config: Any
) -> AsyncIterator[OidcVerifier]:
    verifier = OidcVerifier(
        OidcConfig(issuer=issuer.url, audience=AUDIENCE, **config), monotonic=hand or Hand()
    )
    try:
        yield verifier
    finally:
        await verifier.close()


def find_caller(issuer: LocalIssuer, token: str, **config: Any) -> Any:
    async def main() -> Any:
        async with verifier_of(issuer, **config) as verifier:
            return await verifier.find_caller(token)

    return asyncio.run(main())


# ── Who the caller is ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_token_names_the_caller_and_its_scopes(issuer):
    caller = find_caller(issuer, issuer.token(scope="openid submit read unknown"))
    assert (caller.key_id, caller.name) == ("oidc:user-1", "user-1")
    assert caller.scopes == {Scope.SUBMIT, Scope.READ}


def test_claims_are_read_as_the_settings_map_them(issuer, monkeypatch):
    monkeypatch.setenv("DAGMASTER_OIDC_ISSUER", issuer.url)
    monkeypatch.setenv("DAGMASTER_OIDC_AUDIENCE", AUDIENCE)
    monkeypatch.setenv("DAGMASTER_OIDC_NAME_CLAIM", "email")
    monkeypatch.setenv("DAGMASTER_OIDC_SCOPES_CLAIM", "groups")
    monkeypatch.setenv("DAGMASTER_OIDC_SCOPE_MAP", "team a=submit+read, ops=admin")
    token = issuer.token(email="ada@example.com", groups=["ops", "team a", "read", 7], scope="work")

    async def main() -> None:
        verifier = make_token_verifier(Settings())
        assert verifier is not None
        caller = await verifier.find_caller(token)
        await verifier.close()
        assert caller.name == "ada@example.com"
        assert caller.scopes == {Scope.SUBMIT, Scope.READ, Scope.ADMIN}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DAGMASTER_OIDC_ISSUER", "http://login.example.com"),
        ("DAGMASTER_OIDC_ISSUER", "http://127.0.0.1.example.com"),
        ("DAGMASTER_OIDC_ISSUER", "https://user@login.example.com"),
        ("DAGMASTER_OIDC_SCOPE_MAP", "ops=root"),
        ("DAGMASTER_OIDC_SCOPE_MAP", "ops"),
        ("DAGMASTER_OIDC_LEEWAY_SECONDS", "3600"),
    ],
)
def test_settings_that_would_weaken_the_check_are_rejected(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    assert list(read_settings().problems) == [variable.removeprefix("DAGMASTER_").lower()]


def test_an_issuer_without_an_audience_is_rejected():
    with pytest.raises(SettingsInvalid, match="DAGMASTER_OIDC_AUDIENCE"):
        make_token_verifier(Settings(oidc_issuer="https://login.example.com"))
    assert make_token_verifier(Settings()) is None


@pytest.mark.parametrize(
    ("make_key", "algorithm"),
    [(rsa_key, "PS256"), (ec_key, "ES256"), (ed_key, "EdDSA")],
    ids=["PS256", "ES256", "EdDSA"],
)
def test_other_asymmetric_keys_are_accepted(issuer, make_key: Callable[[], Any], algorithm: str):
    issuer.keys = [public_jwk(make_key(), "other")]
    token = issuer.token(key=make_key(), algorithm=algorithm, headers={"kid": "other"})
    assert find_caller(issuer, token).name == "user-1"


def test_a_token_may_leave_out_the_id_of_the_only_key_but_not_of_one_of_two(issuer):
    token = issuer.token(headers={})
    assert find_caller(issuer, token).name == "user-1"
    issuer.keys.append(public_jwk(rsa_key(1), "second"))
    with pytest.raises(TokenRejected):
        find_caller(issuer, token)


# ── Tokens that are rejected ────────────────────────────────────────────────────────────────────────────────────────


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(issuer: LocalIssuer, algorithm: Any = "none") -> str:
    payload = jwt.decode(issuer.token(), options={"verify_signature": False})
    return f"{part({'alg': algorithm, 'kid': 'first', 'typ': 'JWT'})}.{part(payload)}."


def confused(issuer: LocalIssuer) -> str:
    """Return a token signed with HS256, whose secret is the public key of the issuer."""
    import hashlib
    import hmac

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    payload = jwt.decode(issuer.token(), options={"verify_signature": False})
    text = f"{part({'alg': 'HS256', 'kid': 'first', 'typ': 'JWT'})}.{part(payload)}"
    digest = hmac.new(public, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def with_other_payload(issuer: LocalIssuer) -> str:
    header, payload, signature = issuer.token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return f"{header}.{part(claims | {'scope': 'admin'})}.{signature}"


FORGED: dict[str, Callable[[LocalIssuer], str]] = {
    "without a signature": unsigned,
    "none in other letters": lambda issuer: unsigned(issuer, "NonE"),
    "no algorithm at all": lambda issuer: unsigned(issuer, ""),
    "a list of algorithms": lambda issuer: unsigned(issuer, ["RS256"]),
    "the public key as a secret": confused,
    "a shared secret": lambda issuer: issuer.token(key=SHARED_SECRET, algorithm="HS256"),
    "another payload": with_other_payload,
    "the key of another": lambda issuer: issuer.token(key=rsa_key(1)),
    "an algorithm that the key is not for": lambda issuer: issuer.token(algorithm="RS512"),
    "a curve under the id of an RSA key": lambda issuer: issuer.token(key=ec_key(), algorithm="ES256"),
    "an unknown key id": lambda issuer: issuer.token(headers={"kid": "unknown"}),
    "a key of its own in the header": lambda issuer: issuer.token(
        key=rsa_key(1),
        headers={"kid": "own", "jwk": public_jwk(rsa_key(1), "own"), "jku": f"{issuer.url}/own"},
    ),
    "a critical extension": lambda issuer: issuer.token(headers={"kid": "first", "crit": ["x"], "x": 1}),
    "another audience": lambda issuer: issuer.token(aud="other"),
    "no audience": lambda issuer: issuer.token(aud=None),
    "another issuer": lambda issuer: issuer.token(iss="https://evil.example.com"),
    "the issuer with a slash": lambda issuer: issuer.token(iss=f"{issuer.url}/"),
    "no issuer": lambda issuer: issuer.token(iss=None),
    "expired": lambda issuer: issuer.token(exp=int(time.time()) - 31),
    "no expiry": lambda issuer: issuer.token(exp=None),
    "not valid yet": lambda issuer: issuer.token(nbf=int(time.time()) + 60),
    "issued in the future": lambda issuer: issuer.token(iat=int(time.time()) + 3_600),
    "no subject": lambda issuer: issuer.token(sub=None),
    "a subject that is too long": lambda issuer: issuer.token(sub="x" * 256),
    "a name that is too long": lambda issuer: issuer.token(sub="x" * 65),
    "a name with a line break": lambda issuer: issuer.token(sub="a\nb"),
    "too long": lambda issuer: issuer.token(more="x" * oidc.MAX_TOKEN),
    "not a token": lambda _issuer: "nonsense",
    "empty parts": lambda _issuer: "..",
    "deep JSON": lambda _issuer: f"{base64.urlsafe_b64encode(b'[' * 5_000).decode()}.e30.x",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_token_that_is_not_valid_is_rejected(issuer, name):
    with pytest.raises(TokenRejected) as rejection:
        find_caller(issuer, FORGED[name](issuer))
    assert "Error" not in str(rejection.value)


def test_a_clock_may_differ_by_the_leeway_and_no_more(issuer):
    token = issuer.token(exp=int(time.time()) - 20)
    assert find_caller(issuer, token).name == "user-1"
    with pytest.raises(TokenRejected, match="expired"):
        find_caller(issuer, token, leeway_seconds=0)


@pytest.mark.parametrize(
    "document",
    [
        public_jwk(rsa_key(2, 1024), "first"),
        public_jwk(rsa_key(), "first", use="enc"),
        {"kty": "oct", "kid": "first", "k": base64.urlsafe_b64encode(SHARED_SECRET.encode()).decode()},
        {"kty": "RSA", "kid": "first", "n": 7, "e": "AQAB"},
        {"kty": "EC", "kid": "first", "crv": "P-256"},
        "no object",
    ],
)
def test_a_published_key_that_is_weak_or_not_for_signatures_is_not_used(issuer, document):
    issuer.keys = [document, public_jwk(rsa_key(1), "good")]
    with pytest.raises(TokenRejected, match="does not publish"):
        find_caller(issuer, issuer.token())
    assert find_caller(issuer, issuer.token(key=rsa_key(1), headers={"kid": "good"})).name == "user-1"


# ── The keys of the issuer ──────────────────────────────────────────────────────────────────────────────────────────


def test_keys_are_fetched_once_and_again_for_a_new_key_but_not_for_every_unknown_one(issuer):
    async def main() -> None:
        hand = Hand()
        async with verifier_of(issuer, hand) as verifier:
            token = issuer.token()
            await asyncio.gather(*(verifier.find_caller(token) for _ in range(20)))
            assert issuer.requests == [DISCOVERY, "/keys"]
            issuer.keys.append(public_jwk(rsa_key(1), "second"))
            rotated = issuer.token(key=rsa_key(1), headers={"kid": "second"})
            hand.now += oidc.REFETCH_SECONDS
            await verifier.find_caller(rotated)
            assert len(issuer.requests) == 4
            for number in range(20):
                with pytest.raises(TokenRejected):
                    await verifier.find_caller(issuer.token(headers={"kid": f"invented {number}"}))
            assert len(issuer.requests) == 4

    asyncio.run(main())


def test_a_withdrawn_key_is_not_used_after_the_next_refresh(issuer):
    async def main() -> None:
        hand = Hand()
        async with verifier_of(issuer, hand) as verifier:
            token = issuer.token()
            await verifier.find_caller(token)
            issuer.keys = [public_jwk(rsa_key(1), "second")]
            hand.now += oidc.REFRESH_SECONDS + 1
            await verifier.find_caller(token)
            assert verifier._refresh is not None
            await verifier._refresh
            with pytest.raises(TokenRejected):
                await verifier.find_caller(token)

    asyncio.run(main())


def test_while_the_issuer_is_down_known_keys_are_used_for_a_day(issuer):
    async def main() -> None:
        hand = Hand()
        async with verifier_of(issuer, hand) as verifier:
            token = issuer.token()
            await verifier.find_caller(token)
            issuer.is_down = True
            hand.now += oidc.STALE_SECONDS - 1
            assert (await verifier.find_caller(token)).name == "user-1"
            assert verifier._refresh is not None
            await verifier._refresh
            hand.now += oidc.REFETCH_SECONDS
            with pytest.raises(IssuerUnavailable):
                await verifier.find_caller(token)
            count = len(issuer.requests)
            with pytest.raises(IssuerUnavailable, match="a moment ago"):
                await verifier.find_caller(token)
            assert len(issuer.requests) == count
            issuer.is_down = False
            hand.now += oidc.REFETCH_SECONDS
            assert (await verifier.find_caller(token)).name == "user-1"

    asyncio.run(main())


@pytest.mark.parametrize(
    "discovery",
    [
        {"issuer": "https://other.example.com"},
        {"jwks_uri": "http://keys.example.com/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": None},
        {"padding": "x" * MAX_DOCUMENT_BYTES},
    ],
)
def test_a_discovery_document_that_leads_elsewhere_is_not_followed(issuer, discovery):
    issuer.discovery |= discovery
    with pytest.raises(IssuerUnavailable):
        find_caller(issuer, issuer.token())
    assert issuer.requests == [DISCOVERY]


# ── The API ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_api_answers_tokens_with_its_scopes_and_rejects_others_with_a_problem(issuer):
    async def main() -> None:
        async with verifier_of(issuer) as verifier, opened_api(tokens=verifier) as api:
            await api.publish()

            async def status(token: str, path: str = "/api/v1/jobs") -> tuple[int, str]:
                answer = await api.http.get(path, headers={"Authorization": f"Bearer {token}"})
                return answer.status_code, answer.json().get("code", "")

            assert await status(issuer.token()) == (200, "")
            assert await status(issuer.token(), "/api/v1/keys") == (403, "scope_missing")
            assert await status(issuer.token(scope=None)) == (403, "scope_missing")
            for forge in FORGED.values():
                assert await status(forge(issuer)) == (401, "token_rejected")
            rejected = await api.http.get(
                "/api/v1/jobs", headers={"Authorization": f"Bearer {issuer.token(aud='other')}"}
            )
            assert rejected.headers["content-type"] == "application/problem+json"
            assert 'error="invalid_token"' in rejected.headers["www-authenticate"]
            assert (await api.get("/api/v1/jobs")).status_code == 200, "keys are accepted next to tokens"
            api.headers = {"Authorization": f"Bearer {issuer.token(scope='submit', sub='carol')}"}
            job_id = (await api.post("/api/v1/jobs", {"workflow_id": "hello"})).json()["job_id"]
            await api.use_key(Scope.READ)
            assert (await api.get(f"/api/v1/jobs/{job_id}")).json()["submitted_by"] == "oidc:carol"

    asyncio.run(main())


def test_a_token_whose_issuer_is_down_is_answered_with_503(issuer):
    issuer.is_down = True

    async def main() -> None:
        async with verifier_of(issuer) as verifier, opened_api(tokens=verifier) as api:
            answer = await api.http.get("/api/v1/jobs", headers={"Authorization": f"Bearer {issuer.token()}"})
            assert (answer.status_code, answer.json()["code"]) == (503, "issuer_unavailable")
            assert int(answer.headers["retry-after"]) > 0
            assert (await api.get("/api/v1/jobs")).status_code == 200, "keys work without the issuer"

    asyncio.run(main())

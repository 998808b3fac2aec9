"""When two requests are the same one, and what is stored of a body: nothing that may be secret.

The digest of a body leaves hidden values out: secret inputs, and of a request that was rejected all
values, as nobody knows which are secret. Secret values are recognized by prints, which the key of the
installation makes; a rejected request's by a slow digest with a salt.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.engine.expressions.secret_parts import REDACTED
from dagmaster.errors import CallbackUrlInvalid, Problem, RequestInvalid
from dagmaster.ports.callback_urls import parse_callback_url
from dagmaster.ports.job_filter import MAX_WORKFLOW_ID
from dagmaster.ports.job_options import MAX_KEY, MAX_PRIORITY
from dagmaster.ports.secret_vault import InputOwner, read_sealed
from dagmaster.records.requests import MAX_LABEL, MAX_PLATFORM_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.requests import StoredRequest
    from dagmaster.ports.secret_vault import SecretVault
    from dagmaster.records.requests import RequestBody

MAX_FIELDS: Final = 64
"""How many fields of a platform's format a body has at most."""
MAX_PAYLOAD: Final = 65_536
"""The largest body that is stored with its values. Of a larger one the names are stored; its job has all."""
_INPUT: Final = "input_params."
_FIELD: Final = "fields."
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_SCRYPT: Final = {"n": 2**13, "r": 8, "p": 1}


class HiddenValues(NamedTuple):
    """How hidden values are recognized: by a print each, or all by one digest (`names` is None)."""

    names: frozenset[str] | None = frozenset()
    prints: Mapping[str, str] = {}
    digest: str | None = None

    def to_json(self) -> str | None:
        """Return what is stored; None if nothing is hidden."""
        if self.names is None:
            return json.dumps({"all": self.digest})
        return json.dumps({"prints": dict(self.prints)}) if self.prints else None


async def hide_secrets(
    vault: SecretVault, body: RequestBody, secrets: frozenset[str], sources: Mapping[str, str]
) -> HiddenValues:
    """Return how the secret inputs of a body are recognized. `sources`: fields that inputs came from."""
    paths = {f"{_INPUT}{name}" for name in secrets} | {
        f"{_FIELD}{sources[name]}" for name in secrets & sources.keys()
    }
    values = {path: value for path, value in _values(body) if path in paths}
    if not values:
        return HiddenValues()
    await vault.prepare()
    prints = {path: _prints(vault, body.workflow_id, path, value)[0] for path, value in values.items()}
    return HiddenValues(frozenset(prints), prints)


async def hide_all(body: RequestBody, salt: str) -> HiddenValues:
    """Return how the values of a rejected body are recognized: not at all without an idempotency key."""
    digest = None if body.idempotency_key is None else f"{salt}:{await _slow_digest(body, salt)}"
    return HiddenValues(None, digest=digest)


async def is_same(vault: SecretVault, body: RequestBody, stored: StoredRequest) -> bool:
    """Return whether a body is the one that a stored request was made of."""
    hidden = stored.hidden
    if hidden is None:
        return fingerprint(body, frozenset()) == stored.body_hash
    if "all" in hidden:
        salt, _, digest = str(hidden["all"] or "").partition(":")
        return fingerprint(body, None) == stored.body_hash and (
            not digest or hmac.compare_digest(digest, await _slow_digest(body, salt))
        )
    prints: Any = hidden["prints"]
    values = dict(_values(body))
    if fingerprint(body, frozenset(prints)) != stored.body_hash or not prints.keys() <= values.keys():
        return False
    await vault.prepare()
    return all(
        print_ in _prints(vault, body.workflow_id, path, values[path]) for path, print_ in prints.items()
    )


def fingerprint(body: RequestBody, hidden: frozenset[str] | None) -> str:
    """Return the digest of a body without its hidden values; None: without all values."""
    shown = {path: _SHOWN if _is_hidden(path, hidden) else [value] for path, value in _values(body)}
    document = [
        *(body.workflow_id, body.submitted_by, body.callback_url, body.priority, body.platform_id),
        *(body.platform_refs, body.sandbox, shown),
    ]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def payload_of(body: RequestBody, hidden: frozenset[str] | None) -> str:
    """Return the values of a body as they are stored."""
    shown: dict[str, dict[str, JsonValue]] = {"input_params": {}, "fields": {}}
    for path, value in _values(body):
        part, _, name = path.partition(".")
        shown[part][name] = REDACTED if _is_hidden(path, hidden) else value
    text = json.dumps({name: values for name, values in shown.items() if values})
    if len(text) <= MAX_PAYLOAD:
        return text
    return json.dumps({"names": [path[:100] for path, _ in _values(body)][:1000], "bytes": len(text)})


_SHOWN: Final = "hidden"


def _is_hidden(path: str, hidden: frozenset[str] | None) -> bool:
    return hidden is None or path in hidden


def _values(body: RequestBody) -> Iterator[tuple[str, JsonValue]]:
    for name, value in body.input_params.items():
        yield f"{_INPUT}{name}", value
    for name, value in body.fields.items():
        yield f"{_FIELD}{name}", value


def _prints(vault: SecretVault, workflow_id: str, path: str, value: JsonValue) -> list[str]:
    """Return the prints of a secret value, that of the current key first.

    While an installation has no key yet, jobs have their secrets in clear, and the print is a digest.
    """
    owner = InputOwner(job_id="request", workflow_id=workflow_id)
    sealed = read_sealed(vault.seal(owner, path, value))
    clear = hashlib.sha256(json.dumps([workflow_id, path, value], sort_keys=True).encode()).hexdigest()
    if sealed is None:
        return [clear]
    return [sealed.print, *vault.earlier_prints(owner, path, value), clear]


async def _slow_digest(body: RequestBody, salt: str) -> str:
    text = json.dumps(dict(_values(body)), sort_keys=True).encode()
    digest = await asyncio.to_thread(hashlib.scrypt, text, salt=salt.encode(), **_SCRYPT)
    return digest.hex()


# ── The form of a body ──────────────────────────────────────────────────────────────────────────────────────


def check_body(body: RequestBody, *, allows_loopback: bool = False) -> None:
    """Raise `RequestInvalid` with every field whose form is wrong. Such a request is not stored.

    `allows_loopback`: callbacks may go to this machine.
    """
    mistakes = _mistakes(body, allows_loopback=allows_loopback)
    problems = [Problem(message=message, path=path) for path, message in mistakes]
    if problems:
        raise RequestInvalid(problems)


def _mistakes(body: RequestBody, *, allows_loopback: bool) -> Iterator[tuple[str, str]]:
    texts = (
        ("workflow_id", body.workflow_id, 1, MAX_WORKFLOW_ID),
        ("submitted_by", body.submitted_by, 0, MAX_LABEL),
        ("idempotency_key", body.idempotency_key, 1, MAX_KEY),
        ("platform_id", body.platform_id, 1, MAX_PLATFORM_ID),
    )
    for name, text, shortest, longest in texts:
        if text is not None and not _is_text(text, shortest, longest):
            yield name, f"{shortest} to {longest} printable characters"
    priority: Any = body.priority
    if type(priority) is not int or not 0 <= priority <= MAX_PRIORITY:
        yield "priority", f"a whole number from 0 to {MAX_PRIORITY}, which is the most urgent"
    if body.request_id is not None and not _UUID.fullmatch(body.request_id):
        yield "request_id", "a UUID as 123e4567-e89b-42d3-a456-426614174000"
    if body.callback_url is not None and (
        problem := _callback_problem(body.callback_url, allows_loopback=allows_loopback)
    ):
        yield "callback_url", problem
    if len(body.fields) > MAX_FIELDS:
        yield "fields", f"at most {MAX_FIELDS} fields of a platform"


def _callback_problem(url: object, *, allows_loopback: bool) -> str:
    """Return why callbacks may not have an address; empty: they may. The relay checks where it leads."""
    try:
        parse_callback_url(str(url), allows_loopback=allows_loopback)
    except CallbackUrlInvalid as error:
        return str(error)
    return ""


def _is_text(text: object, shortest: int, longest: int) -> bool:
    return isinstance(text, str) and shortest <= len(text) <= longest and text.isprintable()

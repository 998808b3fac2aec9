"""Checks the receiver of a partner's callbacks: it sends samples, good and bad, and judges the answers."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.text_format import format_rfc3339
from dagmaster.webhook_signatures import TOLERANCE_SECONDS, sign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    Send = Callable[[dict[str, str], bytes], Awaitable["Answer"]]

MAX_ANSWER_SECONDS: Final = 5.0
"""How long a receiver may take: it accepts first, and works afterwards."""
_UNKNOWN: Final = f"whsec_{'A' * 43}="
_OK: Final = range(200, 300)
_REFUSED: Final = range(400, 500)


class Answer(NamedTuple):
    """What a receiver answered; `status` None: nothing, and `error` says why."""

    status: int | None
    seconds: float
    error: str = ""


class Sample(NamedTuple):
    """A callback to send. `accepts`: whether a receiver has to take it; `hint`: what to do if it does not."""

    name: str
    headers: dict[str, str]
    body: bytes
    accepts: bool
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartnerCheck:
    """What a receiver made of a sample. `problem`: what is wrong, and what to do; empty if nothing is."""

    name: str
    status: int | None
    seconds: float
    problem: str


async def check_partner(send: Send, secret: str, *, now: float) -> list[PartnerCheck]:
    """Send every sample once; return what a receiver made of each."""
    return [_judge(sample, await send(sample.headers, sample.body)) for sample in samples(secret, now=now)]


def samples(secret: str, *, now: float) -> Iterator[Sample]:
    """Yield the callbacks that a receiver has to take or to refuse, signed with its secret."""
    timestamp, request_id = int(now), str(uuid.uuid4())
    body, other = _body(request_id, "completed", now), _body(request_id, "failed", now)
    first = _headers(secret, _new_id(), timestamp, body)
    yield _good("a valid callback", first, body, "verify it with the secret of your tenant, answer 2xx")
    yield _good("the same one again", first, body, "an id that you know is no error: answer 2xx")
    yield _bad("a changed body", first, other, "verify the signature over the bytes of the body")
    stolen = {**first, "webhook-id": _new_id()}
    yield _bad("a changed id", stolen, body, "the signature covers id, timestamp and body")
    foreign = _headers(_UNKNOWN, _new_id(), timestamp, body)
    yield _bad("an unknown secret", foreign, body, "accept signatures with your secrets alone")
    yield _bad("no signature", {"content-type": "application/json"}, body, "refuse what is not signed")
    minutes = 2 * int(TOLERANCE_SECONDS)
    old = _headers(secret, _new_id(), timestamp - minutes, body)
    yield _bad("an old callback", old, body, "refuse timestamps older than 5 minutes")
    early = _headers(secret, _new_id(), timestamp + minutes, body)
    yield _bad("one from the future", early, body, "refuse timestamps that are 5 minutes ahead")
    rotated = _headers(secret, _new_id(), timestamp, other)
    rotated["webhook-signature"] = f"v1,{'A' * 43}= v1a,{'A' * 86}== {rotated['webhook-signature']}"
    yield _good("several signatures", rotated, other, "one valid signature is enough")
    later = json.dumps({**json.loads(_body(request_id, "running", now)), "later": {"added": True}}).encode()
    extended = _headers(secret, _new_id(), timestamp, later)
    yield _good("a field that is new", extended, later, "ignore fields that you do not know")


def _good(name: str, headers: dict[str, str], body: bytes, hint: str) -> Sample:
    return Sample(name, headers, body, accepts=True, hint=hint)


def _bad(name: str, headers: dict[str, str], body: bytes, hint: str) -> Sample:
    return Sample(name, headers, body, accepts=False, hint=hint)


def _judge(sample: Sample, answer: Answer) -> PartnerCheck:
    problem = ""
    if answer.status is None:
        problem = f"no answer: {answer.error}"
    elif answer.status not in (_OK if sample.accepts else _REFUSED):
        expected = "2xx" if sample.accepts else "4xx"
        problem = f"answered {answer.status} instead of {expected}: {sample.hint}"
    elif answer.seconds > MAX_ANSWER_SECONDS:
        problem = f"answered after {answer.seconds:.1f} s: answer within {MAX_ANSWER_SECONDS:g} s, work later"
    return PartnerCheck(name=sample.name, status=answer.status, seconds=answer.seconds, problem=problem)


def _body(request_id: str, status: str, now: float) -> bytes:
    document = {
        "type": f"request.{status}",
        "timestamp": format_rfc3339(now),
        "request_id": request_id,
        "status": status,
        "error": "failed" if status == "failed" else None,
        "result_url": None,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _headers(secret: str, callback_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    return {
        "content-type": "application/json",
        "webhook-id": callback_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign([secret], callback_id, timestamp, body),
    }


def _new_id() -> str:
    return f"msg_{uuid.uuid4().hex}"

"""Requests: which are sent again, and what an answer that is no success raises. The server is a function."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dagmaster.application.submission import JobRequest
from dagmaster.client.async_client import AsyncClient
from dagmaster.client.retries import Retries
from dagmaster.errors import (
    ApiKeyRejected,
    DagmasterError,
    DatabaseUnavailable,
    InputsInvalid,
    JobFinished,
    JobNotFound,
    QueryInvalid,
    ScopeMissing,
    ServerAnswerInvalid,
    ServerUnavailable,
    SettingsInvalid,
    error_types,
)
from dagmaster.errors.base import OUTCOMES, Problem, ProblemsError
from dagmaster.http.problems import of_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

KEY = "dm_0123456789ab_" + "s" * 43
FAST = Retries(base_seconds=0.0, max_seconds=0.0)
ACCEPTED = {
    "outcome": "accepted", "job_id": "7", "workflow_id": "w", "version": 1, "is_new": True, "resumed_from": None,
    "error": None, "task_ids": None,
}  # fmt: skip
COUNTS = {"counts": {}, "total": 0}


class Server:
    """Answers requests in turn; the last answer again and again."""

    def __init__(self, *answers: httpx.Response | httpx.TransportError) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, httpx.TransportError):
            raise answer
        return answer

    def ask(self, question: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
        async def work() -> Any:
            transport = httpx.MockTransport(self)
            async with AsyncClient("http://server", KEY, retries=FAST, transport=transport) as client:
                return await question(client)

        return asyncio.run(work())

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]


def problem(error: DagmasterError) -> httpx.Response:
    """Return what the server sends about an error."""
    answer = of_error(error)
    return httpx.Response(answer.status_code, content=bytes(answer.body), headers=dict(answer.headers))


@pytest.mark.parametrize(
    "failure",
    [
        problem(DatabaseUnavailable("away")),
        httpx.Response(429, headers={"Retry-After": "3"}),
        httpx.Response(502),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("closed"),
    ],
    ids=["503", "429", "502", "connect", "timeout", "closed"],
)
def test_a_read_is_repeated(failure):
    server = Server(failure, failure, httpx.Response(200, json=COUNTS))
    assert server.ask(lambda client: client.count_jobs()).total == 0
    assert len(server.requests) == 3


def test_a_submission_is_repeated_with_the_same_key_and_is_new():
    existing = ACCEPTED | {"outcome": "existing", "is_new": False}
    server = Server(httpx.ReadTimeout("slow"), httpx.Response(202, json=existing))
    result = server.ask(lambda client: client.submit("w", {"a": 1}))
    first, second = server.bodies
    assert first == second
    assert len(first["idempotency_key"]) == 32
    # The first request, whose answer was lost, created the job.
    assert (result.is_new, result.outcome) == (True, "accepted")


def test_a_key_of_the_caller_is_sent_and_its_outcome_kept():
    server = Server(httpx.Response(202, json=ACCEPTED | {"outcome": "existing", "is_new": False}))
    assert not server.ask(lambda client: client.submit("w", idempotency_key="night-1")).is_new
    assert server.bodies[0]["idempotency_key"] == "night-1"


def test_each_job_of_a_batch_has_a_key():
    server = Server(httpx.Response(202, json=[ACCEPTED, ACCEPTED]))
    server.ask(lambda client: client.submit_jobs([JobRequest(workflow_id="w"), JobRequest(workflow_id="w")]))
    first, second = server.bodies[0]["jobs"]
    assert first["idempotency_key"] != second["idempotency_key"]


@pytest.mark.parametrize("failure", [httpx.ReadTimeout("slow"), problem(DatabaseUnavailable("away"))])
def test_a_command_that_may_have_arrived_is_not_sent_again(failure):
    server = Server(failure)
    with pytest.raises((ServerUnavailable, DatabaseUnavailable)):
        server.ask(lambda client: client.send_signal("7", "go"))
    assert len(server.requests) == 1


@pytest.mark.parametrize("failure", [httpx.ConnectError("refused"), httpx.Response(429)])
def test_a_command_that_did_nothing_is_sent_again_a_few_times(failure):
    server = Server(failure)
    with pytest.raises((ServerUnavailable, ServerAnswerInvalid)):
        server.ask(lambda client: client.cancel_job("7"))
    assert len(server.requests) == FAST.attempts


@pytest.mark.parametrize("error_type", error_types(), ids=lambda error_type: error_type.code)
def test_every_error_is_the_same_after_a_journey(error_type):
    is_list = issubclass(error_type, ProblemsError)
    error = (
        error_type([Problem(message="no", file="f.yaml", line=3, path="a.b")])
        if is_list
        else error_type("a fact")
    )
    server = Server(problem(error))
    with pytest.raises(error_type) as caught:
        server.ask(lambda client: client.count_jobs())
    assert type(caught.value) is error_type
    assert caught.value.to_dict() == error.to_dict()
    assert str(caught.value) == str(error)


def test_an_error_of_a_newer_server_is_reported_by_its_sentence():
    server = Server(
        httpx.Response(409, json={"code": "moon_phase", "detail": "the moon is full", "status": 409})
    )
    with pytest.raises(ServerAnswerInvalid, match="the moon is full"):
        server.ask(lambda client: client.count_jobs())


@pytest.mark.parametrize(
    ("answer", "error_type"),
    [
        (httpx.Response(500, text="<html>"), ServerUnavailable),
        (httpx.Response(404, text="<html>"), ServerAnswerInvalid),
        (httpx.Response(302, headers={"Location": "http://elsewhere"}), ServerAnswerInvalid),
        (httpx.Response(200, text="<html>"), ServerAnswerInvalid),
        (httpx.Response(200, json=[]), ServerAnswerInvalid),
    ],
)
def test_an_answer_of_another_program_is_an_error_of_ours(answer, error_type):
    with pytest.raises(error_type):
        Server(answer).ask(lambda client: client.count_jobs())


def test_the_key_is_sent_and_appears_nowhere_else():
    server = Server(httpx.ConnectError("refused"))
    with pytest.raises(ServerUnavailable) as caught:
        server.ask(lambda client: client.count_jobs())
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    client = AsyncClient("http://server", KEY)
    assert KEY not in f"{caught.value!r} {caught.value.to_dict()} {client!r} {client.connection!r}"


def failed_with(*causes: Exception) -> httpx.ConnectError:
    """Return the error of httpx for the errors of the attempts to connect."""
    error = httpx.ConnectError("all connection attempts failed")
    error.__cause__ = OSError("all connection attempts failed")
    error.__cause__.__cause__ = causes[0] if len(causes) == 1 else ExceptionGroup("all failed", causes)
    return error


@pytest.mark.parametrize(
    ("causes", "reason"),
    [
        ([ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9)")], "connection refused"),
        ([ConnectionRefusedError(111, "a"), OSError(101, "b")], "connection refused"),
        ([socket.gaierror(-2, "Name or service not known")], "no host has this name"),
        ([ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]")], "it does not answer with TLS"),
    ],
)
def test_a_server_that_cannot_be_reached_is_explained_in_our_words(causes, reason):
    with pytest.raises(ServerUnavailable, match=f"cannot reach the server at http://server: {reason}"):
        Server(failed_with(*causes)).ask(lambda client: client.count_jobs())


@pytest.mark.parametrize(
    "url", ["", "server:8420", "ftp://server", "http://", "http://server?x=1", "http://a:b@server"]
)
def test_an_invalid_address_is_refused_without_its_password(url, monkeypatch):
    monkeypatch.delenv("DAGMASTER_URL", raising=False)
    with pytest.raises(SettingsInvalid) as caught:
        AsyncClient(url, KEY)
    assert "a:b" not in str(caught.value)


def test_the_address_may_be_that_of_the_api(monkeypatch):
    monkeypatch.setenv("DAGMASTER_URL", "http://server:8420/api/v1/")
    monkeypatch.setenv("DAGMASTER_KEY", KEY)
    assert AsyncClient().connection.url == "http://server:8420"


def test_a_broken_key_is_not_repeated():
    with pytest.raises(SettingsInvalid) as caught:
        AsyncClient("http://server", "dm_secret\n")
    assert "dm_secret" not in str(caught.value)


@pytest.mark.parametrize("job_id", ["", ".", "..", "a/b"])
def test_an_id_cannot_name_another_route(job_id):
    server = Server(httpx.Response(200, json={}))
    with pytest.raises(QueryInvalid):
        server.ask(lambda client: client.node_detail("7", job_id))
    assert server.requests == []


def test_errors_have_the_exit_codes_of_local_ones():
    codes = {
        error: OUTCOMES[error.category].exit_code for error in (ApiKeyRejected, ScopeMissing, JobNotFound)
    }
    assert set(codes.values()) == {2}
    assert OUTCOMES[JobFinished.category].exit_code == OUTCOMES[InputsInvalid.category].exit_code == 2
    assert OUTCOMES[ServerUnavailable.category].exit_code == 3


def test_the_pause_grows_and_respects_the_server():
    retries = Retries(base_seconds=1.0, max_seconds=10.0)
    assert all(0.5 <= retries.pause_after(1) <= 1.0 for _ in range(20))
    assert all(2.0 <= retries.pause_after(3) <= 4.0 for _ in range(20))
    assert retries.pause_after(1, httpx.Response(429, headers={"Retry-After": "7"})) == 7.0
    assert retries.pause_after(1, httpx.Response(429, headers={"Retry-After": "999"})) == 10.0

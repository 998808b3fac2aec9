"""The body of a callback is thin, and that of a request has nothing of its job."""

from __future__ import annotations

import json
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from dagmaster.orchestrator.callback_messages import ResultLinks, callback_body, callback_headers
from dagmaster.ports.result_links import is_result_link_valid
from dagmaster.records.callbacks import CallbackState
from dagmaster.webhook_signatures import new_hmac_secret, verify
from tests.unit.orchestrator.test_callback_attempts import CALLBACK

REQUEST = replace(
    CALLBACK, request_id="0b6ff54c-5b7c-4a4c-9e0c-6d2f1f6f3a11", job_id="720575940379279360", result_key="k1"
)
LINKS = ResultLinks(
    gateway_url="https://partners.example.com/", public_url="https://dag.example.com", valid_seconds=60
)


def test_a_request_is_told_by_its_own_id_and_never_by_that_of_its_job():
    body = callback_body(REQUEST, LINKS, 1_000.0)
    fields = json.loads(body)
    assert fields | {"result_url": ""} == {
        "type": "request.completed",
        "timestamp": "1970-01-01T00:00:00Z",
        "request_id": REQUEST.request_id,
        "status": "completed",
        "error": None,
        "result_url": "",
    }
    assert b"720575940379279360" not in body
    assert "720575940379279360" not in str(
        callback_headers(REQUEST, [new_hmac_secret(b"x" * 32)], body, 1_000.0)
    )


def test_a_cancelled_job_failed_and_says_why():
    failed = replace(CALLBACK, request_id=None, state=CallbackState.FAILED, reason="cancelled")
    fields = json.loads(callback_body(failed, LINKS, 0.0))
    assert (fields["type"], fields["status"], fields["error"]) == ("job.failed", "failed", "cancelled")
    assert fields["result_url"] == "https://dag.example.com/api/v1/jobs/1"
    assert "request_id" not in fields


def test_without_an_address_there_is_no_link():
    assert json.loads(callback_body(REQUEST, ResultLinks(), 0.0))["result_url"] is None
    assert (
        json.loads(callback_body(replace(REQUEST, request_id=None), ResultLinks(), 0.0))["result_url"] is None
    )


def test_the_headers_are_those_of_the_standard_and_the_id_stays():
    secret, body = new_hmac_secret(b"x" * 32), callback_body(REQUEST, LINKS, 0.0)
    first, later = (callback_headers(REQUEST, [secret], body, now) for now in (1_000.4, 5_000.0))
    assert (
        verify([secret], first, body, now=1_000)
        == verify([secret], later, body, now=5_000)
        == REQUEST.callback_id
    )
    assert first["webhook-id"] == later["webhook-id"]


def test_the_link_to_a_result_expires_and_is_that_of_one_request():
    url = urlsplit(json.loads(callback_body(REQUEST, LINKS, 1_000.0))["result_url"])
    assert url.path == f"/platform/results/{REQUEST.request_id}"
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    request_id = REQUEST.request_id or ""

    def is_valid(key: str = "k1", request: str = request_id, now: float = 1_059.0, **changes: str) -> bool:
        parts = query | changes
        return is_result_link_valid(key, request, parts["expires"], parts["signature"], now=now)

    assert is_valid()
    assert not is_valid(now=1_060.0)
    assert not is_valid(expires="9999999999")
    assert not is_valid(request="0b6ff54c-5b7c-4a4c-9e0c-6d2f1f6f3a12")
    assert not is_valid(key="k2")
    assert not is_valid(signature="")
    assert not is_valid(signature="\u00e9")


@pytest.mark.parametrize("expires", ["", "-1", "1e9", "\u0661", "9" * 13])
def test_an_expiry_that_is_no_number_is_not_valid(expires):
    assert not is_result_link_valid("k1", REQUEST.request_id or "", expires, "x", now=0.0)

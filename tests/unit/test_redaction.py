"""Secrets do not leave in what a handler said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.errors import PermanentError
from dagmaster.ports.task_messages import Failed, Released, Succeeded
from dagmaster.redaction import JsonTextRedactor, redact_outcome, redact_value
from dagmaster.worker.task_outcomes import failure_of


@pytest.mark.parametrize("secrets", [(), [""], {""}])
def test_without_secrets_the_outcome_is_the_same_object(secrets):
    outcome = Succeeded({"a": "text"})
    assert redact_outcome(outcome, secrets) is outcome
    assert redact_value(outcome.output, secrets) is outcome.output


def test_a_secret_goes_from_output_and_metrics_in_values_and_keys_at_any_depth():
    outcome = Succeeded(
        {"a": ["x hush y", {"hush": {"deep": "hushhush"}}], "n": 1, "no": None}, {"m": "hush"}
    )
    kept = redact_outcome(outcome, ["hush"])
    assert kept == Succeeded(
        {"a": ["x *** y", {"***": {"deep": "******"}}], "n": 1, "no": None}, {"m": "***"}
    )
    assert outcome.metrics == {"m": "hush"}


def test_a_secret_goes_from_an_errors_message_traceback_and_details():
    error = {
        "kind": "hush",
        "message": "no hush",
        "type": "E",
        "traceback": "E: hush!",
        "tiles": [{"hush": "hush"}],
    }
    assert redact_outcome(Failed(error, permanent=True), ["hush"]) == Failed(
        {"kind": "***", "message": "no ***", "type": "E", "traceback": "E: ***!", "tiles": [{"***": "***"}]},
        permanent=True,
    )


def test_a_secret_that_is_the_name_of_a_field_leaves_the_error_readable():
    outcome = redact_outcome(Failed({"kind": "error", "message": "a message"}), ["message", "kind"])
    assert outcome == Failed({"kind": "error", "message": "a ***"})


def test_what_was_handed_back_has_no_secret_either():
    assert redact_outcome(Released("for hush"), ["hush"]) == Released("for ***")


@pytest.mark.parametrize(
    ("text", "secrets", "kept"),
    [
        ("token-and-more token", ["token", "token-and-more"], "*** ***"),
        ("abcdef", ["abc", "bcdef"], "***"),
        ("banana", ["ana"], "b***"),
        ("a*b", ["*"], "a***b"),
        ("a.c abc", ["a.c"], "*** abc"),
        ("x", ["x"], "***"),
    ],
)
def test_the_longest_secret_counts_and_overlapping_ones_leave_nothing(text, secrets, kept):
    assert redact_value(text, secrets) == kept


@pytest.mark.parametrize(
    "secret", ['it\'s "it"', "line\nline", "back\\slash", "schön", "nul\0", "half\udcff"]
)
def test_a_secret_is_found_as_repr_and_json_write_it(secret):
    odd: Any = {secret}
    message = redact_outcome(
        failure_of(PermanentError(f"not {secret}", odd=odd, key=KeyError(secret))), [secret]
    )
    assert isinstance(message, Failed)
    assert message.error["message"] == "not ***"
    assert message.error["odd"][1:-1].strip("'\"") == "***"
    assert "***" in message.error["key"]


def test_keys_that_differed_only_in_their_secrets_stay_apart():
    kept = redact_value({"one": 1, "two": 2, "***": 3}, ["one", "two"])
    assert list(kept.values()) == [1, 2, 3]


def test_a_value_of_any_depth_is_redacted():
    deep: Any = "hush"
    for _ in range(10_000):
        deep = [deep]
    kept = redact_value(deep, ["hush"])
    for _ in range(10_000):
        kept = kept[0]
    assert kept == "***"


SECRETS = ["hush", "hus", 'ü"\\x', "sh h", "aaa", "4711", "47.5"]
PIECES = st.sampled_from(
    [*SECRETS, "h", "hu", "s", "a", "\\", '"', "\n", "ü", "4711", "1", "e", "text", json.dumps('ü"\\x')]
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)
NUMBERS = st.sampled_from([4711, 471, 47110, -4711, 47.5, 1e300, 0, True, None])
VALUES = st.recursive(
    TEXTS | NUMBERS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["k", "key 2", "n"]), inner, max_size=3)
    ),
)


@given(VALUES, st.lists(st.integers(1, 40), min_size=1, max_size=5), st.booleans())
def test_a_json_text_in_chunks_is_redacted_like_its_value(value, sizes, escapes):
    text = json.dumps(value, ensure_ascii=escapes)
    redactor, parts, start = JsonTextRedactor(SECRETS), [], 0
    while start < len(text):
        for size in sizes:
            parts.append(redactor.feed(text[start : start + size]))
            start += size
    parts.append(redactor.feed("", is_last=True))
    assert json.loads("".join(parts)) == redact_value(value, SECRETS)


@pytest.mark.parametrize("content", ["text ", "0123456789", "hush", "aaa", "\\\\", "\\n"])
def test_a_long_json_text_is_not_held_back(content):
    redactor = JsonTextRedactor(SECRETS)
    redactor.feed('{"a": "')
    for _ in range(50):
        redactor.feed(content * 100)
        assert len(redactor._held) <= 20

"""A record that can contain secrets has no JSON before it was redacted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dagmaster.application.secret_inputs import JobRedactor
from dagmaster.records.jobs import JobRecord
from dagmaster.records.parsing import parse_record
from dagmaster.records.redacted import has_secrets, redacted
from tests.unit.application.world import FLOW, SECRET, a_record

REDACT = JobRedactor(FLOW["inputs"], {"token": SECRET})
FAILED = a_record(error={"message": f"no {SECRET}"}, result={"key": SECRET})


def test_a_record_with_a_secret_has_no_json():
    with pytest.raises(RuntimeError, match="JobRecord is shown that was not redacted"):
        FAILED.to_dict()


def test_a_record_without_values_that_can_be_secret_has_its_json():
    listed = replace(FAILED, error=None, inputs={}, result=None)
    assert not has_secrets(listed)
    assert listed.to_dict()["job_id"] == "7"


def test_what_the_json_shows_is_redacted_and_the_rest_is_dropped():
    shown = redacted(FAILED, REDACT)
    assert shown.to_dict()["error"] == {"message": "no ***"}
    assert (shown.inputs, shown.result) == ({}, None)
    assert SECRET not in repr(shown)


def test_a_changed_copy_has_to_be_redacted_again():
    changed = replace(redacted(FAILED, REDACT), error={"message": SECRET})
    with pytest.raises(RuntimeError, match="not redacted"):
        changed.to_dict()
    assert redacted(changed, REDACT).error == {"message": "***"}


def test_a_record_without_secrets_is_not_copied():
    record = replace(FAILED, inputs={}, result=None)
    assert redacted(record, JobRedactor({}, {})) is record
    assert record.to_dict()["error"] == FAILED.error


def test_a_parsed_record_was_redacted_by_its_sender():
    document = redacted(FAILED, REDACT).to_dict()
    assert parse_record(JobRecord, document, read_at=0.0).to_dict() == document

"""Every view is the same after it was sent as JSON and parsed."""

from __future__ import annotations

import json

import pytest

from dagmaster.application.views import EventView, JobDetailView, JobRecord, Page, Record
from dagmaster.errors import ServerAnswerInvalid
from dagmaster.records.parsing import parse_page, parse_record
from tests.unit.application.views.test_json_schema import QUERIES, RESULTS, app
from tests.unit.application.world import run


def sent(view: Record | Page[Record]) -> object:
    return json.loads(json.dumps(view.to_dict(), allow_nan=False))


@pytest.mark.parametrize("name", list(QUERIES))
def test_what_a_query_returns_is_the_same_after_a_journey(name):
    view = run(QUERIES[name](app()))
    if isinstance(view, Page):
        page = parse_page(type(view.items[0]), sent(view), read_at=110.0)
        assert [type(item) for item in page.items] == [type(item) for item in view.items]
        assert page.to_dict() == view.to_dict()
    else:
        parsed = parse_record(type(view), sent(view), read_at=110.0)
        assert parsed.to_dict() == view.to_dict()
        # Enums are members again, not text.
        assert all(
            type(getattr(parsed, key)) is type(getattr(view, key))
            for key in ("status",)
            if hasattr(view, key)
        )


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_what_a_command_returns_is_the_same_after_a_journey(result):
    parsed = parse_record(type(result), sent(result), read_at=0.0)
    assert parsed.to_dict() == result.to_dict()


def test_what_renderers_need_is_derived():
    job = run(QUERIES["JobDetailView"](app()))
    parsed = parse_record(JobDetailView, sent(job), read_at=123.5)
    assert (parsed.dependencies, parsed.fan_outs) == (job.dependencies, job.fan_outs)
    assert parsed.statuses == {key: status for key, status in job.statuses.items() if key in job.dependencies}
    # The run has taken so long until then, by the clock of the store.
    assert parsed.read_at == job.read_at == 111.0
    finished = {**job.to_dict(), "finished_at": job.to_dict()["updated_at"]}
    assert parse_record(JobDetailView, finished, read_at=123.5).read_at == 123.5
    assert parsed.nodes["tiles"].children == job.nodes["tiles"].children


def test_an_answer_of_a_newer_server_is_used_as_far_as_it_is_known():
    event = sent(run(QUERIES["EventViewPage"](app())).items[0])
    assert isinstance(event, dict)
    parsed = parse_record(EventView, {**event, "type": "JobTeleported", "more": 1}, read_at=0.0)
    assert parsed.type == "JobTeleported"


@pytest.mark.parametrize("document", [None, [], "text", {}, {"job_id": "7", "status": "NEW"}])
def test_another_document_is_an_error_that_names_the_view(document):
    with pytest.raises(ServerAnswerInvalid, match="JobView"):
        parse_record(JobRecord, document, read_at=0.0)
    with pytest.raises(ServerAnswerInvalid, match="JobView"):
        parse_page(JobRecord, {"items": [document]}, read_at=0.0)
    with pytest.raises(ServerAnswerInvalid, match="not a page"):
        parse_page(JobRecord, document, read_at=0.0)

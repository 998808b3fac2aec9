"""`jobs list`: every option is a filter, pages follow each other, and hints go to the error stream."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from click.testing import CliRunner

from dagmaster.cli.commands import jobs_list
from dagmaster.client.system import LocalSystem
from dagmaster.engine.status import JobStatus
from dagmaster.ports.job_filter import JobFilter
from tests.unit.application.world import FakeReadStore, a_record, an_application, run


def ask(monkeypatch: pytest.MonkeyPatch, store: FakeReadStore, *arguments: str) -> Any:
    app = an_application(store)
    monkeypatch.setattr(jobs_list, "on_system", lambda _data_dir, query: run(query(LocalSystem(app))))
    return CliRunner().invoke(jobs_list.list_jobs, list(arguments))


def the_filter(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> JobFilter:
    store = FakeReadStore()
    done = ask(monkeypatch, store, *arguments)
    assert done.exit_code == 0, done.output
    (job_filter,) = store.filters
    assert isinstance(job_filter, JobFilter)
    return job_filter


def test_without_options_nothing_is_filtered(monkeypatch):
    assert the_filter(monkeypatch) == JobFilter()


def test_every_option_is_a_filter(monkeypatch):
    arguments = (
        "--status failed --status WAITING --workflow w --version 2 --name n --submitter ada --correlation-id c"
        " --idempotency-key k --parent 7 --text pre"
    )
    assert the_filter(monkeypatch, *arguments.split()) == JobFilter(
        statuses=frozenset({JobStatus.FAILED, JobStatus.WAITING}),
        workflow_id="w",
        version=2,
        name="n",
        submitted_by="ada",
        correlation_id="c",
        idempotency_key="k",
        parent_job_id="7",
        text="pre",
    )


def test_times_are_spans_before_now_or_dates(monkeypatch):
    times = the_filter(monkeypatch, "--since", "2h", "--until", "2026-11-16T08:30:00Z")
    assert times.created_after == pytest.approx(time.time() - 7200, abs=60)
    assert times.created_before == 1794817800.0
    assert the_filter(monkeypatch, "--since", "2026-11-01").created_after is not None


@pytest.mark.parametrize("wrong", ["soon", "2026-13-01", "5", "-1h", "\u0661h"])
def test_an_invalid_time_is_rejected(monkeypatch, wrong):
    done = ask(monkeypatch, FakeReadStore(), "--since", wrong)
    assert done.exit_code == 2
    assert "is not a time" in done.output


def test_pages_follow_each_other(monkeypatch):
    store = FakeReadStore([a_record(job_id=str(number)) for number in (1, 2, 3)])
    first = json.loads(ask(monkeypatch, store, "--limit", "2", "--json").stdout)
    assert [job["job_id"] for job in first["items"]] == ["3", "2"]
    second = ask(monkeypatch, store, "--limit", "2", "--json", "--cursor", first["next_cursor"])
    assert [job["job_id"] for job in json.loads(second.stdout)["items"]] == ["1"]
    assert json.loads(second.stdout)["next_cursor"] is None


def test_a_table_is_printed_with_the_cursor_of_the_next_page(monkeypatch):
    store = FakeReadStore([a_record(job_id=str(number)) for number in (1, 2, 3)])
    done = ask(monkeypatch, store, "--limit", "2")
    assert "▶ running" in done.stdout
    assert "there are more: add --cursor " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [((), "no jobs yet"), (("--name", "x"), "no job matches"), (("--status", "failed"), "no job matches")],
)
def test_an_empty_list_prints_what_to_do(monkeypatch, arguments, hint):
    done = ask(monkeypatch, FakeReadStore(), *arguments)
    assert (done.exit_code, done.stdout) == (0, "")
    assert hint in done.stderr

"""The log lines of services, as text and as JSON."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import pytest

from dagmaster.orchestrator import job_log
from dagmaster.ports.task_source import ClaimedTask
from dagmaster.telemetry import logs
from dagmaster.telemetry.logs import JsonFormatter, TextFormatter, job_fields, task_fields
from dagmaster.worker import task_lines

CANARY = "hunter2-canary"
TASK = ClaimedTask("9", "7", "tile", "cut", 2, "{}", None, 60.0, 0.0, token=1)


def a_record(message: str, *args: object, **fields: Any) -> logging.LogRecord:
    record = logging.LogRecord("dagmaster.worker", logging.WARNING, "f.py", 1, message, args, None)
    record.created = 1_767_225_600.1239
    vars(record).update(fields)
    return record


def redact(text: str) -> str:
    return text.replace(CANARY, "***")


@pytest.fixture
def _process_fields(monkeypatch):
    monkeypatch.setattr(logs, "_PROCESS_FIELDS", {})


@pytest.mark.usefixtures("_process_fields")
def test_json_has_the_time_the_level_and_every_field():
    logs.set_process_field("worker_id", "5")
    record = a_record("handler %s is killed", "cut", **task_fields(TASK))
    assert json.loads(JsonFormatter(redact).format(record)) == {
        "time": "2026-01-01T00:00:00.123Z",
        "level": "WARNING",
        "logger": "dagmaster.worker",
        "message": "handler cut is killed",
        "pid": record.process,
        "worker_id": "5",
        "job_id": "7",
        "node_id": "tile",
        "attempt": 2,
        "task_id": "9",
    }


def test_text_appends_the_fields_that_the_sentence_does_not_name():
    record = a_record("node %s is killed", "tile", **task_fields(TASK))
    line = (
        "2026-01-01T00:00:00.123Z WARNING dagmaster.worker: node tile is killed job_id=7 attempt=2 task_id=9"
    )
    assert TextFormatter(redact).format(record) == line


def test_a_number_inside_another_word_does_not_name_a_field():
    record = a_record("killed after 120 s, task 97", **task_fields(TASK))
    assert TextFormatter(redact).format(record).endswith("task 97 job_id=7 node_id=tile attempt=2 task_id=9")


@pytest.mark.parametrize("formatter", [TextFormatter(redact), JsonFormatter(redact)])
def test_secrets_are_redacted_in_the_sentence_and_in_the_traceback(formatter):
    record = a_record("cannot connect with %s", CANARY)
    record.exc_info = (ValueError, ValueError(CANARY), None)
    line = formatter.format(record)
    assert CANARY not in line
    assert "cannot connect with ***" in line
    assert "ValueError: ***" in line
    assert ("\n" in line) is isinstance(formatter, TextFormatter)


def test_a_list_of_jobs_is_bounded_and_counted():
    fields = job_fields(str(number) for number in range(5000))
    assert (len(fields["job_ids"]), fields["jobs"]) == (10, 5000)


def test_a_take_over_names_the_jobs(caplog):
    job_log.log_reclaimed([str(number) for number in range(5)])
    (record,) = caplog.records
    assert (
        record.getMessage()
        == "released 5 jobs of dead orchestrators, which can be claimed: 0, 1, 2 and 2 more"
    )
    assert vars(record)["job_ids"] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    "log",
    [
        lambda: task_lines.log_task(logging.WARNING, "is killed", TASK),
        lambda: task_lines.log_blocked([TASK], "9"),
    ],
)
def test_a_line_about_a_task_has_its_job_and_node(caplog, log):
    log()
    line = TextFormatter(redact).format(caplog.records[0])
    assert "handler cut" in line
    assert line.endswith("job_id=7 node_id=tile attempt=2 task_id=9")


def test_dropped_reports_name_their_nodes(caplog):
    task_lines.log_dropped([TASK] * 20, is_unanswered=False)
    fields = vars(caplog.records[0])
    assert (fields["nodes"], caplog.messages) == (
        ["7/tile"] * 10,
        ["20 reports dropped; their tasks are held by other workers"],
    )


_IMPORTS_NUMEXPR = """
import contextlib, logging
from dagmaster.telemetry.logs import LogFormat, LogLevel, configure_logs
from dagmaster.worker.process_main import log_to_stderr
from dagmaster.worker.task_log_capture import capture
{setup}
with {context}:
    logging.getLogger("numexpr.utils").info("NumExpr defaulting to 8 threads.")
    logging.getLogger("other").info("seen")
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("setup", "context"),
    [
        ("configure_logs(LogFormat.TEXT, LogLevel.INFO, redact=str)", "contextlib.nullcontext()"),
        ("log_to_stderr()", "contextlib.nullcontext()"),
        ("logging.basicConfig(level='INFO')", "capture()"),
    ],
)
def test_numexpr_does_not_log_its_threads(setup, context):
    code = _IMPORTS_NUMEXPR.format(setup=setup, context=context)
    written = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert "seen" in written
    assert "NumExpr" not in written

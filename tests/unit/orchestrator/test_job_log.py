"""The lines about jobs name them, in the sentence and as fields."""

from __future__ import annotations

from dagmaster.orchestrator import job_log


def test_the_line_about_lost_tasks_names_each_job_once(caplog):
    job_log.log_lost_tasks(["7", "7", "9"])
    (record,) = caplog.records
    assert record.getMessage() == "marked 3 tasks of dead workers as lost: of jobs 7 and 9"
    assert (record.job_ids, record.jobs) == (["7", "9"], 2)
    job_log.log_lost_tasks(["7"])
    assert caplog.records[-1].getMessage() == "marked 1 task of dead workers as lost: of job 7"

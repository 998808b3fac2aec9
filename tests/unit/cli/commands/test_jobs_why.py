"""How reasons look: what comes first stands first, what to type stands below it, and all fits the screen."""

from __future__ import annotations

import json
from typing import Any

from dagmaster.cli.advice import advice
from dagmaster.cli.commands.jobs_why import chain_document, chain_page, job_document, job_page
from dagmaster.engine.diagnosis.context import ChildJob, DiagnosisContext, InFlightTask, Service
from dagmaster.engine.diagnosis.explain import Why
from dagmaster.engine.diagnosis.reasons import Reason, ReasonCode
from dagmaster.store.postgres.legacy_diagnosis_reader import Explained
from dagmaster.testing import Driver, a_job, approval, fan_out, task, workflow
from tests.unit.cli.views import drawn

OWNER = Service(id="1", where="h:1", silent_seconds=1.0, lease_seconds=15.0)


def explained(driver: Driver, **around: Any) -> Explained:
    given: dict[str, Any] = {"now": 1000.0, "owner": OWNER} | around
    why = Why(driver.rebuilt(), DiagnosisContext(**given))
    return Explained(job_id="7", workflow_id="flow", version=2, deadline_at=1090.0, started_at=400.0, why=why)


def started(**nodes: Any) -> Driver:
    driver = Driver(a_job(**nodes), now=1000.0)
    driver.starts()
    return driver


def in_queue(*node_ids: str) -> dict[str, InFlightTask]:
    return {node_id: InFlightTask(queue="light", dispatched_at=400.0) for node_id in node_ids}


def test_a_page_begins_with_what_comes_first_and_what_to_type():
    driver = started(f=fan_out([1, 2, 3, 4]), ask=approval(approvers="ada"), last="f ask")
    said = drawn(*job_page(explained(driver, tasks=in_queue("f__0", "f__1", "f__2", "f__3")), []))
    lines = said.splitlines()
    assert lines[0] == "▶ running  flow v2  job 7  10 min 0 s  deadline in 1 min"
    assert lines[2] == "4 children of f wait in queue light: no live worker serves it"
    assert lines[3] == "  dagmaster worker --queue light"
    assert "▷ 4 children of f  wait in queue light: no live worker serves it" in said
    assert "f__0, f__1, f__2, …" in said
    assert "⏸ ask              waits for approval by ada" in said


def test_a_chain_has_its_root_last():
    driver = started(cog=task(retry=3), publish="cog", after="publish")
    driver.fails("cog", message="Timeout")
    found = explained(driver)
    said = drawn(*chain_page(found, found.why.chain("after"), []))
    assert said.splitlines()[2:] == [
        "· after      waits for publish",
        "└ · publish  waits for cog",
        "  └ ○ cog    rests: try 2 of 3 in 2 s, after Timeout",
        "  dagmaster jobs retry 7 cog",
    ]


def test_a_child_job_is_explained_below_its_node():
    parent = started(w=workflow())
    child = started(ask=approval(approvers="ada"))
    found, inner = explained(parent, child_jobs={"w": ChildJob(id="8", status="RUNNING")}), explained(child)
    said = drawn(*job_page(found, [(inner, inner.why.chain("ask"))]))
    assert "└ job 7 (flow): ask waits for approval by ada" in said


def test_a_page_fits_eighty_columns_and_names_no_more_than_it_can():
    nodes: dict[str, Any] = {f"a_node_with_a_rather_long_name_{i}": approval(approvers="x" * i) for i in range(1, 40)}
    found = explained(started(**nodes), questions=dict.fromkeys(nodes, "why? " * 40))
    said = drawn(*job_page(found, []))
    assert max(map(len, said.splitlines())) <= 80
    assert said.splitlines()[-1] == "… 19 more nodes: --json has all"


def test_programs_get_every_node_and_every_link():
    driver = started(a="", b="a")
    found = explained(driver, tasks=in_queue("a"))
    said = json.loads(json.dumps(job_document(found, [])))
    assert said["reason"]["code"] == "no_worker"
    assert said["nodes"]["b"]["because"] == ["a"]
    assert (said["nodes"]["a"]["status"], said["nodes"]["a"]["data"]["queue"]) == ("DISPATCHED", "light")
    assert said["groups"][0]["count"] == 1
    chain = json.loads(json.dumps(chain_document(found, found.why.chain("b"), [])))["chain"]
    assert [(link["node"], link["code"]) for link in chain] == [("b", "nodes"), ("a", "no_worker")]


def test_what_to_type_is_a_command():
    data = {"queue": "light", "signal": "go", "job_id": "8"}
    said = {code: advice("7", Reason(code=code, sentence="x", data=data), "a") for code in ReasonCode}
    assert all(command.startswith("dagmaster ") for command in said.values() if command)
    assert said[ReasonCode.SIGNAL] == "dagmaster jobs signal 7 go"
    assert said[ReasonCode.RUNNING] == ""

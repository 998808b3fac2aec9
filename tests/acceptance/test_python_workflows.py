"""Workflows of Python files with the commands: run, push, validate, diagram, export, and a worker that has the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from dagmaster.store.embedded.server import EmbeddedPostgres
from tests.acceptance.fork_server import ROOT, run_command
from tests.acceptance.test_readme import read_steps
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import copy_migrated_cluster, server_folder

EXAMPLE = str(ROOT / "examples" / "decorated.py")
FLOW = """
from __future__ import annotations

import sys
from typing import Any

from dagmaster import Future, task, workflow


@task(queue="q")
def give(which: str) -> Any:
    return {"none": None, "list": [1, None], "text": "t", "main": sys.modules["__main__"].__spec__.name}[which]


@task(queue="q")
async def pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


@workflow
def flow(which: Future[str]):
    value = give(which)
    return pair(value, give.map(["none", "text"]))


@workflow
def other():
    give("none")


@workflow
def broken(count: Future[int]):
    if count > 3:
        give("none")
"""


@pytest.fixture(scope="module", autouse=True)
def database():
    """Provide a database for the runs of this module, which stays up between them."""
    with server_folder() as folder, pytest.MonkeyPatch.context() as patch:
        copy_migrated_cluster(folder / "postgres")
        patch.setenv("DAGMASTER_DATA_DIR", str(folder / "postgres"))
        with EmbeddedPostgres(folder / "postgres"):
            yield


def test_the_commands_of_the_tutorial_work_as_written(tmp_path):
    steps = read_steps((ROOT / "docs" / "tutorial" / "python.md").read_text())
    for step in steps:
        if step.file:
            (tmp_path / step.file).write_text(step.text)
    lines = [step.text for step in steps if not step.file]
    assert len(lines) == 5
    for line in lines:
        done = run_command(*line.split()[1:], env=dict(os.environ), cwd=tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert (tmp_path / "rain.svg").read_text().startswith("<svg")
    assert (tmp_path / "rain.yaml").read_text().startswith("workflow_id: rain")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_flow.py"
    path.write_text(FLOW)
    return str(path)


def dagmaster(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_command(*arguments, env=dict(os.environ))
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.parametrize(
    ("which", "value"),
    [("none", None), ("list", [1, None]), ("text", "t"), ("main", "dagmaster.worker.process_main")],
)
def test_results_of_any_json_value_are_stored_and_plain_functions_run_in_child_processes(file, which, value):
    job = json.loads(dagmaster("run", f"{file}:flow", "-i", f"which={which}", "--json").stdout)
    assert job["result"] == {"result": [value, [None, "t"]]}
    # Outputs that are no mappings have no footprint, and are no error.
    assert "has no footprints" in dagmaster("jobs", "footprints", job["job_id"], code=2).stderr


def test_the_example_runs_and_its_job_can_be_shown():
    done = dagmaster("run", f"{EXAMPLE}:nightly", "-i", "day=2026-01-01", "--json")
    job = json.loads(done.stdout)
    assert (job["status"], job["result"]["summary"]["stations"]) == ("COMPLETED", 12)
    shown = dagmaster("jobs", "show", job["job_id"], "--json")
    assert json.loads(shown.stdout)["workflow_id"] == "nightly"


@pytest.mark.parametrize(
    ("script", "line"),
    [("nightly_etl", "is COMPLETED: 1900 rows of 3 sources"), ("airflow_style", "COMPLETED")],
)
def test_an_example_of_a_graph_in_code_runs_as_a_script(script, line):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{script}.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert line in done.stdout


def test_a_job_without_a_result_completes(file):
    done = dagmaster("run", f"{file}:other", "--json", "--ephemeral")
    assert json.loads(done.stdout)["status"] == "COMPLETED"


def test_a_file_of_several_workflows_needs_a_name_and_a_wrong_name_is_corrected(file):
    done = dagmaster("run", file, "--ephemeral", code=2)
    assert "several workflows: flow, other, broken" in done.stderr
    assert f"name one: {file}:flow" in done.stderr
    done = dagmaster("run", f"{file}:flwo", "--ephemeral", code=2)
    assert "no workflow 'flwo'" in done.stderr
    assert "did you mean 'flow'?" in done.stderr
    dagmaster("run", f"{file}x:flow", code=2)


def test_problems_are_at_python_lines(file):
    done = dagmaster("workflows", "validate", file, code=2)
    line = FLOW.splitlines().index("    if count > 3:") + 1
    assert f"{file}:{line}:" in done.stderr
    assert "if count > 3:" in done.stderr
    assert "conditional(" in done.stderr
    assert f"ok  {file}:flow" in done.stdout
    done = dagmaster("run", f"{file}:broken", "-i", "count=1", code=2)
    assert f"{file}:{line}:" in done.stderr


def test_a_file_that_cannot_be_imported_is_a_problem(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("import not_there\n")
    for command in (["run"], ["workflows", "validate"], ["workflows", "diagram"], ["workflows", "export"]):
        done = dagmaster(*command, str(path), code=2)
        assert "not_there" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    path.write_text("x = 1\n")
    assert "the file has no workflow" in dagmaster("workflows", "validate", str(path), code=2).stderr


def test_a_file_with_tasks_in_a_module_of_its_folder_is_run_validated_and_pushed_from_anywhere(
    file, tmp_path
):
    path = tmp_path / "imports_tasks.py"
    path.write_text("""
from dagmaster import workflow
from my_flow import give

@workflow
def imported(which: str = "text"):
    return give(which)
""")
    assert json.loads(dagmaster("run", str(path), "--ephemeral", "-q").stdout) == {"result": "t"}
    assert "ok" in dagmaster("workflows", "validate", str(path), f"{file}:flow").stdout
    assert "imported v1" in dagmaster("workflows", "push", str(path)).stdout


def test_an_exported_file_is_the_same_graph(file, tmp_path):
    target = str(tmp_path / "flow.yaml")
    dagmaster("workflows", "export", f"{file}:flow", "-o", target)
    drawn = dagmaster("workflows", "diagram", f"{file}:flow").stdout
    assert dagmaster("workflows", "diagram", target, "--handlers", file).stdout == drawn
    done = dagmaster("run", target, "-i", "which=text", "--handlers", file, "--ephemeral")
    assert json.loads(done.stdout)["result"] == ["t", [None, "t"]]


CHILDREN = """
from dagmaster import task, workflow

@task(queue="light")
def inc(x: int) -> int:
    return x + 1

@workflow
def child(x: int = 1):
    return inc(x)

@workflow
def parent(x: int = 1):
    return child(child(x))
"""


def test_an_export_names_the_workflows_of_child_jobs_and_writes_them_to_a_folder(tmp_path):
    code, target, folder = str(tmp_path / "calls.py"), str(tmp_path / "one.yaml"), tmp_path / "all"
    (tmp_path / "calls.py").write_text(CHILDREN)
    assert (
        "it runs child: export these next to it"
        in dagmaster("workflows", "export", f"{code}:parent", "-o", target).stderr
    )
    assert "it runs" not in dagmaster("workflows", "export", f"{code}:child").stderr
    assert (
        "workflow_id: child" in dagmaster("workflows", "export", f"{code}:child", "-o", "/dev/stdout").stdout
    )
    assert "workflow_id: child" in dagmaster("workflows", "export", f"{code}:child", "-o", "-").stdout
    dagmaster("workflows", "export", f"{code}:parent", "-o", str(folder))
    assert sorted(file.name for file in folder.iterdir()) == ["child.yaml", "parent.yaml"]
    done = dagmaster("run", str(folder / "parent.yaml"), "--handlers", code, "--ephemeral", "-q")
    assert json.loads(done.stdout) == {"result": 3}


QUEUES = """
from dagmaster import Workflow, create_task, task, workflow

def plain(x: int) -> int:
    return x + 1

@task(queue="light")
def named(x: int) -> int:
    return x + 1

@task
def unnamed(x: int) -> int:
    return x + 1

of_tasks = Workflow.from_tasks(
    "of_tasks", [create_task(plain, {"x": 1}), create_task(named, {"x": 2}), create_task(unnamed, {"x": 3})]
)

@workflow
def of_calls():
    return {"plain": unnamed(1), "named": named(2)}
"""


@pytest.mark.parametrize("name", ["of_tasks", "of_calls"])
def test_an_exported_file_runs_without_queues_as_the_code_does(tmp_path, name):
    code, target = str(tmp_path / "queues.py"), str(tmp_path / "flow.yaml")
    (tmp_path / "queues.py").write_text(QUEUES)
    dagmaster("workflows", "export", f"{code}:{name}", "-o", target)
    done = dagmaster("run", target, "--handlers", code, "--ephemeral", "-q")
    assert done.stdout == dagmaster("run", f"{code}:{name}", "--ephemeral", "-q").stdout
    dagmaster("storm", target, "--handlers", code, "--seeds", "2")
    # Workers serve the queues that their operator names.
    assert (
        "missing key 'queue'" in dagmaster("workflows", "validate", target, "--handlers", code, code=2).stderr
    )


def test_a_file_is_submitted_with_its_tasks(file):
    done = dagmaster("submit", f"{file}:flow", "-i", "which=text", "--json")
    job = json.loads(dagmaster("jobs", "show", json.loads(done.stdout)["job_id"], "--json").stdout)
    assert job["workflow_id"] == "flow"
    assert "there is no file" in dagmaster("submit", "nowhere.py:flow", code=2).stderr
    assert "no workflow 'flwo'" in dagmaster("submit", f"{file}:flwo", code=2).stderr


def test_a_pushed_workflow_is_run_by_a_worker_whose_operator_allowed_the_file(file):
    done = dagmaster("workflows", "push", f"{file}:flow")
    assert "flow v1" in done.stdout
    assert "unchanged" in dagmaster("workflows", "push", f"{file}:flow").stdout
    shown = json.loads(dagmaster("workflows", "show", "flow", "--json").stdout)
    assert shown["definition"]["nodes"]["give"]["handler"] == "my_flow.give"
    listed = json.loads(dagmaster("handlers", "list", "--handlers", file, "--json").stdout)
    assert {"my_flow.give", "my_flow.pair"} <= {one["name"] for one in listed}
    assert not any(
        one["name"] == "my_flow.give" for one in json.loads(dagmaster("handlers", "list", "--json").stdout)
    )

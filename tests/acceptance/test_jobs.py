"""Jobs as a user sees and controls them: real commands, an orchestrator and a worker as processes, a real database."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from dagmaster.store.embedded.server import EmbeddedPostgres
from tests.acceptance.fork_server import DAGMASTER, ROOT, CommandProcess, run_command
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import copy_migrated_cluster, make_server_folder

if TYPE_CHECKING:
    from pathlib import Path

HANDLERS = """
import pathlib

from dagmaster import handler

@handler("talk", queue="default")
async def talk(text: str) -> dict:
    print(text)
    return {"text": text}

@handler("tile", queue="default")
async def tile(tile: int, repaired_file: str) -> dict:
    if tile == 47 and not pathlib.Path(repaired_file).exists():
        raise RuntimeError("tile 47 is broken")
    return {"n": tile}
"""
FLOW = """
workflow_id: talk
version: 1
inputs:
  token: {type: string, secret: true}
nodes:
  first: {handler: talk, queue: default, params: {text: "one\\ntwo"}, next: second}
  second: {handler: talk, queue: default, params: {text: "three"}}
"""
FAILING = """
workflow_id: failing
version: 1
nodes:
  good: {handler: echo, queue: default, next: bad}
  bad: {handler: fail, queue: default, params: {message: "no network", permanent: true}, next: after}
  after: {handler: echo, queue: default}
"""
TILES = f"""
workflow_id: tiled
version: 1
inputs:
  repaired_file: {{type: string}}
  year: {{type: integer, default: 2024}}
nodes:
  about: {{handler: echo, params: {{year: "{{{{ inputs.year }}}}"}}, queue: default}}
  tiles:
    type: fan_out
    source: {list(range(100))}
    max_parallel: 20
    task: {{handler: tile, retry: none, params: {{tile: "{{{{ item }}}}", repaired_file: "{{{{ inputs.repaired_file }}}}"}}}}
    next: all
  all: {{type: fan_in, aggregation: sum}}
outputs: {{total: "{{{{ nodes.all.output.total }}}}", year: "{{{{ nodes.about.output.echoed_params.year }}}}"}}
"""
STUCK = "{workflow_id: stuck, version: 1, nodes: {a: {handler: echo, queue: unserved}}}"


class Sandbox:
    """A database, and a folder of files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {**os.environ, "DAGMASTER_DATA_DIR": str(path / "data"), "COLUMNS": "80", "TERM": "dumb"}

    def dagmaster(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(*arguments, env=self.env)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return CommandProcess([DAGMASTER, *arguments], text=True, cwd=ROOT, env=self.env, **options)

    def json(self, *arguments: str) -> Any:
        done = self.dagmaster(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def write(self, name: str, text: str) -> str:
        file = self.path / name
        file.write_text(text)
        return str(file)

    def submit(self, workflow: str, *arguments: str) -> str:
        job_id: str = self.json("submit", workflow, *arguments)["job_id"]
        return job_id

    def until(self, job_id: str, kind: str) -> None:
        """Follow the events of a job until this type."""
        process = self.start("jobs", "events", job_id, "-f", "--json", stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process:
            assert any(json.loads(line)["type"] == kind for line in process.stdout)
            process.terminate()


@pytest.fixture(scope="module")
def sandbox():
    path = make_server_folder()
    copy_migrated_cluster(path / "data")
    sandbox = Sandbox(path)
    handlers = sandbox.write("talking.py", HANDLERS)
    services: list[subprocess.Popen[str]] = []
    try:
        services.append(sandbox.start("orchestrator", stderr=subprocess.DEVNULL))
        worker = ("worker", "--queue", "default", "--handlers", handlers)
        services.append(sandbox.start(*worker, stderr=subprocess.DEVNULL))
        yield sandbox
    finally:
        for service in services:
            service.send_signal(signal.SIGTERM)
        for service in services:
            service.wait(timeout=PATIENCE_SECONDS)
        shutil.rmtree(path, ignore_errors=True)


def talk_file(sandbox: Sandbox) -> str:
    # The commands that compile need the handlers, too.
    return sandbox.write("talk.yaml", FLOW)


def test_a_job_is_watched_listed_shown_and_its_logs_are_printed(sandbox):
    handlers = ("--handlers", str(sandbox.path / "talking.py"))
    job_id = sandbox.submit(talk_file(sandbox), "-i", "token=hunter2", *handlers)
    watched = sandbox.dagmaster("jobs", "watch", job_id)
    assert watched.returncode == 0
    assert "first completed" in watched.stderr
    assert "COMPLETED in" in watched.stderr
    assert "2 nodes, 2 attempts" in watched.stderr
    listed = sandbox.dagmaster("jobs", "list", "--workflow", "talk").stdout
    assert job_id in listed
    assert "✔ completed" in listed
    shown = sandbox.dagmaster("jobs", "show", job_id)
    assert "✔ second  talk" in shown.stdout
    document = sandbox.json("jobs", "show", job_id)
    assert document["nodes"]["second"]["status"] == "COMPLETED"
    assert document["inputs"] == {"token": "***"}
    assert "hunter2" not in shown.stdout + json.dumps(document)
    assert sandbox.dagmaster("jobs", "logs", job_id).stdout == "first │ one\nfirst │ two\nsecond │ three\n"
    assert sandbox.dagmaster("jobs", "logs", job_id, "second").stdout == "three\n"
    assert (
        "wrote nothing in attempt 2"
        in sandbox.dagmaster("jobs", "logs", job_id, "first", "--attempt", "2").stderr
    )


def test_an_approval_waits_for_an_answer(sandbox):
    job_id = sandbox.submit("workflows/approval.yaml")
    sandbox.until(job_id, "ApprovalRequested")
    assert sandbox.json("jobs", "list", "--status", "waiting")["items"][0]["job_id"] == job_id
    shown = sandbox.dagmaster("jobs", "show", job_id).stdout
    assert "waits for approval: Release dem_2026 to the public?" in shown
    assert f"dagmaster jobs approve {job_id} release" in shown
    wrong = sandbox.dagmaster("jobs", "approve", job_id, "relase")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "Error: approval has no node 'relase'. Did you mean 'release'?\n",
    )
    no_approval = sandbox.dagmaster("jobs", "reject", job_id, "prepare")
    assert (no_approval.returncode, "is not an approval" in no_approval.stderr) == (2, True)
    yes = sandbox.dagmaster("jobs", "approve", job_id, "release", "--comment", "fine", "--as", "ada")
    assert (yes.returncode, yes.stdout) == (0, "ada approved release: fine\n")
    assert sandbox.dagmaster("jobs", "watch", job_id).returncode == 0
    assert "has finished" in sandbox.dagmaster("jobs", "approve", job_id, "release").stderr


def test_a_failed_job_has_a_reason_and_can_be_resumed(sandbox):
    job_id = sandbox.submit(sandbox.write("failing.yaml", FAILING))
    watched = sandbox.dagmaster("jobs", "watch", job_id)
    assert watched.returncode == 1
    assert "node bad failed: no network" in watched.stderr
    shown = sandbox.dagmaster("jobs", "show", job_id).stdout
    assert "✘ bad" in shown
    assert "↷ after  echo  upstream failed" in shown
    assert sandbox.dagmaster("jobs", "retry", job_id, "good").returncode == 2
    resumed = sandbox.dagmaster("jobs", "resume", job_id)
    assert (resumed.returncode, resumed.stdout) == (0, "run 2 starts: 2 nodes to run again\n")
    again = sandbox.dagmaster("jobs", "watch", job_id)
    assert again.returncode == 1
    assert "run 2 starts" in again.stderr
    assert "the job starts" not in again.stderr
    assert sandbox.json("jobs", "show", job_id)["run"] == 2


def test_resume_reruns_one_failed_tile_of_a_hundred_and_a_dry_run_announces_it(sandbox):
    repaired_file = sandbox.path / "repaired_file"
    flow = sandbox.write("tiled.yaml", TILES)
    job_id = sandbox.submit(
        flow, "--handlers", str(sandbox.path / "talking.py"), "-i", f"repaired_file={repaired_file}"
    )
    assert sandbox.dagmaster("jobs", "watch", job_id).returncode == 1
    output = sandbox.dagmaster("jobs", "logs", job_id, "tiles__47").stdout
    assert "Traceback" in output
    assert output.endswith("RuntimeError: tile 47 is broken\n")
    planned = sandbox.json("jobs", "resume", job_id, "--dry-run")
    assert [node["node"] for node in planned["reused"]] == ["about"]
    assert planned["redone"][0]["children"] == {"reused": 99, "redone": 1}
    assert planned["redone"][0]["reason"].endswith("1 redone: tiles__47 failed")
    assert sandbox.json("jobs", "retry", job_id, "tiles__47", "--dry-run")["redone"] == planned["redone"]
    output = sandbox.dagmaster("jobs", "resume", job_id, "--dry-run").stdout
    assert all(
        line in output for line in ("Nothing was changed", "reused (1)", "redone (2)", "impossible (0)")
    )
    repaired_file.touch()
    ended = sandbox.json("jobs", "resume", job_id, "--wait")
    assert (ended["job_id"], ended["run"], ended["result"]["total"]) == (job_id, 2, 4950)
    assert ended["attempts"] == 102


def test_a_resume_with_another_input_is_a_new_job_that_runs_only_changed_nodes(sandbox):
    repaired_file = sandbox.path / "repaired_file"
    repaired_file.touch()
    flow = sandbox.write("tiled.yaml", TILES)
    job_id = sandbox.submit(
        flow, "--handlers", str(sandbox.path / "talking.py"), "-i", f"repaired_file={repaired_file}", "--wait"
    )
    planned = sandbox.json("jobs", "resume", job_id, "-i", "year=2025", "--dry-run")
    assert [node["node"] for node in planned["reused"]] == ["tiles", "all"]
    assert planned["redone"] == [
        {"node": "about", "reason": "inputs.year changed", "children": None, "is_added_again": False}
    ]
    new = sandbox.json("jobs", "resume", job_id, "-i", "year=2025")
    assert (new["is_new"], new["resumed_from"]) == (True, job_id)
    ended = sandbox.json("jobs", "watch", new["job_id"])
    assert (ended["result"], ended["attempts"]) == ({"total": 4950, "year": 2025}, 1)
    assert (ended["resumed_from"], planned["job_id"]) == (job_id, job_id)
    output = sandbox.dagmaster("jobs", "events", new["job_id"]).stdout
    assert f"resumed from job {job_id}" in output
    assert f"tiles__3 reuses the result of tiles__3 of job {job_id}" in output
    # Sent again, it is the same job; with its own key it is another one.
    again = sandbox.json("jobs", "resume", job_id, "-i", "year=2025")
    assert (again["job_id"], again["is_new"]) == (new["job_id"], False)
    other = sandbox.dagmaster(
        "jobs", "resume", job_id, "-i", "year=2025", "--idempotency-key", "once more", "--wait"
    )
    assert other.returncode == 0, other.stderr
    assert json.loads(other.stdout) == {"total": 4950, "year": 2025}
    assert_invalid_resumes_are_rejected(sandbox, job_id)


def assert_invalid_resumes_are_rejected(sandbox: Sandbox, job_id: str) -> None:
    for arguments, reason in (
        ([], "completed: name the nodes to run again"),
        (["-i", "year=2024"], "completed with these inputs and this version"),
        (["-i", "yeer=1", "--dry-run"], "did you mean 'year'?"),
        (["--version", "4"], "no workflow 'tiled' is published"),
        (["--from", "tilez", "--dry-run"], "Did you mean 'tiles'?"),
        (["-i", "year=1", "--from", "tiles__1"], "name their fan-out, tiles, instead"),
    ):
        done = sandbox.dagmaster("jobs", "resume", job_id, *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert reason in " ".join(done.stderr.split()), arguments
    assert sandbox.json("jobs", "show", job_id)["run"] == 1


def test_children_of_a_fan_out_are_counted_and_listed_only_on_request(sandbox):
    job_id = sandbox.submit("workflows/fan_out.yaml", "-i", "count=500")
    ended = sandbox.json("jobs", "watch", job_id)
    assert ended["result"] == {"tasks": 500, "total": 125250}
    assert ended["nodes"]["work"]["children"] == {"total": 500, "counts": {"COMPLETED": 500}}
    assert (ended["attempts"], sum(ended["counts"].values())) == (501, 503)
    assert list(ended["nodes"]) == ["plan", "work", "total"]
    assert "work__499" in sandbox.json("jobs", "show", job_id, "--all")["nodes"]


def test_a_job_without_a_worker_names_the_command_to_start_one_and_can_be_cancelled(sandbox):
    job_id = sandbox.submit(sandbox.write("stuck.yaml", STUCK))
    sandbox.until(job_id, "NodeDispatched")
    shown = sandbox.dagmaster("jobs", "show", job_id).stdout
    assert "no live worker serves this queue" in shown
    assert "dagmaster worker --queue unserved" in " ".join(shown.split())
    assert "✘ no live worker serves " in sandbox.dagmaster("fleet").stdout
    fleet = sandbox.json("fleet")
    assert [
        len([service for service in fleet[kind] if service["is_alive"]])
        for kind in ("orchestrators", "workers")
    ] == [1, 1]
    watching = sandbox.start("jobs", "watch", job_id, stderr=subprocess.PIPE)
    assert watching.stderr is not None
    with watching:
        assert "submitted" in watching.stderr.readline()
        assert any("no live worker serves this queue" in line for line in watching.stderr)
        watching.send_signal(signal.SIGINT)
        assert "the job continues" in watching.stderr.read()
        assert watching.wait(timeout=PATIENCE_SECONDS) == 130
    done = sandbox.json("jobs", "cancel", job_id, "--wait")
    assert (done["status"], done["nodes"]["a"]["status"]) == ("CANCELLED", "CANCELLED")


def test_a_published_version_does_not_change(sandbox):
    flow = sandbox.write(
        "pushed.yaml", "{workflow_id: pushed, version: 1, nodes: {a: {handler: echo, queue: default}}}"
    )
    assert sandbox.dagmaster("workflows", "push", flow).stdout == "published  pushed v1\n"
    assert sandbox.dagmaster("workflows", "push", flow).stdout == "unchanged  pushed v1\n"
    sandbox.write(
        "pushed.yaml", "{workflow_id: pushed, version: 1, nodes: {b: {handler: echo, queue: default}}}"
    )
    rejected = sandbox.dagmaster("workflows", "push", flow)
    assert rejected.returncode == 2
    assert "raise `version:` to 2" in rejected.stderr
    assert sandbox.dagmaster("workflows", "push", flow, "--replace").returncode == 0
    assert sandbox.json("workflows", "show", "pushed")["definition"]["nodes"].keys() == {"b"}
    assert "pushed" in sandbox.dagmaster("workflows", "list").stdout
    assert "'pushed'" in sandbox.dagmaster("workflows", "show", "pusht").stderr
    sandbox.write("pushed.yaml", "{workflow_id: pushed, version: 2, nodes: {b: {handler: ecko}}}")
    wrong = sandbox.dagmaster("workflows", "push", flow)
    assert (wrong.returncode, "nothing was published" in wrong.stderr) == (2, True)


def test_new_jobs_get_the_version_that_is_active(sandbox):
    text = "{{workflow_id: chosen, version: {version}, nodes: {{a: {{handler: echo, queue: unserved, params: {{v: {version}}}}}}}}}"
    for version in (1, 2):
        flow = sandbox.write("chosen.yaml", text.format(version=version))
        assert sandbox.dagmaster("workflows", "push", flow).returncode == 0
    assert sandbox.json("submit", "chosen")["version"] == 2
    assert (
        sandbox.dagmaster("workflows", "activate", "chosen", "1").stdout
        == "new jobs of chosen get v1 (before: v2)\n"
    )
    assert sandbox.json("submit", "chosen")["version"] == 1
    again = sandbox.json("workflows", "activate", "chosen", "2")
    assert (again["version"], again["previous_version"]) == (2, 1)
    flow = sandbox.write("chosen.yaml", text.format(version=3))
    assert (
        sandbox.dagmaster("workflows", "push", flow, "--no-activate").stdout
        == "published  chosen v3, not active\n"
    )
    assert sandbox.json("submit", "chosen")["version"] == 2
    assert sandbox.json("submit", "chosen", "--version", "3")["version"] == 3
    for arguments, reason in (
        (("chosen", "9"), "its versions are 3, 2 and 1"),
        (("choosen", "1"), "'chosen'"),
    ):
        done = sandbox.dagmaster("workflows", "activate", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert reason in done.stderr


BATCH = """
workflow_id: batch
version: 1
inputs: {x: {type: integer, required: true}, y: {type: integer, default: 0}}
nodes: {a: {handler: echo, queue: default, params: {x: "{{ inputs.x }}", y: "{{ inputs.y }}"}}}
outputs: {x: "{{ inputs.x }}", y: "{{ inputs.y }}"}
"""


def test_a_batch_is_submitted_line_by_line_and_a_bad_line_does_not_stop_the_others(sandbox):
    flow = sandbox.write("batch.yaml", BATCH)
    lines = sandbox.write("batch.jsonl", '{"x": 1}\n{"x": "one"}\n{"x": 3, "y": 30}\n')
    submit = ("submit", flow, "--batch", lines, "-i", "y=10", "--idempotency-key", "night")
    done = sandbox.dagmaster(*submit)
    assert done.returncode == 2
    first, third = done.stdout.split()
    assert "line 2: inputs_invalid: " in done.stderr
    assert done.stderr.endswith("2 jobs accepted, 1 job rejected\n")
    # Inputs of the command line override those of every line.
    assert [sandbox.json("jobs", "watch", job_id)["result"] for job_id in (first, third)] == [
        {"x": 1, "y": 10},
        {"x": 3, "y": 10},
    ]
    repaired = sandbox.write("batch.jsonl", '{"x": 1}\n{"x": 2}\n{"x": 3, "y": 30}\n')
    again = sandbox.dagmaster(*submit[:3], repaired, *submit[4:])
    assert (again.returncode, again.stderr) == (0, "1 job accepted, 2 jobs existing\n")
    assert [again.stdout.split()[index] for index in (0, 2)] == [first, third]


def test_a_batch_that_cannot_be_read_or_is_too_long_submits_nothing(sandbox):
    flow = sandbox.write("batch.yaml", BATCH.replace("workflow_id: batch", "workflow_id: rejected"))
    for text, arguments, reason in (
        ('{"x": 1}\nnot json\n', (), "batch.jsonl:2: not JSON"),
        ('{"x": 1}\n[2]\n', (), "batch.jsonl:2: expected a JSON object"),
        ('{"x": 1}\n', ("--wait",), "--wait watches one job"),
        ('{"x": 1}\n' * 101, (), "at most 100 jobs, not 101"),
    ):
        done = sandbox.dagmaster("submit", flow, "--batch", sandbox.write("batch.jsonl", text), *arguments)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert reason in done.stderr
    assert sandbox.json("jobs", "list", "--workflow", "rejected")["items"] == []


def test_one_node_is_shown_with_its_attempts_its_item_and_its_output(sandbox):
    flow = """
workflow_id: pair
version: 1
inputs: {token: {type: string, secret: true, required: true}}
nodes:
  tiles:
    type: fan_out
    source: [{n: 46, by: "ada"}, {n: 47}]
    task: {handler: tile, queue: default, retry: none, params: {tile: "{{ item.n }}", repaired_file: "/nowhere/{{ inputs.token }}"}}
"""
    job_id = sandbox.submit(
        sandbox.write("pair.yaml", flow),
        "-i",
        "token=hunter2",
        "--handlers",
        str(sandbox.path / "talking.py"),
    )
    assert sandbox.dagmaster("jobs", "watch", job_id).returncode == 1

    good = sandbox.json("jobs", "show", job_id, "tiles__0")
    assert (good["status"], good["action"], good["output"]) == ("COMPLETED", "tile", {"n": 46})
    assert (good["parent_node_id"], good["fan_out_index"]) == ("tiles", 0)
    assert good["item"] == {"n": 46, "by": "ada"}
    (attempt,) = good["attempts"]
    assert (attempt["attempt"], attempt["status"], attempt["queue"]) == (1, "COMPLETED", "default")
    assert attempt["worker"]
    bad = sandbox.dagmaster("jobs", "show", job_id, "tiles__1").stdout
    assert "RuntimeError: tile 47 is broken" in bad
    assert 'raise RuntimeError("tile 47 is broken")' in bad, "an error is shown whole"
    assert '"n": 47' in bad
    assert sandbox.json("jobs", "show", job_id, "tiles")["children"] == {
        "total": 2,
        "counts": {"COMPLETED": 1, "FAILED": 1},
    }

    for command in ("show", "retry", "why"):
        done = sandbox.dagmaster("jobs", command, job_id, "tiles__9")
        assert (done.returncode, done.stdout) == (2, "")
        assert "tiles has 2 children, tiles__0 to tiles__1" in done.stderr


def test_an_unknown_job_is_reported(sandbox):
    for arguments in (["jobs", "show", "12"], ["jobs", "cancel", "x'; --"]):
        done = sandbox.dagmaster(*arguments)
        assert (done.returncode, "there is no job" in done.stderr) == (2, True)


def test_an_audit_reports_violated_invariants(sandbox):
    job_id = sandbox.submit("workflows/hello_world.yaml")
    assert sandbox.dagmaster("jobs", "watch", job_id).returncode == 0
    valid = sandbox.dagmaster("jobs", "audit", job_id)
    assert (valid.returncode, valid.stdout.startswith("✔ 1 job")) == (0, True)
    assert sandbox.json("jobs", "audit")["violations"] == []
    with EmbeddedPostgres(sandbox.path / "data") as server:
        asyncio.run(_lose_event(server.dsn, int(job_id)))
    broken = sandbox.dagmaster("jobs", "audit", job_id)
    assert broken.returncode == 1
    assert "✘ The events of a job are numbered from 1 to its event_seq, and none is missing." in broken.stdout
    assert f"    job {job_id} has " in broken.stdout
    assert broken.stdout.endswith("1 of 21 invariants are violated\n")


async def _lose_event(dsn: str, job_id: int) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE dagapp.dag_jobs SET event_seq = event_seq + 1 WHERE id = $1", job_id)
    await connection.close()

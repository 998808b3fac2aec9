"""The commands as a user starts them: real processes, real files."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dagmaster.store.embedded.server import EmbeddedPostgres
from tests.acceptance.fork_server import DAGMASTER, ROOT, run_command
from tests.environment import LOG_DIR
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import copy_migrated_cluster, server_folder

HELLO = str(ROOT / "workflows" / "hello_world.yaml")


def dagmaster(*arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, stdin=stdin, env={**os.environ, **env})


@pytest.fixture(scope="module", autouse=True)
def database():
    """Provide a database for the runs of this module, which stays up between them."""
    with server_folder() as folder, pytest.MonkeyPatch.context() as patch:
        copy_migrated_cluster(folder / "postgres")
        patch.setenv("DAGMASTER_DATA_DIR", str(folder / "postgres"))
        with EmbeddedPostgres(folder / "postgres"):
            yield


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "flow.yaml") -> str:
        file = tmp_path / name
        file.write_text(text)
        return str(file)

    return write


def test_every_command_has_help():
    for command in (
        [],
        ["run"],
        ["workflows"],
        ["workflows", "validate"],
        ["handlers"],
        ["handlers", "test"],
    ):
        done = from_its_entry_point(*command, "--help")
        assert done.returncode == 0
        assert "Usage: dagmaster" in done.stdout


def from_its_entry_point(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell does: the others here are forked from a process that has imported dagmaster."""
    return subprocess.run(
        [DAGMASTER, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_a_workflow_runs_from_the_entry_point():
    done = from_its_entry_point("run", HELLO, "-i", "name=Ada")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"message": "Hello, Ada!"})
    assert from_its_entry_point("run", "nowhere.yaml").returncode == 2


def test_for_an_unknown_command_the_most_similar_one_is_suggested():
    done = from_its_entry_point("workflow")
    assert done.returncode == 2
    assert "'workflows'" in done.stderr


def test_help_imports_neither_pydantic_nor_jinja_nor_asyncio():
    code = "import sys; from dagmaster.cli.main import cli; cli.main(['--help'], standalone_mode=False); print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "click" in modules
    assert not {"pydantic", "jinja2", "asyncio", "rich"} & set(modules)


READING = [
    "jobs list",
    "jobs show last",
    "jobs why last",
    "jobs events last",
    "jobs logs last",
    "jobs watch last",
]


def test_a_command_that_reads_jobs_does_not_import_pydantic():
    assert dagmaster("run", HELLO).returncode == 0
    code = f"""if True:
        import sys
        from dagmaster.cli.main import main
        for command in {READING}:
            try:
                main(command.split())
            except SystemExit as exited:
                assert not exited.code, command
            heavy = {{"pydantic", "yaml", "jsonschema", "alembic"}} & set(sys.modules)
            assert not heavy, (command, heavy)
    """
    # With a name that is no setting, all settings are checked.
    env = {name: value for name, value in os.environ.items() if name not in ("DAGMASTER_TEST_RUN", LOG_DIR)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_run_prints_the_result_to_stdout_and_the_rest_to_stderr():
    done = dagmaster("run", HELLO, "-i", "name=Ada")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"message": "Hello, Ada!"}
    assert "greet: COMPLETED" in done.stderr


def test_json_is_exactly_one_document():
    done = dagmaster("run", str(ROOT / "workflows" / "fan_out_test.yaml"), "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert done.stderr == ""
    assert document["workflow_id"] == "fan_out_test"
    assert document["job_id"].isdigit()
    assert list(document["nodes"]) == ["START", "prepare", "split", "aggregate", "END"]
    assert document["nodes"]["split"]["children"] == {"total": 3, "counts": {"COMPLETED": 3}}
    assert document["result"]["count"] == 3


def test_a_run_prints_the_document_that_jobs_show_prints():
    stored = json.loads(dagmaster("run", HELLO, "--json").stdout)
    assert stored == json.loads(dagmaster("jobs", "show", stored["job_id"], "--json").stdout)
    in_memory = json.loads(dagmaster("run", HELLO, "--json", "--ephemeral").stdout)
    assert list(in_memory) == list(stored)
    same = ("name", "workflow_id", "version", "status", "result", "error", "counts", "attempts", "inputs")
    assert {key: in_memory[key] for key in same} == {key: stored[key] for key in same}
    assert list(in_memory["nodes"]["greet"]) == list(stored["nodes"]["greet"])


def test_a_failed_job_exits_with_1_and_prints_the_reason(write):
    done = dagmaster(
        "run", write("{name: n, nodes: {a: {handler: fail, params: {message: tile 47, permanent: true}}}}")
    )
    assert done.returncode == 1
    assert "node a failed: tile 47" in done.stderr


def test_a_bad_file_exits_with_2_and_runs_nothing(write):
    done = dagmaster("run", write("name: n\nnodes:\n  a:\n    handler: ecko\n    quue: x\n"))
    assert done.returncode == 2
    assert "did you mean 'echo'?" in done.stderr
    assert "flow.yaml:5:5: error: unknown key 'quue'" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-i", "nme=Ada"], "did you mean 'name'?"),
        (["-i", "name"], "key=value"),
        (["-i", "name=a", "-i", "name=b"], "appears twice"),
        (["-I", "/nowhere.json"], "/nowhere.json"),
        (["-I", "-"], "expected a JSON object"),
        (["--concurrency", "0"], "0 is not in the range"),
        (["--handlers", "no.such.module"], "no.such.module"),
    ],
)
def test_bad_usage_exits_with_2_and_a_sentence(arguments, message):
    done = dagmaster("run", HELLO, *arguments, stdin="[1]")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_file_is_named():
    done = dagmaster("run", "nowhere.yaml")
    assert done.returncode == 2
    assert "nowhere.yaml" in done.stderr


def test_inputs_come_from_a_file_and_the_command_line_overrides_them(tmp_path):
    (tmp_path / "inputs.json").write_text('{"name": "file"}')
    assert "file" in dagmaster("run", HELLO, "-I", str(tmp_path / "inputs.json")).stdout
    assert "line" in dagmaster("run", HELLO, "-I", str(tmp_path / "inputs.json"), "-i", "name=line").stdout
    assert "stdin" in dagmaster("run", HELLO, "-I", "-", stdin='{"name": "stdin"}').stdout


def test_an_input_is_parsed_by_its_type(write):
    flow = write(
        "{name: n, inputs: {s: {type: string}, n: {type: integer}, o: {type: object}}, "
        "nodes: {a: {handler: echo, params: {all: '{{ inputs }}'}}}}"
    )
    done = dagmaster("run", flow, "-i", "s=007", "-i", "n=7", "-i", 'o={"k": [1]}', "--json")
    assert json.loads(done.stdout)["result"]["echoed_params"]["all"] == {"s": "007", "n": 7, "o": {"k": [1]}}


def test_handlers_come_from_a_file_next_to_the_workflow(tmp_path, write):
    (tmp_path / "mine.py").write_text(
        "from dagmaster import handler\n\n@handler('mine.double', queue='q')\ndef double(x: int) -> dict:\n    return {'x': 2 * x}\n"
    )
    flow = write("{name: n, nodes: {a: {handler: mine.double, params: {x: 21}}}}")
    assert json.loads(dagmaster("run", flow, "--handlers", str(tmp_path / "mine.py")).stdout) == {"x": 42}
    assert json.loads(dagmaster("run", flow, DAGMASTER_HANDLERS=str(tmp_path / "mine.py")).stdout) == {
        "x": 42
    }


def test_a_child_workflow_is_found_next_to_the_file(write):
    write("{workflow_id: child, nodes: {a: {handler: echo, params: {x: 1}}}}", "child.yaml")
    write("not: [valid", "broken.yaml")
    done = dagmaster("run", write("{name: p, nodes: {c: {type: workflow, workflow_id: child}}}"), "--json")
    assert json.loads(done.stdout)["result"] == {"echoed_params": {"x": 1}}


def test_env_is_read_only_where_the_operator_allowed_it(write):
    flow = write("{name: n, nodes: {a: {handler: echo, params: {r: '{{ env.REGION | default(0) }}'}}}}")
    assert json.loads(dagmaster("run", flow, REGION="eu").stdout)["echoed_params"] == {"r": 0}
    done = dagmaster("run", flow, REGION="eu", DAGMASTER_ALLOWED_ENV="REGION")
    assert json.loads(done.stdout)["echoed_params"] == {"r": "eu"}


def test_a_secret_comes_from_the_environment_of_the_worker_and_is_not_shown(write):
    flow = write(
        "{name: n, nodes: {a: {handler: size_check, params: {size_mb: 1}}, b: {handler: hello_world, params: {name: '{{ secrets.WHO }}'}}}}"
    )
    done = dagmaster("run", flow, "--json", DAGMASTER_SECRET_WHO="Ada")
    assert json.loads(done.stdout)["result"]["b"] == {"message": "Hello, ***!"}


def test_an_approval_is_answered_by_an_option():
    approval = str(ROOT / "workflows" / "approval.yaml")
    assert dagmaster("run", approval, "--approve", "release").returncode == 0
    assert dagmaster("run", approval, "--reject", "all").returncode == 1
    unanswered = dagmaster("run", approval)
    assert unanswered.returncode == 1
    assert "--approve release" in unanswered.stderr


def test_a_signal_is_sent_at_the_start(write):
    flow = write("{name: n, nodes: {w: {type: wait, signal: go}}, outputs: {p: '{{ nodes.w.output.p }}'}}")
    assert json.loads(dagmaster("run", flow, "--signal", 'go={"p": 1}').stdout) == {"p": 1}


WAITING = "{name: n, nodes: {a: {handler: sleep, params: {seconds: 600}}, b: {handler: echo, depends_on: a}}}"


def test_an_interrupt_cancels_the_job_and_exits_with_130(write):
    process = subprocess.Popen(
        [DAGMASTER, "run", write(WAITING)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stderr is not None
    assert "a: dispatched" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert "b: CANCELLED" in message


DEAF = """
import asyncio
from dagmaster import handler

@handler('deaf', queue='q')
async def deaf() -> dict:
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
"""


def test_two_interrupts_exit_at_once(tmp_path, write):
    # The handler ignores the cancellation: only the second signal ends it.
    (tmp_path / "deaf.py").write_text(DEAF)
    process = subprocess.Popen(
        [
            DAGMASTER,
            "run",
            write("{name: n, nodes: {a: {handler: deaf}}}"),
            "--handlers",
            str(tmp_path / "deaf.py"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stderr is not None
    assert "a: dispatched" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert "cancelling" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert "exiting now" in process.communicate(timeout=PATIENCE_SECONDS)[1]
    assert process.returncode in (130, -signal.SIGINT)


LOUD = """
import os
from dagmaster import handler
print('imported')

@handler('loud', queue='q')
def loud() -> dict:
    print('hello')
    os.system('echo from below')
    return {}
"""


def test_the_output_of_a_handler_does_not_corrupt_the_document(tmp_path, write):
    (tmp_path / "loud.py").write_text(LOUD)
    flow = write("{name: n, nodes: {a: {handler: loud}}}")
    done = dagmaster("run", flow, "--handlers", str(tmp_path / "loud.py"), "--json")
    assert json.loads(done.stdout)["status"] == "COMPLETED"
    for message in ("imported", "hello", "from below"):
        assert message in done.stderr


def test_a_secret_is_shown_nowhere(write):
    flow = write(
        "{name: n, on_failure: continue, inputs: {key: {type: string, secret: true, required: true}}, nodes: {"
        "a: {handler: echo, params: {k: '{{ inputs.key }}', t: 'Bearer {{ secrets.TOKEN }}'}}, "
        "b: {handler: fail, retry: none, allow_failure: true, params: {message: 'no {{ inputs.key }} {{ secrets.TOKEN }}'}}, "
        "c: {handler: fail, retry: none, params: {message: '{{ inputs.key }}'}}}}"
    )
    runs = [
        dagmaster("run", flow, "-i", "key=hunter2secret", *more, DAGMASTER_SECRET_TOKEN="tok-canary")
        for more in ([], ["--json"])
    ]
    for done in runs:
        assert done.returncode == 1
        for canary in ("hunter2secret", "tok-canary"):
            assert canary not in done.stdout + done.stderr
        assert "***" in done.stdout + done.stderr
    # All three nodes ran.
    document = json.loads(runs[1].stdout)
    assert [document["nodes"][name]["status"] for name in "abc"] == ["COMPLETED", "FAILED", "FAILED"]
    node = json.loads(dagmaster("jobs", "show", document["job_id"], "a", "--json").stdout)
    assert node["output"]["echoed_params"] == {"k": "***", "t": "Bearer ***"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--approve", "release", "--reject", "release"], "both answer release"),
        (["--approve", "all", "--reject", "release"], "both answer all"),
        (["--approve", "relese"], "did you mean 'release'?"),
    ],
)
def test_contradictory_answers_are_bad_usage(arguments, message):
    done = dagmaster("run", str(ROOT / "workflows" / "approval.yaml"), *arguments)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (
            "{name: n, nodes: {g: {type: approval, approvers: [another_user]}}}",
            ["--approve", "all"],
            "may not answer g",
        ),
        (
            "{name: n, nodes: {w: {type: wait, signal: go}}}",
            ["--ephemeral"],
            "the job cannot continue: w waits",
        ),
    ],
)
def test_a_job_that_cannot_continue_ends_with_the_reason(write, text, arguments, message):
    done = dagmaster("run", write(text), *arguments)
    assert done.returncode == 1
    assert message in done.stderr


def test_an_invalid_child_workflow_is_reported_as_invalid(write):
    write("{workflow_id: child, nodes: {a: {handler: ecko}}}", "child.yaml")
    done = dagmaster("run", write("{name: p, nodes: {c: {type: workflow, workflow_id: child}}}"), "--json")
    assert done.returncode == 2
    assert "unknown handler 'ecko'" in json.loads(done.stdout)["error"]["problems"][0]["message"]


def test_on_a_terminal_the_nodes_are_shown_as_a_tree():
    message = on_a_terminal(DAGMASTER, "run", str(ROOT / "workflows" / "demo.yaml"), "-i", "tasks=5")
    assert "✔ inspect" in message
    assert "├─ ↷ at_once" in message
    assert "not taken" in message
    assert "attempt 2" in message
    assert "5/5" in message
    assert "COMPLETED in" in message


def on_a_terminal(*command: str) -> str:
    """Run a command on a pseudo-terminal and give all that it wrote."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        command,
        stdout=follower,
        stderr=follower,
        stdin=follower,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
    )
    os.close(follower)
    message = b""
    while True:
        select.select([leader], [], [], 60)
        try:
            chunk = os.read(leader, 65536)
        except OSError:
            break
        if not chunk:
            break
        message += chunk
    process.wait(timeout=PATIENCE_SECONDS)
    os.close(leader)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", message.decode())


def test_validate_prints_all_problems_of_all_files(tmp_path):
    (tmp_path / "a.yaml").write_text("{name: a, nodes: {x: {handler: echo}}}")
    (tmp_path / "b.yaml").write_text("a: &x [1]\nb: *x\n")
    (tmp_path / "c.yaml").write_text("{name: c, nodes: {x: {handler: ecko}, y: {handlr: echo}}}")
    (tmp_path / "d.yml").write_bytes(b"\xff\xfe")
    done = dagmaster("workflows", "validate", str(tmp_path))
    assert done.returncode == 2
    assert "a.yaml" in done.stdout
    for place in ("b.yaml:1", "b.yaml:2", "c.yaml:1:32", "c.yaml:1:43", "d.yml"):
        assert place in done.stderr
    assert "3 of 4 workflows cannot run" in done.stderr


def test_validate_counts_the_workflows_of_a_file(tmp_path):
    (tmp_path / "flows.py").write_text(
        "from dagmaster import handler_task, workflow\n\n"
        "@workflow\ndef one():\n    handler_task('ecko')()\n\n"
        "@workflow\ndef two():\n    handler_task('ecko')()\n"
    )
    done = dagmaster("workflows", "validate", str(tmp_path / "flows.py"))
    assert "2 of 2 workflows cannot run" in done.stderr


def test_the_shipped_workflows_and_the_workflows_of_the_source_systems_are_valid():
    files = [str(file) for file in sorted((ROOT / "workflows").glob("*.yaml"))]
    assert dagmaster("workflows", "validate", *files).returncode == 0
    sources = str(ROOT / "examples" / "sources")
    done = dagmaster("workflows", "validate", sources, "--json")
    assert done.returncode == 0
    assert {Path(each["file"]).stem: each["is_valid"] for each in json.loads(done.stdout)} == {
        "my_custom_pipeline": True,
        "process_raster": True,
        "raster_processing_v1": True,
        "raster_tiled_v1": True,
    }


def test_a_diagram_is_mermaid_or_svg(tmp_path):
    demo = str(ROOT / "workflows" / "demo.yaml")
    assert dagmaster("workflows", "diagram", demo).stdout.startswith("flowchart TD")
    assert dagmaster("workflows", "diagram", demo, "-o", str(tmp_path / "demo.svg")).returncode == 0
    assert (tmp_path / "demo.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("submit", HELLO, "--version", "3"), "--version goes with the id of a published workflow"),
        (("submit", "hello_world", "--handlers", "./x.py"), "--handlers goes with a workflow file"),
        (("jobs", "show", "last", "--all"), "--all goes with --json"),
        (("jobs", "show", "last", "node", "--all", "--json"), "--all goes with --json"),
    ],
)
def test_an_option_without_effect_is_rejected(arguments, sentence):
    done = dagmaster(*arguments)
    assert (done.returncode, sentence in done.stdout + done.stderr) == (2, True), done.stderr


def test_the_schema_is_json():
    assert json.loads(dagmaster("workflows", "schema").stdout)["title"] == "dagmaster workflow"


def test_handlers_are_listed_shown_and_tested():
    assert {each["name"] for each in json.loads(dagmaster("handlers", "list", "--json").stdout)} >= {
        "echo",
        "hello_world",
        "sleep",
        "fail",
        "flaky",
        "multi_phase",
        "size_check",
        "chunk_processor",
    }
    assert "size_mb" in dagmaster("handlers", "show", "size_check").stdout
    assert "did you mean 'echo'" in dagmaster("handlers", "show", "ecko").stderr
    tried = dagmaster("handlers", "test", "chunk_processor", "-p", "chunk=[1, 2]")
    assert json.loads(tried.stdout) == {"processed": 2, "sum": 3}
    assert dagmaster("handlers", "test", "fail").returncode == 1
    assert dagmaster("handlers", "test", "size_check", "-p", "size=1").returncode == 2


def test_the_output_may_be_closed_by_a_pipe():
    done = subprocess.run(
        f"{DAGMASTER} workflows schema | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert done.stdout == "{\n"
    assert "Traceback" not in done.stderr

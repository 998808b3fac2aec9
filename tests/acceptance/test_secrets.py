"""Canary secrets are searched in every output of every command, with and without `--json`, and in every table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.canary import (
    KEY,
    NESTED,
    PIN,
    SECRETS,
    Sandbox,
    assert_clean,
    canary_sandbox,
    leaks,
)
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with canary_sandbox() as sandbox:
        yield sandbox


@pytest.mark.parametrize("store", [[], ["--ephemeral"]], ids=["stored", "ephemeral"])
@pytest.mark.parametrize("display", [["--plain"], ["--json"], ["--watch"]], ids=["plain", "json", "watch"])
def test_a_run_shows_no_secret(sandbox: Sandbox, store: list[str], display: list[str]):
    printed = sandbox.run("canary", *store, *display, "--approve", "all", code=0)
    if display == ["--json"]:
        document = json.loads(printed)
        assert document["status"] == "COMPLETED"
        assert document["result"]["echo"]["echo"] == "***"
    sandbox.run("canary_failing", *store, *display, code=1)


@pytest.mark.parametrize("store", [[], ["--ephemeral"]], ids=["stored", "ephemeral"])
def test_inputs_that_do_not_fit_are_refused_without_their_values(sandbox: Sandbox, store: list[str]):
    for pair in (f"pin={KEY}", f"box={NESTED}"):
        sandbox.dagmaster("run", "canary.yaml", "-I", "inputs.json", "-i", pair, "--json", *store, codes=(2,))


def test_no_command_and_no_table_shows_a_secret(sandbox: Sandbox):
    sandbox.run("canary", "--approve", "all", code=0)
    sandbox.run("canary_failing", code=1)
    canary, child, failed = (sandbox.last_job(name) for name in ("canary", "canary_child", "canary_failing"))
    for command in ("show", "why", "events", "logs"):
        for job in (canary, child, failed):
            sandbox.read("jobs", command, job)
            sandbox.read("jobs", command, job, "--json")
    for node in (
        "key",
        "pin",
        "token",
        "fan",
        "fan__0",
        "child",
        "exposed__0",
        "route",
        "ask",
        "fails",
        "expression",
    ):
        sandbox.read("jobs", "show", canary, node)
        sandbox.read("jobs", "show", canary, node, "--json")
        sandbox.read("jobs", "why", canary, node)
    sandbox.read("jobs", "show", canary, "--json", "--all")
    sandbox.read("jobs", "list")
    sandbox.read("jobs", "list", "--json")
    for arguments in (("resume", failed), ("retry", failed, "work")):
        sandbox.read("jobs", *arguments, "--dry-run")
        sandbox.read("jobs", *arguments, "--dry-run", "--json")
    sandbox.read("fleet")
    # Nothing serves it: it is stored, and shown while it waits.
    sandbox.read(
        "submit", str(sandbox.folder / "canary.yaml"), "-I", str(sandbox.folder / "inputs.json"), "--json"
    )
    for command in ("show", "why"):
        sandbox.read("jobs", command, "last")
        sandbox.read("jobs", command, "last", "--json")
    assert leaks(sandbox) == []
    # The search reads what is stored: the same inputs, encrypted.
    stored = [value for table, column, value in sandbox.rows() if (table, column) == ("dag_jobs", "inputs")]
    assert any("$sealed" in value for value in stored)
    key_file = sandbox.folder / "postgres-secrets-key"
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert not list((sandbox.folder / "postgres").glob("**/*secrets-key"))
    blobs = [file for file in sandbox.folder.glob("postgres-blobs/**/*") if file.is_file()]
    for file in blobs:
        assert_clean(file.read_text(errors="replace"), str(file))


def test_no_command_that_controls_a_job_and_no_table_shows_a_secret(sandbox: Sandbox):
    sandbox.read("workflows", "push", str(sandbox.folder))
    with sandbox.services():
        job = sandbox.submit("canary_controlled")
        watchers = [sandbox.start("jobs", "watch", job, *more) for more in ([], ["--json"])]
        followers = [sandbox.start("jobs", "events", job, "-f", *more) for more in ([], ["--json"])]
        sandbox.until(job, "ask", "WAITING")
        sandbox.dagmaster("jobs", "approve", job, "ask", "--comment", "fine", "--json")
        sandbox.until(job, "receive", "WAITING")
        sandbox.dagmaster("jobs", "signal", job, "go", '{"from": "ada"}', "--json")
        for process in (*watchers, *followers):
            assert_clean(process.communicate(timeout=PATIENCE_SECONDS)[0], str(process.args))
        for arguments in (("resume", job), ("retry", job, "work"), ("resume", job, "--from", "work")):
            for more in ((), ("--json",)):
                sandbox.dagmaster("jobs", *arguments, *more)
                sandbox.dagmaster("jobs", "watch", job, *more, codes=(1,))
        # An input changes: the secret ones have to be given again.
        pin = f"pin={PIN + 1}"
        sandbox.dagmaster("jobs", "resume", job, "-i", pin, "--json", codes=(2,))
        given = ("-I", str(sandbox.folder / "inputs.json"), "-i", pin)
        new = json.loads(sandbox.dagmaster("jobs", "resume", job, *given, "--json"))["job_id"]
        sandbox.until(new, "ask", "WAITING")
        sandbox.dagmaster("jobs", "reject", new, "ask", "--comment", "not this one")
        sandbox.dagmaster("jobs", "watch", new, codes=(1,))
        sandbox.until(cancelled := sandbox.submit("canary_controlled"), "ask", "WAITING")
        sandbox.dagmaster("jobs", "cancel", cancelled, "--wait", "--json")
        tiles = sandbox.submit("canary_tiles")
        sandbox.dagmaster("jobs", "watch", tiles, codes=(0, 1))
        sandbox.read("fleet")
        sandbox.read("fleet", "--json")
    for job_id in (job, new, cancelled, tiles):
        for command in ("show", "why", "events", "logs", "audit"):
            sandbox.read("jobs", command, job_id)
            sandbox.read("jobs", command, job_id, "--json")
    sandbox.read("jobs", "show", job, "receive", "--json")
    sandbox.read("jobs", "show", tiles, "tiles__0", "--json")
    assert len(json.loads(sandbox.dagmaster("jobs", "footprints", tiles))["features"]) == 2
    sandbox.read("jobs", "map", tiles, "-o", str(sandbox.folder / "map.png"))
    assert not any(secret.encode() in (sandbox.folder / "map.png").read_bytes() for secret in SECRETS)
    for page in (("list",), ("show", "canary_controlled")):
        sandbox.read("workflows", *page)
        sandbox.read("workflows", *page, "--json")
    assert leaks(sandbox) == []

"""`dagmaster config show`."""

from __future__ import annotations

import json
import os
import re

import pytest
from click.testing import CliRunner

from dagmaster.cli.commands.config import config, table
from dagmaster.sdk.terminal import printable
from dagmaster.settings import Settings, read_settings, show_settings
from dagmaster.settings.aliases import ALIASES

CANARY = "c4n4ry-s3cret"


@pytest.fixture
def show(monkeypatch):
    for name in list(os.environ):
        if name.startswith("DAGMASTER_") or name in {alias.name for alias in ALIASES}:
            monkeypatch.delenv(name)

    def run(*arguments: str, **names: str):
        for name, value in names.items():
            monkeypatch.setenv(name, value)
        return CliRunner().invoke(config, ["show", *arguments], standalone_mode=False)

    return run


def test_each_setting_is_shown_with_its_value_and_its_source(show):
    done = show(DAGMASTER_CONCURRENCY="7", DAGMASTER_DATABASE_URL=f"postgresql://me:{CANARY}@db/jobs")
    lines = {
        line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if re.match(r"[a-z_]+ ", line)
    }
    assert set(Settings.model_fields) <= set(lines)
    assert lines["concurrency"] == ["7", "DAGMASTER_CONCURRENCY"]
    assert lines["database_url"][0] == "postgresql://me:***@db/jobs"
    assert lines["poll_seconds"] == ["1", "default"]
    assert done.return_value == 0


def test_aliases_count_only_with_services(show):
    names = {"WORKER_QUEUE": "heavy,light", "WORKER_TYPE": "docker"}
    plain = show(**names).output
    assert "heavy" not in plain
    assert "Read by orchestrators and workers only: WORKER_QUEUE, WORKER_TYPE" in plain
    done = show("--services", **names)
    assert re.search(r"^queues +heavy, light +WORKER_QUEUE$", done.stdout, re.MULTILINE)
    assert (
        "WORKER_TYPE is known and not used: a worker is identified by its queues; use DAGMASTER_QUEUES"
        in done.stderr
    )


def test_an_invalid_setting_and_a_typo_are_reported_and_the_others_are_shown(show):
    done = show(DAGMASTER_CONCURRENCY="many", DAGMASTER_QUEUE="a")
    assert done.return_value == 2
    assert "DAGMASTER_CONCURRENCY must be a whole number, not 'many'." in done.stderr
    assert "DAGMASTER_QUEUE is not a setting: did you mean DAGMASTER_QUEUES?" in done.stderr
    assert "drain_seconds" in done.stdout


def test_json_has_the_same_content(show):
    done = show(
        "--json", "--services", DAGMASTER_CONCURRENCY="many", DAGMASTER_SECRET_A=CANARY, WORKER_TYPE="docker"
    )
    document = json.loads(done.stdout)
    rows = {row["name"]: row for row in document["settings"]}
    assert set(rows) == set(Settings.model_fields)
    assert rows["concurrency"]["source"] == "DAGMASTER_CONCURRENCY"
    assert rows["concurrency"]["problem"] == document["problems"][0]
    assert rows["queues"]["value"] == []
    assert document["secrets"] == ["A"]
    assert len(document["unused"]) == 1


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--services",), ("--services", "--json")])
def test_no_secret_is_shown(show, arguments):
    done = show(
        *arguments,
        DAGMASTER_DATABASE_URL=f"postgresql://u:{CANARY}@h/d",
        DAGMASTER_DATABASE_DIRECT_URL=f"postgresql://u:x#{CANARY}@h/d",
        DAGMASTER_SECRET_TOKEN=CANARY,
        POSTGRES_HOST="h",
        POSTGRES_PASSWORD=CANARY,
        SERVICE_BUS_CONNECTION_STRING=CANARY,
        DATABASE_URL=CANARY,
    )
    assert "database_direct_url" in done.output
    assert CANARY not in done.output


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_screen(monkeypatch, width):
    for name in ("HOST", "PORT", "USER", "PASSWORD", "DB"):
        monkeypatch.setenv(f"POSTGRES_{name}", "1")
    for line in table(show_settings(read_settings(services=True)), width):
        assert len(re.sub(r"\x1b\[\d+m", "", printable(line))) <= width, line

"""`dagmaster doctor`: how it grades facts, what it reports about a real server, and that no failure breaks it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import threading
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from asyncpg.exceptions import InvalidSQLStatementNameError
from click.testing import CliRunner

from dagmaster.adapters.secret_keys import new_key, parse_keys
from dagmaster.adapters.secret_vault import verifier_of
from dagmaster.cli.commands import doctor as command
from dagmaster.cli.doctor import database, host, rules
from dagmaster.cli.doctor.host import DoctorContext
from dagmaster.cli.doctor.rules import Finding, Grade
from dagmaster.errors import DataDirectoryUnusable
from dagmaster.handlers import SHIPPED_HANDLERS
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.database_facts import (
    ClockOffset,
    DatabaseRoles,
    LiveServices,
    SchemaState,
    ServerVersion,
    WaitingTasks,
)
from dagmaster.ports.schema_admin import ROLES
from dagmaster.sdk.terminal import printable
from dagmaster.settings import read_settings
from dagmaster.settings.aliases import ALIASES
from dagmaster.store.embedded.inspection import lock_holders
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import database_probe, roles
from dagmaster.store.postgres.secret_keys import PostgresSecretKeys
from tests.server_folders import copy_migrated_cluster, server_folder

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "c4n4ry-s3cret"
ALL_CHECKS = command.CHECKS


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("DAGMASTER_") or name == "PGPASSWORD" or name in {alias.name for alias in ALIASES}:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _without_handlers(monkeypatch):
    """Handlers are imported in a child process, which takes half a second: only in tests about handlers."""
    monkeypatch.setattr(command, "CHECKS", [check for check in ALL_CHECKS if check.topic != "handlers"])


@pytest.fixture(scope="module")
def folder():
    with server_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def server(folder):
    copy_migrated_cluster(folder / "data")
    with EmbeddedPostgres(folder / "data") as running:
        asyncio.run(roles.apply_roles(running.dsn, is_exact=True))
        yield running.dsn


def do(dsn: str, *statements: str) -> None:
    async def work() -> None:
        connection = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(work())


def a_context(data_dir: Path | None = None, **more: Any) -> DoctorContext:
    return DoctorContext(reading=read_settings(), data_dir=data_dir, redact=command._redactor(), **more)


def run_doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code, and the report."""
    done = CliRunner().invoke(command.doctor, ["--json", *arguments], standalone_mode=False)
    assert done.exception is None, done.exception
    assert CANARY not in done.output
    return done.return_value, json.loads(done.stdout)


def examine(*arguments: str) -> dict[str, list[Finding]]:
    code, report = run_doctor(*arguments)
    findings: dict[str, list[Finding]] = {}
    for check in report["checks"]:
        finding = Finding(check["topic"], Grade(check["grade"]), check["message"], check["remedy"])
        findings.setdefault(finding.topic, []).append(finding)
        assert (finding.grade is Grade.GOOD) == (not finding.remedy), finding
    bad = [check for check in report["checks"] if check["grade"] == "bad"]
    assert report["first"] == (bad[0] if bad else None)
    assert report["ok"] is not bool(bad)
    assert code == int(bool(bad))
    return findings


@pytest.fixture
def database_only(monkeypatch):
    """Run the checks of the database only: the check of binaries starts a process."""
    monkeypatch.setattr(command, "CHECKS", [check for check in ALL_CHECKS if check.topic == "database"])


@pytest.fixture
def fleet(server, monkeypatch, database_only):
    """Store an orchestrator, a worker of the queue light, and a task that waits for it: everything works."""
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", server)
    beat = "now(), now() + interval '1 hour'"
    columns = (
        "task_id, job_id, node_id, attempt, queue, priority, handler, params, timeout_seconds, dispatched_at"
    )
    do(
        server,
        f"INSERT INTO dag_orchestrators VALUES (1, 'h', 1, '1', {beat})",
        f"INSERT INTO dag_workers VALUES (1, 'h', 1, '1', '{{light}}', 1, {beat})",
        f"INSERT INTO dag_task_queue ({columns}) VALUES (1, 1, 'n', 1, 'light', 5, 'h', '{{}}'::json, 1, now())",
    )
    yield server
    do(server, "DELETE FROM dag_task_queue", "DELETE FROM dag_workers", "DELETE FROM dag_orchestrators")


# ── How it grades facts ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "grade"),
    [(130012, "bad"), (140000, "good"), (150018, "good"), (180001, "good"), (190000, "warning")],
)
def test_servers_from_14_to_18_are_good(version, grade):
    assert rules.grade_server(ServerVersion(version, "x", 1.0), "there").grade == grade


def test_a_standby_is_called_one():
    finding = rules.grade_server(ServerVersion(180000, "18", 1.0, is_read_only=True), "there")
    assert finding.grade is Grade.BAD
    assert "this is a standby" in finding.message
    assert "promote this one" in str(finding.remedy)


def test_a_server_with_a_high_latency_is_a_warning():
    assert rules.grade_server(ServerVersion(180000, "18", 50.0), "there").grade is Grade.WARNING


@pytest.mark.parametrize(
    ("version", "is_usable", "may_create", "grade", "remedy"),
    [
        (None, False, True, "bad", "dagmaster migrate"),
        (None, False, False, "bad", 'GRANT CREATE ON DATABASE "d" TO "u"'),
        ("0001", False, True, "bad", "dagmaster migrate"),
        ("0002", True, False, "good", ""),
        ("0003", False, True, "bad", "upgrade dagmaster"),
        # A rolling upgrade: the schema is migrated first.
        ("0003", True, True, "warning", "upgrade dagmaster"),
    ],
)
def test_a_schema_of_another_version_is_reported_with_the_remedy(
    version, is_usable, may_create, grade, remedy
):
    state = SchemaState(
        version=version, required="0002", is_usable=is_usable, may_create=may_create, user="u", database="d"
    )
    finding = rules.grade_schema(state)
    assert finding.grade == grade
    assert remedy in finding.remedy


def test_a_clock_offset_within_the_uncertainty_of_the_network_is_good():
    assert rules.grade_clock(ClockOffset(1.9, 0.0)).grade is Grade.GOOD
    assert rules.grade_clock(ClockOffset(-300.0, 0.1)).message == "this host is 300 s behind the database"
    assert rules.grade_clock(ClockOffset(3.0, 2.0)).grade is Grade.GOOD


@pytest.mark.parametrize(("free", "grade"), [(5 * 10**9, "good"), (5 * 10**8, "warning"), (10**7, "bad")])
def test_a_disk_with_little_space_is_reported_before_it_is_full(free, grade):
    assert rules.grade_free_space("blobs", "/x", free).grade == grade


@pytest.mark.parametrize(("soft", "grade"), [(256, "warning"), (1024, "good"), (-1, "good")])
def test_a_low_limit_of_open_files_is_a_warning(soft, grade):
    assert rules.grade_open_files(soft, 4096).grade == grade


def test_a_queue_is_served_by_a_worker_of_that_queue_or_of_all_queues():
    def grade(served: set[str], *, is_every_queue_served: bool = False) -> Finding:
        return rules.grade_queues(
            WaitingTasks((("heavy", 7), ("light", 1)), frozenset(served), is_every_queue_served)
        )

    unserved = grade({"light"})
    assert (unserved.grade, unserved.message) == (Grade.BAD, "no worker serves heavy (7 tasks)")
    assert "dagmaster worker --queue heavy" in unserved.remedy
    assert grade({"light", "heavy"}).grade is Grade.GOOD
    assert grade(set(), is_every_queue_served=True).grade is Grade.GOOD


def test_a_missing_orchestrator_is_bad_and_a_missing_worker_is_a_warning():
    assert rules.grade_services(LiveServices(1, 2)).grade is Grade.GOOD
    no_worker, no_orchestrator = (
        rules.grade_services(LiveServices(1, 0)),
        rules.grade_services(LiveServices(0, 2)),
    )
    assert (no_worker.grade, no_orchestrator.grade) == (Grade.WARNING, Grade.BAD)
    assert "`dagmaster worker`" in no_worker.remedy
    assert "`dagmaster orchestrator`" in no_orchestrator.remedy
    assert "`dagmaster dev`" in rules.grade_services(LiveServices(0, 0), is_embedded=True).remedy


def test_services_that_all_drain_are_bad_and_some_that_drain_are_named():
    some = rules.grade_services(LiveServices(2, 3, 1, 2))
    assert (some.grade, some.message) == (
        Grade.GOOD,
        "2 orchestrators and 3 workers alive; 1 orchestrator and 2 workers draining",
    )
    workers = rules.grade_services(LiveServices(1, 2, 0, 2, drained_worker=77))
    assert (workers.grade, workers.message) == (
        Grade.BAD,
        "1 orchestrator and 2 workers alive; 2 workers draining",
    )
    assert "`dagmaster fleet undrain 77`" in workers.remedy
    assert "no orchestrator claims" in rules.grade_services(LiveServices(1, 2, 1, 0)).remedy


def test_missing_roles_are_reported_with_the_consequence():
    assert rules.grade_roles(DatabaseRoles(ROLES)).grade is Grade.GOOD
    assert "dagmaster_gateway does not exist" in rules.grade_roles(DatabaseRoles(ROLES[:-1])).message
    earlier = rules.grade_roles(DatabaseRoles(ROLES, worker_has_table_rights=True))
    assert (earlier.grade, "`dagmaster migrate --roles`" in earlier.remedy) == (Grade.WARNING, True)


class Connection:
    """A connection that may go through a pooler."""

    def __init__(self, pid: int, *, forgets: bool) -> None:
        self.pid, self.forgets = pid, forgets

    def get_server_pid(self) -> int:
        return 100

    async def prepare(self, _: str) -> Connection:
        return self

    async def fetchval(self) -> int:
        if self.forgets:
            raise InvalidSQLStatementNameError('prepared statement "x" does not exist')
        return self.pid

    async def execute(self, _: str) -> None: ...

    def terminate(self) -> None: ...


@pytest.mark.parametrize(
    ("pid", "forgets", "grade"), [(100, False, None), (7, False, "warning"), (7, True, "bad")]
)
def test_a_pooler_is_suspected(monkeypatch, pid, forgets, grade):
    connection: Any = Connection(pid, forgets=forgets)

    async def another(*_: object, **__: object) -> Any:
        return connection

    monkeypatch.setattr(database_probe, "_connect", another)
    prepared: Any = asyncio.run(database_probe._probe_prepared_statements("postgresql://h/d", connection))
    finding = rules.grade_pooler(prepared)
    assert (finding and finding.grade) == grade
    if finding is not None:
        assert "DAGMASTER_DATABASE_POOLED=true" in finding.remedy


# ── On a real server ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.process
def test_a_good_server_is_reported_as_good(server, monkeypatch):
    monkeypatch.setattr(command, "CHECKS", ALL_CHECKS)
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", server)
    findings = examine()
    for topic in (
        "Python",
        "dagmaster",
        "packages",
        "binaries",
        "settings",
        "database",
        "clock",
        "wake-up",
        "schema",
        "handlers",
    ):
        assert {finding.grade for finding in findings[topic]} == {Grade.GOOD}, topic
    assert "pooler" not in findings
    assert findings["roles"][0].grade is Grade.GOOD


def test_the_embedded_server_is_joined_and_its_users_are_named(server, folder):
    findings = examine("--data-dir", str(folder / "data"))
    assert findings["embedded"][0].grade is Grade.GOOD
    assert findings["schema"][0].grade is Grade.GOOD
    assert "roles" not in findings


def test_the_users_of_a_data_directory_are_read_from_the_list_of_locks(tmp_path):
    lock, locks = tmp_path / "users.lock", tmp_path / "locks"
    lock.touch()
    inode = lock.stat().st_ino
    locks.write_text(
        f"1: FLOCK  ADVISORY  READ 999999991 fe:00:{inode} 0 EOF\n"
        f"2: POSIX  ADVISORY  WRITE 999999992 fe:00:{inode} 0 EOF\n"
        f"3: FLOCK  ADVISORY  READ 999999993 fe:00:{inode + 1} 0 EOF\n"
        f"4: FLOCK  ADVISORY  READ {os.getpid()} fe:00:{inode} 0 EOF\n"
    )
    assert lock_holders(lock, locks) == ["process 999999991"]
    assert lock_holders(tmp_path / "none", locks) == []


def test_live_services_are_counted_once_and_queues_without_a_worker_are_reported(fleet):
    do(
        fleet,
        "UPDATE dag_workers SET queues = '{other,more}'",
        "INSERT INTO dag_workers VALUES (2, 'h', 1, '1', '{light}', 1, now(), now() - interval '1 hour')",
    )
    findings = examine()
    assert findings["services"][0].message == "1 orchestrator and 1 worker alive"
    assert findings["queues"][0].message == "no worker serves light (1 task)"
    do(fleet, "UPDATE dag_workers SET queues = '{}' WHERE worker_id = 1")
    assert examine()["queues"][0].grade is Grade.GOOD


def test_a_key_for_secret_inputs_that_is_not_here_is_bad(fleet, monkeypatch):
    key = new_key()
    verifier = verifier_of(parse_keys(key, "x")[0])
    assert "secrets key" not in examine()
    asyncio.run(
        PostgresSecretKeys(DatabaseConfig(dsn=fleet)).register_first(parse_keys(key, "x")[0].id, verifier)
    )
    try:
        (finding,) = examine()["secrets key"]
        assert finding.grade is Grade.BAD
        assert "this process has no key" in finding.message
        monkeypatch.setenv("DAGMASTER_SECRETS_KEY", key)
        assert "secrets key" not in examine()
        monkeypatch.setenv("DAGMASTER_SECRETS_KEY", new_key())
        assert examine()["secrets key"][0].grade is Grade.BAD
    finally:
        do(fleet, "DELETE FROM dag_secret_keys")


def test_a_worker_that_drains_is_named_in_the_remedy(fleet):
    do(fleet, "UPDATE dag_workers SET drain_requested_at = now()")
    assert "`dagmaster fleet undrain 1`" in examine()["services"][0].remedy


def test_missing_rights_of_a_user_are_reported(server, monkeypatch):
    do(server, "CREATE ROLE small LOGIN")
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", server.replace("user=dagmaster", "user=small"))
    try:
        (schema,) = examine()["schema"]
    finally:
        do(server, "DROP ROLE small")
    assert schema.grade is Grade.BAD
    assert 'TO "small"' in schema.remedy


def test_behind_a_pooler_without_a_direct_address_polling_is_reported(server, monkeypatch):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", server)
    monkeypatch.setenv("DAGMASTER_DATABASE_POOLED", "true")
    assert "DAGMASTER_DATABASE_DIRECT_URL" in examine()["wake-up"][0].remedy
    monkeypatch.setenv("DAGMASTER_DATABASE_DIRECT_URL", server)
    assert examine()["wake-up"][0].grade is Grade.GOOD


@pytest.mark.process
def test_a_missing_data_directory_is_not_created(folder):
    findings = examine("--data-dir", str(folder / "new" / "data"))
    assert findings["embedded"][0].grade is Grade.GOOD
    assert (findings["schema"][0].grade, findings["schema"][0].remedy) == (Grade.BAD, rules.START_LOCALLY)
    assert not (folder / "new").exists()


# ── As a health check ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fleet_that_serves_its_tasks_is_ready(fleet):
    code, report = run_doctor()
    assert (report["first"], report["ok"], code) == (None, True, 0)


@pytest.mark.parametrize(
    ("statement", "topic", "remedy"),
    [
        ("DELETE FROM dag_orchestrators", "services", "`dagmaster orchestrator`"),
        ("DELETE FROM dag_orchestrators; DELETE FROM dag_task_queue", "services", "`dagmaster orchestrator`"),
        ("UPDATE dag_workers SET queues = '{heavy}'", "queues", "`dagmaster worker --queue light`"),
        ("DELETE FROM dag_workers", "queues", "`dagmaster worker --queue light`"),
    ],
)
def test_a_fleet_in_which_jobs_make_no_progress_is_not_ready(fleet, statement, topic, remedy):
    do(fleet, statement)
    code, report = run_doctor()
    assert code == 1
    assert report["first"]["topic"] == topic
    assert remedy in report["first"]["remedy"]


def test_a_fleet_without_a_worker_and_without_tasks_is_ready(fleet):
    do(fleet, "DELETE FROM dag_workers", "DELETE FROM dag_task_queue")
    assert run_doctor()[0] == 0


@pytest.mark.parametrize("version", [None, "0001"])
def test_a_database_with_no_schema_or_an_old_one_is_not_ready(server, database_only, monkeypatch, version):
    do(server, "CREATE DATABASE other")
    other = server.replace("/dagmaster?", "/other?")
    assert other != server
    if version is not None:
        create = "CREATE SCHEMA dagapp; CREATE TABLE dagapp.alembic_version (version_num text)"
        do(other, create, f"INSERT INTO dagapp.alembic_version VALUES ('{version}')")
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", other)
    try:
        code, report = run_doctor()
    finally:
        do(server, "DROP DATABASE other WITH (FORCE)")
    assert (code, report["first"]["topic"]) == (1, "schema")
    assert "`dagmaster migrate`" in report["first"]["remedy"]


def test_a_user_who_may_not_see_the_services_cannot_call_the_fleet_ready(fleet, monkeypatch):
    do(fleet, "CREATE ROLE small LOGIN IN ROLE dagmaster_worker")
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", fleet.replace("user=dagmaster", "user=small"))
    try:
        code, report = run_doctor()
    finally:
        do(fleet, "DROP ROLE small")
    assert (code, report["first"]["topic"]) == (1, "services")
    assert "dagmaster_orchestrator" in report["first"]["remedy"]


def test_the_first_thing_to_do_is_printed_on_top(fleet):
    do(fleet, "DELETE FROM dag_orchestrators", "DELETE FROM dag_workers")
    done = CliRunner().invoke(command.doctor, [], standalone_mode=False)
    top, report = done.output.split("\n\n", 1)
    assert done.return_value == 1
    assert " ".join(top.split()) == (
        "Not ready: services: no orchestrators and no workers alive (the first of 2 problems)"
        " → no job makes progress without an orchestrator: start one with `dagmaster orchestrator`"
    )
    assert "✘ queues" in report


def test_a_ready_fleet_is_reported_on_top(fleet):
    done = CliRunner().invoke(command.doctor, [], standalone_mode=False)
    assert done.output.startswith("Ready: jobs can run")


# ── When something is broken ───────────────────────────────────────────────────────────────────────────────────────


def test_a_data_directory_with_other_files_is_reported(folder):
    (folder / "strange").mkdir()
    (folder / "strange" / "holiday.jpg").touch()
    (embedded,) = examine("--data-dir", str(folder / "strange"))["embedded"]
    assert embedded.grade is Grade.BAD
    assert "holiday.jpg" in embedded.message


def test_a_file_instead_of_the_data_directory_is_reported(folder):
    (folder / "file").touch()
    assert examine("--data-dir", str(folder / "file"))["data"][0].message.endswith("is not a directory")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to a user without access")
def test_a_directory_without_read_access_is_reported(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    os.seteuid(65534)
    try:
        findings = [*host.check_directory("blobs", closed / "blobs", "DAGMASTER_BLOB_DIR")]
    finally:
        os.seteuid(0)
    assert [finding.grade for finding in findings] == [Grade.BAD]
    assert "DAGMASTER_BLOB_DIR" in findings[0].remedy


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"postgresql://u:{CANARY}@127.0.0.1:1/d", "nothing listens there"),
        (f"postgresql://u:{CANARY}@localhost:1/d", "nothing listens there"),
        (f"postgresql://u:{CANARY}@/d?host=/nowhere", "nothing listens there"),
        (f"postgresql://u:x/{CANARY}@h/d", "its address is not valid"),
        (f"mysql://u:{CANARY}@h/d", "its address is not valid"),
    ],
)
def test_an_unreachable_database_is_reported_and_the_other_checks_run(monkeypatch, url, message):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", url)
    findings = examine()
    (database,) = findings["database"]
    assert database.grade is Grade.BAD
    assert message in database.message
    assert findings["temp"][0].grade is Grade.GOOD


def test_a_server_that_accepts_connections_and_never_answers_times_out(monkeypatch):
    monkeypatch.setattr(database_probe, "CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        config = DatabaseConfig(
            dsn=f"postgresql://u:{CANARY}@127.0.0.1:{mute.getsockname()[1]}/d?sslmode=disable"
        )
        (finding,) = database.check_server(config, a_context())
    assert "no answer within" in finding.message
    assert CANARY not in finding.message


def test_invalid_settings_and_typos_are_reported(monkeypatch, server, folder):
    monkeypatch.setenv("DAGMASTER_CONCURRENCY", "many")
    monkeypatch.setenv("DAGMASTER_CONCURENCY", "3")
    monkeypatch.setenv("DAGMASTER_SECRET_TOKEN", CANARY)
    findings = examine("--data-dir", str(folder / "data"))
    assert [finding.grade for finding in findings["settings"]] == [Grade.BAD, Grade.WARNING]
    assert findings["settings"][1].remedy == "did you mean DAGMASTER_CONCURRENCY?"
    assert findings["secrets"][0].message.startswith("1 ")


@pytest.mark.process
def test_modules_that_fail_or_crash_are_reported_and_the_others_are_counted(tmp_path, monkeypatch):
    handler = "from dagmaster import handler\n@handler('NAME')\ndef f() -> dict: return {}\n"
    bodies = {
        "good": """print('{"count": 99}', flush=True)\n""" + handler.replace("NAME", "good"),
        "fails": "import os\nraise RuntimeError(os.environ['DAGMASTER_SECRET_X'])",
        "exits": "import os\nos._exit(3)",
        "crashes": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
        "late": handler.replace("NAME", "late"),
    }
    for name, body in bodies.items():
        (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.setenv("DAGMASTER_SECRET_X", CANARY)
    monkeypatch.setenv("DAGMASTER_HANDLERS", ",".join(str(tmp_path / f"{name}.py") for name in bodies))
    shipped = len(SHIPPED_HANDLERS)
    findings = [(finding.grade, finding.message) for finding in host.check_handlers(a_context())]
    assert [grade for grade, _ in findings[:shipped]] == ["good"] * shipped
    findings = [*findings[:1], *findings[shipped:]]
    assert [grade for grade, _ in findings] == ["good", "good", "bad", "bad", "bad", "good"]
    assert findings[2][1].endswith("cannot be imported: RuntimeError: ***")
    assert findings[3][1].endswith("ended its process, which exited with code 3")
    assert findings[4][1].endswith("ended its process, which was killed by SIGSEGV")


@pytest.mark.process
def test_a_module_that_takes_too_long_to_import_is_killed(tmp_path, monkeypatch):
    (tmp_path / "hangs.py").write_text("import threading\nthreading.Event().wait()")
    monkeypatch.setenv("DAGMASTER_HANDLERS", str(tmp_path / "hangs.py"))
    monkeypatch.setattr(host, "IMPORT_SECONDS", 1.0)
    *_, last = host.check_handlers(a_context())
    assert last.grade is Grade.BAD
    assert "takes more than 1 s to import" in last.message


@pytest.mark.process
def test_two_modules_that_conflict_are_reported(tmp_path, monkeypatch):
    for name in ("one", "two"):
        body = "from dagmaster import handler\n@handler('same')\ndef f() -> dict: return {}\n"
        (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.setenv("DAGMASTER_HANDLERS", f"{tmp_path}/one.py,{tmp_path}/two.py")
    *alone, together = host.check_handlers(a_context())
    assert {finding.grade for finding in alone} == {Grade.GOOD}
    assert "two handlers have the name 'same'" in together.message


def test_a_check_that_hangs_is_abandoned_and_its_findings_are_kept():
    go_on = threading.Event()

    def hangs(_: DoctorContext):
        yield rules.good("disk", "so far")
        go_on.wait()

    try:
        findings = list(command.run_check(command.Check("disk", hangs, 0.2), a_context()))
        assert command._has_hanging_check()
    finally:
        go_on.set()
    assert [finding.message for finding in findings] == ["so far", "the check took more than 0.2 s"]


def test_a_check_that_fails_is_a_finding_without_secrets(monkeypatch):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", f"postgresql://u:{CANARY}@h/d")

    def fails(_: DoctorContext):
        raise ZeroDivisionError(f"with {CANARY}\nand more")

    (finding,) = command.run_check(command.Check("disk", fails), a_context())
    assert (finding.grade, finding.message) == (
        Grade.BAD,
        "the check itself failed: ZeroDivisionError: with ***",
    )


@pytest.mark.parametrize(
    ("error", "message", "remedy"),
    [
        ("User 7 has no home. Give a directory.", "User 7 has no home", "Give a directory."),
        ("It did not start. It said:\n    one\n    FATAL: two\n", "It did not start", "It said: FATAL: two"),
    ],
)
def test_an_error_of_dagmaster_is_reported_with_its_remedy(error, message, remedy):
    def rejects(_: DoctorContext):
        raise DataDirectoryUnusable(error)

    (finding,) = command.run_check(command.Check("blobs", rejects), a_context())
    assert finding == rules.bad("blobs", message, remedy)


def test_a_broken_package_is_reported(monkeypatch, tmp_path):
    (tmp_path / "a_broken_package.py").write_text("raise OSError('libx.so: wrong ELF class')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(host, "_PACKAGES", ("asyncpg", "a_broken_package"))
    (finding,) = host.check_packages(a_context())
    assert (finding.grade, finding.message) == (
        Grade.BAD,
        "a_broken_package cannot be imported: libx.so: wrong ELF class",
    )


@pytest.mark.parametrize(("url", "grade"), [("", "bad"), ("postgresql://h/d", "warning")])
def test_missing_binaries_are_bad_only_if_they_are_needed(monkeypatch, url, grade):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", url)
    monkeypatch.setattr(host, "find_spec", lambda _: None)
    (finding,) = host.check_binaries(a_context())
    assert finding.grade == grade


# ── How it is printed ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [80, 120])
def test_a_finding_is_printed_with_its_sign_and_below_it_the_remedy(width):
    finding = rules.bad("database", "word " * 40, "repair " * 40)
    lines = [re.sub(r"\x1b\[\d+m", "", printable(line)) for line in command.render_lines(finding, width)]
    assert lines[0].startswith("✘ database    word")
    assert sum(line.strip().startswith("→ repair") for line in lines) == 1
    assert max(map(len, lines)) <= width
    assert command.render_lines(rules.good("x", "y"), width)[1:] == []


def test_a_path_is_not_broken():
    path = "/a-very-long/path" * 10
    assert any(path in line for line in command.render_lines(rules.bad("blobs", path, "x"), 80))


def test_aliases_of_settings_are_mentioned(monkeypatch, server, folder):
    monkeypatch.setenv("DATABASE_URL", f"postgresql://u:{CANARY}@h/d")
    done = CliRunner().invoke(command.doctor, ["--data-dir", str(folder / "data")], standalone_mode=False)
    assert "Services also read DATABASE_URL" in done.output
    assert CANARY not in done.output

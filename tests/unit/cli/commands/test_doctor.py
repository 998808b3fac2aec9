"""`dagmaster doctor`: what it concludes, what it finds on a real server, and that nothing makes it fall ill."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from asyncpg.exceptions import InvalidSQLStatementNameError
from click.testing import CliRunner

from dagmaster.cli.commands import doctor as doctors
from dagmaster.cli.doctor import database, host, rules
from dagmaster.cli.doctor.host import DoctorContext
from dagmaster.cli.doctor.rules import Finding, Grade
from dagmaster.errors import DataDirectoryUnusable
from dagmaster.handlers import SHIPPED_HANDLERS
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.settings import read_settings
from dagmaster.settings_aliases import ALIASES
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import schema_version

CANARY = "c4n4ry-s3cret"
ALL_CHECKS = doctors.CHECKS


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("DAGMASTER_") or name == "PGPASSWORD" or name in {alias.name for alias in ALIASES}:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    """Handlers are imported in a process of their own, which takes half a second: only where they are the question."""
    monkeypatch.setattr(doctors, "CHECKS", [check for check in ALL_CHECKS if check.topic != "handlers"])


@pytest.fixture(scope="module")
def place():
    # Not under pytest's own folder: as root the server runs as another user, who may not look into it.
    place = Path(tempfile.mkdtemp(prefix="dagmaster-", dir="/var/tmp"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def server(place):
    with EmbeddedPostgres(place / "data") as running:
        schema_version.upgrade(running.dsn)
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


def a_patient(data_dir: Path | None = None, **more: Any) -> DoctorContext:
    return DoctorContext(reading=read_settings(), data_dir=data_dir, hide=doctors._hider(), **more)


def examine(*arguments: str) -> dict[str, list[Finding]]:
    done = CliRunner().invoke(doctors.doctor, ["--json", *arguments], standalone_mode=False)
    assert done.exception is None, done.exception
    assert CANARY not in done.output
    said = json.loads(done.stdout)
    found: dict[str, list[Finding]] = {}
    for check in said["checks"]:
        finding = Finding(check["topic"], Grade(check["grade"]), check["found"], check["remedy"])
        found.setdefault(finding.topic, []).append(finding)
        assert (finding.grade is Grade.GOOD) == (not finding.remedy), finding
    any_bad = any(each.grade is Grade.BAD for group in found.values() for each in group)
    assert said["ok"] is not any_bad
    assert done.return_value == int(any_bad)
    return found


# ── what it concludes ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "grade"),
    [(130012, "bad"), (140000, "good"), (150018, "good"), (180001, "good"), (190000, "warning")],
)
def test_servers_from_14_to_18_are_good(version, grade):
    assert rules.judge_server(version, "x", 1.0, "there").grade == grade


def test_a_server_far_away_is_told():
    assert rules.judge_server(180000, "18", 50.0, "there").grade is Grade.WARNING


@pytest.mark.parametrize(
    ("found", "may_create", "grade", "remedy"),
    [
        (None, True, "warning", "dagmaster migrate"),
        (None, False, "bad", 'GRANT CREATE ON DATABASE "d" TO "u"'),
        ("0001", True, "bad", "dagmaster migrate"),
        ("0002", False, "good", ""),
        ("0003", True, "bad", "upgrade dagmaster"),
    ],
)
def test_a_schema_of_another_version_is_told_with_what_to_do(found, may_create, grade, remedy):
    finding = rules.judge_schema(found, "0002", may_create=may_create, user="u", database="d")
    assert finding.grade == grade
    assert remedy in finding.remedy


def test_a_clock_is_wrong_only_beyond_what_the_network_hides():
    assert rules.judge_clock(1.9, 0.0).grade is Grade.GOOD
    assert rules.judge_clock(-300.0, 0.1).found == "this host is 300 s behind the database"
    assert rules.judge_clock(3.0, 2.0).grade is Grade.GOOD


@pytest.mark.parametrize(("free", "grade"), [(5 * 10**9, "good"), (5 * 10**8, "warning"), (10**7, "bad")])
def test_a_disk_that_fills_up_is_told_before_it_is_full(free, grade):
    assert rules.judge_space("blobs", "/x", free).grade == grade


@pytest.mark.parametrize(("soft", "grade"), [(256, "warning"), (1024, "good"), (-1, "good")])
def test_few_open_files_are_told(soft, grade):
    assert rules.judge_files(soft, 4096).grade == grade


def test_a_queue_is_served_by_a_worker_that_names_it_or_by_one_for_all():
    waiting = [("heavy", 7), ("light", 1)]
    alone = rules.judge_queues(waiting, {"light"}, all_served=False)
    assert (alone.grade, alone.found) == (Grade.WARNING, "nobody serves heavy (7 tasks)")
    assert "dagmaster worker --queue heavy" in alone.remedy
    assert rules.judge_queues(waiting, {"light", "heavy"}, all_served=False).grade is Grade.GOOD
    assert rules.judge_queues(waiting, (), all_served=True).grade is Grade.GOOD


def test_a_missing_half_of_the_services_is_named():
    assert rules.judge_living(1, 2).grade is Grade.GOOD
    assert rules.judge_living(1, 0).remedy.endswith("start a worker")
    assert rules.judge_living(0, 0).remedy.endswith("start an orchestrator and a worker")


def test_missing_roles_are_told_with_what_it_means():
    assert rules.judge_roles(rules.ROLES).grade is Grade.GOOD
    assert "dagmaster_gateway is not there" in rules.judge_roles(rules.ROLES[:2]).found


class Connection:
    """A connection through something that may be a pooler."""

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


@pytest.mark.parametrize(("pid", "forgets", "grade"), [(100, False, None), (7, False, "warning"), (7, True, "bad")])
def test_a_pooler_in_between_is_suspected(monkeypatch, pid, forgets, grade):
    connection = Connection(pid, forgets=forgets)

    async def another(*_: object, **__: object) -> Connection:
        return connection

    monkeypatch.setattr(database, "_connected", another)
    finding = asyncio.run(database._about_a_pooler("postgresql://h/d", connection))
    assert (finding and finding.grade) == grade
    if finding is not None:
        assert "DAGMASTER_DATABASE_POOLED=true" in finding.remedy


# ── on a real server ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.process
def test_a_good_server_is_found_good(server, monkeypatch):
    monkeypatch.setattr(doctors, "CHECKS", ALL_CHECKS)
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", server)
    found = examine()
    for topic in (
        "Python",
        "dagmaster",
        "wheels",
        "binaries",
        "settings",
        "database",
        "clock",
        "wake-up",
        "schema",
        "handlers",
    ):
        assert {each.grade for each in found[topic]} == {Grade.GOOD}, topic
    assert "pooler" not in found
    assert found["roles"][0].grade is Grade.GOOD


def test_the_embedded_server_is_joined_and_its_users_are_named(server, place):
    found = examine("--data-dir", str(place / "data"))
    assert found["embedded"][0].grade is Grade.GOOD
    assert found["schema"][0].grade is Grade.GOOD
    assert "roles" not in found


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
    assert database.who_uses(lock, locks) == ["process 999999991"]
    assert database.who_uses(tmp_path / "none", locks) == []


def test_the_living_are_counted_once_and_queues_without_a_worker_are_told(server, monkeypatch):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", server)
    task = "(SELECT g, 1, 'n', 1, 'heavy', 5, 'h', '{}'::json, 1, now() FROM generate_series(1, 7) g)"
    columns = "task_id, job_id, node_id, attempt, queue, priority, handler, params, timeout_seconds, dispatched_at"
    beat = "now(), now() + interval '1 hour'"
    do(
        server,
        f"INSERT INTO dag_task_queue ({columns}) {task}",
        f"INSERT INTO dag_orchestrators VALUES (1, 'h', 1, '1', {beat})",
        f"INSERT INTO dag_workers VALUES (1, 'h', 1, '1', '{{light,other}}', 1, {beat})",
        "INSERT INTO dag_workers VALUES (2, 'h', 1, '1', '{heavy}', 1, now(), now() - interval '1 hour')",
    )
    try:
        found = examine()
        assert found["services"][0].found == "1 orchestrator and 1 worker alive"
        assert found["queues"][0].found == "nobody serves heavy (7 tasks)"
        do(server, "UPDATE dag_workers SET queues = '{}' WHERE worker_id = 1")
        assert examine()["queues"][0].grade is Grade.GOOD
    finally:
        do(server, "DELETE FROM dag_task_queue", "DELETE FROM dag_workers", "DELETE FROM dag_orchestrators")


def test_a_user_without_rights_is_told_which(server, monkeypatch):
    do(server, "CREATE ROLE small LOGIN")
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", server.replace("user=dagmaster", "user=small"))
    try:
        (schema,) = examine()["schema"]
    finally:
        do(server, "DROP ROLE small")
    assert schema.grade is Grade.BAD
    assert 'TO "small"' in schema.remedy


def test_behind_a_pooler_without_a_direct_address_the_poll_is_told(server, monkeypatch):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", server)
    monkeypatch.setenv("DAGMASTER_DATABASE_POOLED", "true")
    assert "DAGMASTER_DATABASE_DIRECT_URL" in examine()["wake-up"][0].remedy
    monkeypatch.setenv("DAGMASTER_DATABASE_DIRECT_URL", server)
    assert examine()["wake-up"][0].grade is Grade.GOOD


@pytest.mark.process
def test_a_data_directory_that_is_not_there_is_not_made(place):
    found = examine("--data-dir", str(place / "new" / "data"))
    assert found["embedded"][0].grade is Grade.GOOD
    assert not (place / "new").exists()


# ── when everything is broken ───────────────────────────────────────────────────────────────────────────────────────


def test_a_directory_of_something_else_is_told(place):
    (place / "strange").mkdir()
    (place / "strange" / "holiday.jpg").touch()
    (embedded,) = examine("--data-dir", str(place / "strange"))["embedded"]
    assert embedded.grade is Grade.BAD
    assert "holiday.jpg" in embedded.found


def test_a_file_in_the_place_of_the_data_directory_is_told(place):
    (place / "file").touch()
    assert examine("--data-dir", str(place / "file"))["data"][0].found.endswith("is not a directory")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone who may not look")
def test_a_directory_that_may_not_be_looked_at_is_told(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    os.seteuid(65534)
    try:
        found = [*host.look_at_directory("blobs", closed / "blobs", "DAGMASTER_BLOB_DIR")]
    finally:
        os.seteuid(0)
    assert [each.grade for each in found] == [Grade.BAD]
    assert "DAGMASTER_BLOB_DIR" in found[0].remedy


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"postgresql://u:{CANARY}@127.0.0.1:1/d", "nobody listens there"),
        (f"postgresql://u:{CANARY}@localhost:1/d", "nobody listens there"),
        (f"postgresql://u:{CANARY}@/d?host=/nowhere", "nobody listens there"),
        (f"postgresql://u:x/{CANARY}@h/d", "its address does not fit"),
        (f"mysql://u:{CANARY}@h/d", "its address does not fit"),
    ],
)
def test_a_database_that_is_away_is_told_kindly_and_the_rest_is_looked_at(monkeypatch, url, said):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", url)
    found = examine()
    (database,) = found["database"]
    assert database.grade is Grade.BAD
    assert said in database.found
    assert found["temp"][0].grade is Grade.GOOD


def test_a_server_that_takes_connections_and_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(database, "CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = DatabaseConfig(dsn=f"postgresql://u:{CANARY}@127.0.0.1:{mute.getsockname()[1]}/d?sslmode=disable")
        (finding,) = asyncio.run(database.examine(address, a_patient()))
    assert "no answer within" in finding.found
    assert CANARY not in finding.found


def test_wrong_settings_and_typos_are_told(monkeypatch, server, place):
    monkeypatch.setenv("DAGMASTER_CONCURRENCY", "many")
    monkeypatch.setenv("DAGMASTER_CONCURENCY", "3")
    monkeypatch.setenv("DAGMASTER_SECRET_TOKEN", CANARY)
    found = examine("--data-dir", str(place / "data"))
    assert [each.grade for each in found["settings"]] == [Grade.BAD, Grade.WARNING]
    assert found["settings"][1].remedy == "did you mean DAGMASTER_CONCURRENCY?"
    assert found["secrets"][0].found.startswith("1 ")


@pytest.mark.process
def test_modules_that_fail_hang_or_crash_are_told_and_the_others_are_counted(tmp_path, monkeypatch):
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
    told = [(each.grade, each.found) for each in host.look_at_handlers(a_patient())]
    assert [grade for grade, _ in told[:shipped]] == ["good"] * shipped
    told = [*told[:1], *told[shipped:]]
    assert [grade for grade, _ in told] == ["good", "good", "bad", "bad", "bad", "good"]
    assert told[2][1].endswith("cannot be imported: RuntimeError: ***")
    assert told[3][1].endswith("ended its process: exit code 3")
    assert told[4][1].endswith("ended its process: SIGSEGV")


@pytest.mark.process
def test_a_module_that_takes_too_long_to_import_is_ended(tmp_path, monkeypatch):
    (tmp_path / "hangs.py").write_text("import threading\nthreading.Event().wait()")
    monkeypatch.setenv("DAGMASTER_HANDLERS", str(tmp_path / "hangs.py"))
    monkeypatch.setattr(host, "IMPORT_SECONDS", 1.0)
    *_, last = host.look_at_handlers(a_patient())
    assert last.grade is Grade.BAD
    assert "takes more than 1 s to import" in last.found


@pytest.mark.process
def test_two_modules_that_fit_only_alone_are_told(tmp_path, monkeypatch):
    for name in ("one", "two"):
        body = "from dagmaster import handler\n@handler('same')\ndef f() -> dict: return {}\n"
        (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.setenv("DAGMASTER_HANDLERS", f"{tmp_path}/one.py,{tmp_path}/two.py")
    *alone, together = host.look_at_handlers(a_patient())
    assert {each.grade for each in alone} == {Grade.GOOD}
    assert "two handlers have the name 'same'" in together.found


def test_a_check_that_hangs_is_left_behind_with_what_it_found():
    go_on = threading.Event()

    def hangs(_: DoctorContext):
        yield rules.good("disk", "so far")
        go_on.wait()

    try:
        found = list(doctors.within(doctors.Check("disk", hangs, 0.2), a_patient()))
        assert doctors._hanging()
    finally:
        go_on.set()
    assert [each.found for each in found] == ["so far", "the check took more than 0.2 s"]


def test_a_check_that_fails_itself_is_a_finding_without_secrets(monkeypatch):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", f"postgresql://u:{CANARY}@h/d")

    def fails(_: DoctorContext):
        raise ZeroDivisionError(f"with {CANARY}\nand more")

    (finding,) = doctors.within(doctors.Check("disk", fails), a_patient())
    assert (finding.grade, finding.found) == (Grade.BAD, "the check itself failed: ZeroDivisionError: with ***")


@pytest.mark.parametrize(
    ("message", "found", "remedy"),
    [
        ("User 7 has no home. Give a directory.", "User 7 has no home", "Give a directory."),
        ("It did not start. It said:\n    one\n    FATAL: two\n", "It did not start", "It said: FATAL: two"),
    ],
)
def test_what_dagmaster_says_itself_is_told_with_its_advice(message, found, remedy):
    def refuses(_: DoctorContext):
        raise DataDirectoryUnusable(message)

    (finding,) = doctors.within(doctors.Check("blobs", refuses), a_patient())
    assert finding == rules.bad("blobs", found, remedy)


def test_a_broken_wheel_is_told(monkeypatch, tmp_path):
    (tmp_path / "a_broken_wheel.py").write_text("raise OSError('libx.so: wrong ELF class')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(host, "_WHEELS", ("asyncpg", "a_broken_wheel"))
    (finding,) = host.look_at_wheels(a_patient())
    assert (finding.grade, finding.found) == (Grade.BAD, "a_broken_wheel cannot be imported: libx.so: wrong ELF class")


@pytest.mark.parametrize(("url", "grade"), [("", "bad"), ("postgresql://h/d", "warning")])
def test_missing_binaries_are_bad_only_where_they_are_needed(monkeypatch, url, grade):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", url)
    monkeypatch.setattr(host, "find_spec", lambda _: None)
    (finding,) = host.look_at_binaries(a_patient())
    assert finding.grade == grade


# ── how it looks ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [80, 120])
def test_a_line_has_its_sign_and_below_it_how_to_mend_it(width):
    finding = rules.bad("database", "word " * 40, "mend " * 40)
    lines = [re.sub(r"\x1b\[\d+m", "", line) for line in doctors.lines(finding, width)]
    assert lines[0].startswith("✘ database    word")
    assert sum(line.strip().startswith("→ mend") for line in lines) == 1
    assert max(map(len, lines)) <= width
    assert doctors.lines(rules.good("x", "y"), width)[1:] == []


def test_a_path_is_not_broken_into_two():
    path = "/a-very-long/path" * 10
    assert any(path in line for line in doctors.lines(rules.bad("blobs", path, "x"), 80))


def test_the_sources_names_are_hinted_at(monkeypatch, server, place):
    monkeypatch.setenv("DATABASE_URL", f"postgresql://u:{CANARY}@h/d")
    done = CliRunner().invoke(doctors.doctor, ["--data-dir", str(place / "data")], standalone_mode=False)
    assert "Services also read DATABASE_URL" in done.output
    assert CANARY not in done.output

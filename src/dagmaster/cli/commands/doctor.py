"""`dagmaster doctor`: whether this installation can work, and how to mend what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import sys
import textwrap
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from dagmaster.cli.doctor.database import look_at_database
from dagmaster.cli.doctor.host import (
    IMPORT_SECONDS,
    DoctorContext,
    look_at_binaries,
    look_at_blobs,
    look_at_handlers,
    look_at_limits,
    look_at_python,
    look_at_settings,
    look_at_temp,
    look_at_wheels,
)
from dagmaster.cli.doctor.rules import Finding, Grade, bad
from dagmaster.cli.main import COMPLETED, FAILED
from dagmaster.cli.options import json_option
from dagmaster.errors import DagmasterError
from dagmaster.settings import read_settings, secret_values
from dagmaster.settings_aliases import ALIASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Check(NamedTuple):
    """Something to look at, and for how long at most."""

    topic: str
    look: Callable[[DoctorContext], Iterable[Finding]]
    seconds: float = 15.0


CHECKS: Final = (
    Check("Python", look_at_python),
    Check("wheels", look_at_wheels, 30.0),
    Check("binaries", look_at_binaries),
    Check("settings", look_at_settings),
    Check("temp", look_at_temp),
    Check("limits", look_at_limits),
    Check("blobs", look_at_blobs),
    # A server that has to recover takes long.
    Check("database", look_at_database, 90.0),
    Check("handlers", look_at_handlers, 3 * IMPORT_SECONDS),
)

GOODBYE_SECONDS: Final = 10.0
_SIGNS: Final = {Grade.GOOD: ("✔", "green"), Grade.WARNING: ("!", "yellow"), Grade.BAD: ("✘", "red")}
_PLAIN: Final = str.maketrans({"✔": "+", "✘": "x", "→": ">", "…": "."})
_TOPIC_WIDTH: Final = 10
_WIDEST: Final = 120


@click.command(epilog="Exit codes: 0 nothing is ✘, 1 something is.")
@json_option
@click.option(
    "--data-dir",
    type=click.Path(path_type=pathlib.Path),
    help="The embedded PostgreSQL's data. Default: DAGMASTER_DATA_DIR, else one for each user.",
)
@click.option("--services", is_flag=True, help="As orchestrators and workers see it: DATABASE_URL and others count.")
def doctor(*, as_json: bool, data_dir: pathlib.Path | None, services: bool) -> int:
    """Check this installation, and tell how to mend what is wrong.

    It looks at Python, the wheels, the settings, the database (DAGMASTER_DATABASE_URL, else the embedded one), the
    directories, the handlers and the services that live. It changes nothing, each check has a time limit, and no
    secret is shown.

    \b
    ✔ it works    ! it works, and could be better    ✘ it does not work

    \b
    Examples:
      dagmaster doctor
      dagmaster doctor --services --json
    """
    patient = DoctorContext(reading=read_settings(services=services), data_dir=data_dir, hide=_hider())
    findings: list[Finding] = []
    for finding in _examined(patient):
        findings.append(finding)
        if not as_json:
            for line in lines(finding, min(shutil.get_terminal_size().columns, _WIDEST)):
                _say(line)
    count = {grade: sum(each.grade is grade for each in findings) for grade in Grade}
    if as_json:
        document = {"ok": not count[Grade.BAD], "checks": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        _say(f"\n{_summary(count)}")
        if not services:
            _hint_at_aliases()
    code = FAILED if count[Grade.BAD] else COMPLETED
    if _hanging():
        # A thread that hangs in the operating system would keep the process: Python waits for what it started.
        sys.stdout.flush()
        os._exit(code)
    return code


def lines(finding: Finding, width: int) -> list[str]:
    """Return one finding as lines of text: its sign, what was found, and below it how to fix it."""
    sign, colour = _SIGNS[finding.grade]
    margin = " " * (_TOPIC_WIDTH + 4)
    room = max(width - len(margin), 20)
    found = _wrapped(finding.found, room) or [""]
    remedy = _wrapped(finding.remedy, room - 2)
    topic = finding.topic if finding.grade is Grade.GOOD else click.style(finding.topic, bold=True)
    padding = " " * (_TOPIC_WIDTH - len(finding.topic))
    said = [f"{click.style(sign, fg=colour, bold=True)} {topic}{padding}  {found[0]}"]
    said += [f"{margin}{line}" for line in found[1:]]
    return said + [f"{margin}{'→ ' if not place else '  '}{line}" for place, line in enumerate(remedy)]


def within(check: Check, patient: DoctorContext) -> Iterator[Finding]:
    """Return what a check finds in its time. One that takes longer, or fails itself, is a finding too."""
    found: list[Finding] = []
    failure: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            found.extend(check.look(patient))
        except BaseException as error:  # noqa: BLE001 - the doctor does not fall ill
            failure.append(error)
        finally:
            done.set()

    # A daemon: the process does not wait for one that hangs.
    thread = threading.Thread(target=work, daemon=True, name=f"{_THREADS}{check.topic}")
    thread.start()
    try:
        # Not `join`: in Python 3.11 one that Ctrl-C interrupts believes the thread ended.
        is_late = not done.wait(check.seconds)
    except KeyboardInterrupt:
        # A server that was started for a look is stopped before we go, also when Ctrl-C is pressed again.
        ends = time.monotonic() + GOODBYE_SECONDS
        while not done.is_set() and time.monotonic() < ends:
            with contextlib.suppress(KeyboardInterrupt):
                done.wait(0.1)
        raise
    if not is_late:
        thread.join()
    yield from tuple(found)
    if is_late:
        remedy = "something it asks does not answer: a disk, a network, a server that recovers. Try again later"
        yield bad(check.topic, f"the check took more than {check.seconds:g} s", remedy)
    for error in failure:
        if isinstance(error, DagmasterError):
            yield patient.refused(check.topic, error)
            continue
        said = f"the check itself failed: {type(error).__name__}: {patient.tell(error)}"
        yield bad(check.topic, said, "if the lines above do not explain it, this is a mistake in dagmaster: report it")


_THREADS: Final = "doctor-"


def _examined(patient: DoctorContext) -> Iterator[Finding]:
    for check in CHECKS:
        yield from within(check, patient)


def _hanging() -> bool:
    return any(thread.name.startswith(_THREADS) for thread in threading.enumerate())


def _hider() -> Callable[[str], str]:
    """Return what takes the secrets of the environment out of a text."""
    from dagmaster.redaction import redact_value

    secrets = secret_values()
    return lambda text: str(redact_value(text, secrets))


def _summary(count: dict[Grade, int]) -> str:
    if count[Grade.BAD]:
        return f"{count[Grade.BAD]} ✘: mend what is marked, from the top; later ones often follow."
    if count[Grade.WARNING]:
        return "It works. What is marked with ! could be better."
    return "All is well."


def _hint_at_aliases() -> None:
    there = [alias.name for alias in ALIASES if alias.setting and os.environ.get(alias.name)]
    if there:
        _say(f"Services also read {', '.join(there)}: `dagmaster doctor --services` looks as they do.")


def _wrapped(text: str, width: int) -> list[str]:
    # A path or a command is copied: it is not broken.
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _say(line: str) -> None:
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        line = line.translate(_PLAIN).encode("ascii", "replace").decode("ascii")
    click.echo(line)

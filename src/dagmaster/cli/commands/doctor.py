"""`dagmaster doctor`: check that jobs can run here, and print how to repair what does not work."""

from __future__ import annotations

import contextlib
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

from dagmaster.cli.doctor.database import check_database
from dagmaster.cli.doctor.host import (
    IMPORT_SECONDS,
    DoctorContext,
    check_binaries,
    check_blobs,
    check_handlers,
    check_limits,
    check_packages,
    check_python,
    check_settings,
    check_temp,
)
from dagmaster.cli.doctor.rules import Finding, Grade, bad
from dagmaster.cli.main import COMPLETED, FAILED
from dagmaster.errors import DagmasterError
from dagmaster.sdk.command_line import json_option
from dagmaster.sdk.terminal import echo, echo_json, style
from dagmaster.settings import read_settings, secret_values
from dagmaster.settings.aliases import ALIASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class Check(NamedTuple):
    """A check, and its time limit."""

    topic: str
    run: Callable[[DoctorContext], Iterable[Finding]]
    seconds: float = 15.0


CHECKS: Final = (
    Check("Python", check_python),
    Check("packages", check_packages, 30.0),
    Check("binaries", check_binaries),
    Check("settings", check_settings),
    Check("temp", check_temp),
    Check("limits", check_limits),
    Check("blobs", check_blobs),
    # A server that recovers after a crash starts slowly.
    Check("database", check_database, 90.0),
    Check("handlers", check_handlers, 3 * IMPORT_SECONDS),
)

SHUTDOWN_SECONDS: Final = 10.0
_SIGNS: Final = {Grade.GOOD: ("✔", "green"), Grade.WARNING: ("!", "yellow"), Grade.BAD: ("✘", "red")}
_PLAIN: Final = str.maketrans({"✔": "+", "✘": "x", "→": ">", "…": "."})
_TOPIC_WIDTH: Final = 10
_MAX_WIDTH: Final = 120


@click.command(epilog="Exit codes: 0 ready (no check failed), 1 not ready.")
@json_option
@click.option(
    "--data-dir",
    type=click.Path(path_type=pathlib.Path),
    help="The data directory of the embedded PostgreSQL.  [default: DAGMASTER_DATA_DIR, else one per user]",
)
@click.option(
    "--services",
    is_flag=True,
    help="Read the settings as orchestrators and workers do: DATABASE_URL and other names count.",
)
def doctor(*, as_json: bool, data_dir: pathlib.Path | None, services: bool) -> int:
    """Check that jobs can run here, and print the first thing to do if they cannot.

    Checks Python, the installed packages, the settings, the database (DAGMASTER_DATABASE_URL, else the
    embedded one), the directories, the handlers and the live services. It changes nothing, each check has a
    time limit, and no secret is printed. As a health check: the exit code is 1 if something does not work, no
    orchestrator is alive, or tasks wait in a queue that no worker serves.

    \b
    ✔ works    ! works, but could be better    ✘ does not work

    \b
    Examples:
      dagmaster doctor
      dagmaster doctor --services --json
    """
    context = DoctorContext(reading=read_settings(services=services), data_dir=data_dir, redact=_redactor())
    findings = list(_run_checks(context))
    first = next((finding for finding in findings if finding.grade is Grade.BAD), None)
    if as_json:
        document = {
            "ok": first is None,
            "first": None if first is None else asdict(first),
            "checks": [asdict(finding) for finding in findings],
        }
        echo_json(document, indent=2)
    else:
        width = min(shutil.get_terminal_size().columns, _MAX_WIDTH)
        for line in [*_headline(findings, first, width), "", *_render_all(findings, width)]:
            _print(line)
        if not services:
            _print_alias_hint()
    code = COMPLETED if first is None else FAILED
    if _has_hanging_check():
        # Python would wait for a thread that hangs in the operating system.
        sys.stdout.flush()
        os._exit(code)
    return code


def render_lines(finding: Finding, width: int) -> list[str]:
    """Return a finding as lines of text: its sign and message, and below them the remedy."""
    sign, colour = _SIGNS[finding.grade]
    margin = " " * (_TOPIC_WIDTH + 4)
    text_width = max(width - len(margin), 20)
    message = _wrap(finding.message, text_width) or [""]
    remedy = _wrap(finding.remedy, text_width - 2)
    topic = finding.topic if finding.grade is Grade.GOOD else style(finding.topic, bold=True)
    padding = " " * (_TOPIC_WIDTH - len(finding.topic))
    lines = [f"{style(sign, fg=colour, bold=True)} {topic}{padding}  {message[0]}"]
    lines += [f"{margin}{line}" for line in message[1:]]
    return lines + [f"{margin}{'  ' if number else '→ '}{line}" for number, line in enumerate(remedy)]


def run_check(check: Check, context: DoctorContext) -> Iterator[Finding]:
    """Run a check within its time limit. A check that takes longer, or fails itself, is also a finding."""
    findings: list[Finding] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            findings.extend(check.run(context))
        except BaseException as error:  # noqa: BLE001 - reported as a finding
            errors.append(error)
        finally:
            done.set()

    # A daemon: the process does not wait for a check that hangs.
    thread = threading.Thread(target=work, daemon=True, name=f"{_THREAD_PREFIX}{check.topic}")
    thread.start()
    try:
        # Not `join`: in Python 3.11, a `join` that Ctrl-C interrupts marks the thread as ended.
        is_late = not done.wait(check.seconds)
    except KeyboardInterrupt:
        _await_shutdown(done)
        raise
    if not is_late:
        thread.join()
    yield from tuple(findings)
    if is_late:
        remedy = "a disk, a network or a recovering server does not answer. Try again later"
        yield bad(check.topic, f"the check took more than {check.seconds:g} s", remedy)
    for error in errors:
        if isinstance(error, DagmasterError):
            yield context.finding_from_error(check.topic, error)
            continue
        message = f"the check itself failed: {type(error).__name__}: {context.describe(error)}"
        yield bad(
            check.topic, message, "if the lines above do not explain it, report it as a bug of dagmaster"
        )


def _await_shutdown(done: threading.Event) -> None:
    """Wait until a server that the check started is stopped, even if Ctrl-C is pressed again."""
    deadline = time.monotonic() + SHUTDOWN_SECONDS
    while not done.is_set() and time.monotonic() < deadline:
        with contextlib.suppress(KeyboardInterrupt):
            done.wait(0.1)


_THREAD_PREFIX: Final = "doctor-"


def _run_checks(context: DoctorContext) -> Iterator[Finding]:
    for check in CHECKS:
        with _show_progress(check.topic):
            yield from run_check(check, context)


@contextlib.contextmanager
def _show_progress(topic: str) -> Iterator[None]:
    """Show on a terminal which check runs: the report is printed when all have ended."""
    if not sys.stderr.isatty():
        yield
        return
    echo(f"checking {topic}", err=True, nl=False)
    try:
        yield
    finally:
        echo("\r\x1b[K", err=True, nl=False)


def _has_hanging_check() -> bool:
    return any(thread.name.startswith(_THREAD_PREFIX) for thread in threading.enumerate())


def _redactor() -> Callable[[str], str]:
    from dagmaster.redaction import redact_value

    secrets = secret_values()
    return lambda text: str(redact_value(text, secrets))


def _headline(findings: Sequence[Finding], first: Finding | None, width: int) -> list[str]:
    """Return whether jobs can run, else what to do first: later problems often follow from earlier ones."""
    if first is None:
        has_warnings = any(finding.grade is Grade.WARNING for finding in findings)
        return [f"Ready: jobs can run{'; what is marked with ! could be better' if has_warnings else ''}."]
    count = sum(finding.grade is Grade.BAD for finding in findings)
    problem = f"Not ready: {first.topic}: {first.message}" + (
        f" (the first of {count} problems)" if count > 1 else ""
    )
    lines = [style(line, fg="red", bold=True) for line in _wrap(problem, width)]
    return lines + [
        f"{'  ' if number else '→ '}{line}" for number, line in enumerate(_wrap(first.remedy, width - 2))
    ]


def _render_all(findings: Sequence[Finding], width: int) -> list[str]:
    return [line for finding in findings for line in render_lines(finding, width)]


def _print_alias_hint() -> None:
    names = [alias.name for alias in ALIASES if alias.setting and os.environ.get(alias.name)]
    if names:
        _print(f"Services also read {', '.join(names)}: `dagmaster doctor --services` checks with them.")


def _wrap(text: str, width: int) -> list[str]:
    # Paths and commands stay whole, so that they can be copied.
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _print(line: str) -> None:
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        line = line.translate(_PLAIN).encode("ascii", "replace").decode("ascii")
    echo(line)

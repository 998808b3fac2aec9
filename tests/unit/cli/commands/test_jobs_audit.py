"""The progress of an audit: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import io
import sys

from dagmaster.cli.commands.jobs_audit import PROGRESS_SECONDS, progress_lines, show_progress
from dagmaster.testing.clock import FakeClock


def test_a_line_is_printed_every_few_seconds_and_none_for_a_short_audit(capsys):
    clock = FakeClock()
    print_line = progress_lines("job", clock.now)
    print_line(1_000, 200_000)
    assert capsys.readouterr().err == ""
    for done in (2_000, 3_000):
        clock.move(PROGRESS_SECONDS / 2)
        print_line(done, 200_000)
    assert capsys.readouterr().err == "audited 3,000 of 200,000 jobs\n"


def test_a_line_of_progress_without_a_total_counts_what_was_done(capsys):
    clock = FakeClock()
    print_line = progress_lines("output", clock.now)
    clock.move(PROGRESS_SECONDS)
    print_line(4_000, None)
    assert capsys.readouterr().err == "audited 4,000 outputs\n"


def test_a_bar_is_drawn_on_a_terminal(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with show_progress("job") as on_progress:
        on_progress(50, 200)
    assert "50/200" in terminal.getvalue()

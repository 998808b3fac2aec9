"""The one way to the terminal: only what the program adds itself controls it."""

from __future__ import annotations

import io
import json
import logging
import sys
from unittest.mock import Mock

import click
import pytest
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from dagmaster.sdk.terminal import (
    echo,
    echo_json,
    open_console,
    print_table,
    printable,
    style,
    visible_stderr,
)
from dagmaster.telemetry.logs import TextFormatter
from dagmaster.text_format import visible_json, visible_text
from dagmaster.worker.task_log_capture import TASK_LOG, capture

HOSTILE = "\x1b]0;t\x07\r\x9b2J\u202e\x08\x7f\u2028"
SHOWN = r"\x1b]0;t\x07\x0d\x9b2J\u202e\x08\x7f\u2028"


def test_control_characters_become_escapes_and_text_stays():
    assert visible_text(HOSTILE) == SHOWN
    assert visible_text(SHOWN) == SHOWN
    plain = "a\tb\nπ 漢 ‍👩‍👧 עברית \u200f"
    assert visible_text(plain) == plain
    assert visible_text("a\r\nb") == "a\nb"
    assert visible_text("\U000e0041\ud800") == r"\U000e0041\ud800"


def test_json_stays_json():
    value = {HOSTILE: [HOSTILE, "\U000e0041", "\ud800"]}
    text = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert text.isascii()
    assert "\x7f" not in text


def test_a_line_has_the_colours_of_the_program_only(capsys: pytest.CaptureFixture[str]):
    assert printable(style(HOSTILE, fg="red") + HOSTILE) == f"\x1b[31m{SHOWN}\x1b[0m{SHOWN}"
    echo(style(HOSTILE, fg="red") + HOSTILE)
    echo(HOSTILE, err=True)
    echo_json({"a": HOSTILE})
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == SHOWN + SHOWN
    assert err == f"{SHOWN}\n"
    assert json.loads(out.splitlines()[1]) == {"a": HOSTILE}
    echo(HOSTILE, is_raw=True)
    assert capsys.readouterr().out == f"{HOSTILE}\n"


def test_errors_of_click_are_visible(capsys: pytest.CaptureFixture[str]):
    click.UsageError(f"no such option {HOSTILE}").show(visible_stderr())
    assert capsys.readouterr().err == f"Error: no such option {SHOWN}\n"


def test_every_renderable_is_visible_and_the_movements_of_a_live_view_work():
    file = io.StringIO()
    console = open_console(file, width=200)
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(Text(HOSTILE))
    tree = Tree(HOSTILE)
    tree.add(Panel(HOSTILE, title=HOSTILE))
    console.print(table, tree, HOSTILE, Text(HOSTILE, style="red"))
    console.out(HOSTILE)
    text = file.getvalue()
    assert not {"\x1b", "\x9b", "\u202e", "\x7f", "\u2028", "\x08", "\r"} & set(text)
    assert text.count(r"\x9b2J") >= 7
    file = io.StringIO()
    console = open_console(file, width=80)
    console._force_terminal = True
    with Live(Text(HOSTILE), console=console, auto_refresh=False) as live:
        live.update(Text(f"second {HOSTILE}"), refresh=True)
    text = file.getvalue()
    assert "\x1b[?25l" in text
    assert "\x1b]" not in text
    assert "\x9b" not in text


def test_logs_of_services_are_visible():
    formatter = TextFormatter(lambda text: text)
    error = ValueError(HOSTILE)
    record = logging.LogRecord("n", 40, "", 0, "%s", (HOSTILE,), (ValueError, error, None))
    text = formatter.format(record)
    assert text.count(SHOWN) == 2
    assert not {"\x1b", "\x9b"} & set(text)


def test_what_a_handler_of_run_prints_is_visible_and_its_log_unchanged(capsys: pytest.CaptureFixture[str]):
    log = Mock()
    with capture(echoes=True):
        token = TASK_LOG.set(log)
        sys.stdout.write(HOSTILE)
        sys.stdout.buffer.write(HOSTILE.encode())
        TASK_LOG.reset(token)
    assert capsys.readouterr().out == SHOWN * 2
    assert [call.args for call in log.write.call_args_list] == [(HOSTILE,)] * 2


@pytest.mark.parametrize("columns", ["20", "80"])
def test_what_the_next_command_needs_is_whole_on_any_screen(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", columns)
    table = Table(box=None, pad_edge=False)
    for name in ("id", "endpoint", "error"):
        table.add_column(name, no_wrap=name != "error", overflow="fold")
    table.add_row("i" * 36, "e" * 90, "connection refused by the receiver")
    print_table(table)
    printed = capsys.readouterr().out
    assert "i" * 36 + "  " + "e" * 90 in printed
    assert "refused" in printed

"""Changes of many callbacks, in batches."""

from __future__ import annotations

import asyncio
from typing import Any

from dagmaster.application.views.callbacks import CallbackChangeResult
from dagmaster.cli.commands import callbacks


def test_batches_are_changed_until_none_is_left_and_added_up(monkeypatch, capsys):
    batches = {
        None: CallbackChangeResult(count=5_000, sentence="…", left=3_000, next_cursor="a"),
        "a": CallbackChangeResult(count=3_000, sentence="3,000 callbacks will be sent again."),
    }

    async def work(_system: Any, cursor: str | None) -> CallbackChangeResult:
        return batches[cursor]

    def run(_data_dir: Any, run_all: Any) -> Any:
        return asyncio.run(run_all(None))

    monkeypatch.setattr(callbacks, "_run", run)
    result = callbacks._run_in_batches(None, work)
    assert (result.count, result.left) == (8_000, 0)
    assert "8,000" in result.sentence
    assert "3,000 are left" in capsys.readouterr().err

"""Unit tests start no processes: those that do are marked with `process`, and `make unit` leaves them out."""

from __future__ import annotations

import subprocess
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import pytest


def _refuse(*_: Any, **__: Any) -> NoReturn:
    pytest.fail("a unit test starts a process; mark it with @pytest.mark.process")


@pytest.fixture(autouse=True)
def _refuse_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("process") is None:
        # asyncio's default loop starts its processes by subprocess.Popen, too.
        monkeypatch.setattr(subprocess.Popen, "__init__", _refuse)
        monkeypatch.setattr(BaseProcess, "start", _refuse)

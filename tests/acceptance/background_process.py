"""A command that runs while a test goes on."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

from tests.acceptance.fork_server import DAGMASTER, ROOT
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from pathlib import Path


class Process:
    """A running command, and its output so far."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: dict[str, str],
        start: type[subprocess.Popen[str]],
        cwd: Path = ROOT,
    ) -> None:
        self._process = start(
            [DAGMASTER, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd, env=env,
        )  # fmt: skip
        self.pid = self._process.pid
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._has_ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with self._changed:
                    self.lines.append(line.rstrip())
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, text: str) -> str:
        """Wait for a line that contains this text; return the line."""
        with self._changed:
            self._changed.wait_for(lambda: text in self.text or self._has_ended, PATIENCE_SECONDS)
        lines = [line for line in self.lines if text in line]
        assert lines, f"{text!r} was not printed:\n{self.text}"
        return lines[0]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until it exits; return the exit code."""
        code = self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return code

    def end(self) -> None:
        """Terminate it, so that the processes that it started end, too; else kill it."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self.wait()

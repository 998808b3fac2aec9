"""Services for tests of formats, and a server that no file may reach."""

from __future__ import annotations

import http.server
import threading
from typing import TYPE_CHECKING

import pytest

from tests.unit.geo.vector.vector_context import FolderServices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def services(tmp_path: Path) -> FolderServices:
    return FolderServices(tmp_path)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a server, and the paths that it was asked for. No proxy stands before it."""
    monkeypatch.setenv("no_proxy", "*")
    requests: list[str] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{listener.server_port}", requests
        listener.shutdown()
        thread.join()

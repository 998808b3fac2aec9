"""`dagmaster partners check` against the example of a receiver, and against receivers that are wrong."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from standardwebhooks import Webhook

from dagmaster.application.partner_check import MAX_ANSWER_SECONDS, Answer, check_partner
from dagmaster.cli.commands.partners import partners
from dagmaster.webhook_signatures import new_hmac_secret

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[4] / "examples" / "callback_receiver.py"
SECRET = new_hmac_secret(b"0123456789abcdef0123456789abcdef")


@pytest.fixture
def receiver() -> Iterator[tuple[str, Any]]:
    """Provide the example on a socket: its address, and its class."""
    spec = importlib.util.spec_from_file_location("callback_receiver", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    class Quiet(module.Receiver):  # type: ignore[misc]
        webhook = Webhook(SECRET)

        def log_message(self, *_words: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/callbacks", Quiet
        server.shutdown()
        thread.join()


@pytest.mark.process
def test_the_example_takes_what_is_good_once_and_refuses_the_rest(receiver: tuple[str, Any]):
    url, handler = receiver
    result = CliRunner().invoke(partners, ["check", url, "--secret", SECRET, "--json"])
    checks = json.loads(result.stdout)
    assert (result.exit_code, [one["problem"] for one in checks]) == (0, [""] * 10)
    assert [one["status"] for one in checks].count(204) == 4
    # The valid one, that with several signatures, and that with a new field; the repeated one is not taken again.
    assert handler.work.qsize() == 3


@pytest.mark.process
@pytest.mark.parametrize("secret", ["", "abc", "whsec_", "whsec_a"])
def test_the_example_says_which_secret_it_needs(secret: str):
    done = subprocess.run(
        [sys.executable, EXAMPLE, "8000"], env=os.environ | {"DAGMASTER_WEBHOOK_SECRET": secret},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("set DAGMASTER_WEBHOOK_SECRET to the secret")


@pytest.mark.process
def test_a_receiver_with_another_secret_is_told_what_is_wrong(receiver: tuple[str, Any]):
    other = new_hmac_secret(b"another-secret-another-secret-00")
    result = CliRunner().invoke(partners, ["check", receiver[0], "--secret", other], standalone_mode=False)
    assert result.return_value == 1
    assert "answered 401 instead of 2xx" in result.stdout


def test_a_secret_of_another_kind_and_a_receiver_that_is_away_are_named():
    assert CliRunner().invoke(partners, ["check", "http://x", "--secret", "abc"]).exit_code == 2
    away = ["check", "http://127.0.0.1:1/", "--secret", SECRET]
    result = CliRunner().invoke(partners, away, standalone_mode=False)
    assert (result.return_value, result.output.count("no answer"), result.stdout) == (1, 1, "")


def problems_of(status: int, seconds: float = 0.0) -> list[str]:
    async def send(_headers: dict[str, str], _body: bytes) -> Answer:
        return Answer(status, seconds)

    checks = asyncio.run(check_partner(send, SECRET, now=1_000_000.0))
    return [one.problem for one in checks if one.problem]


def test_a_receiver_that_takes_everything_that_redirects_or_that_is_slow_fails():
    assert len(problems_of(200)) == 6
    assert len(problems_of(302)) == 10
    assert len(problems_of(500)) == 10
    slow = problems_of(204, MAX_ANSWER_SECONDS + 1)
    assert sum("work later" in problem for problem in slow) == 4

"""The address of the HTTP API: its port, and the files of TLS."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import click
import pytest
from click.testing import CliRunner

from dagmaster.cli.commands.server import server
from dagmaster.cli.http_address import bind, check_tls_files, find_port, name_program, parse_address, url_of


def test_another_port_is_chosen_if_the_preferred_one_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        chosen = find_port(taken)
        assert chosen not in (0, taken)
        with bind("127.0.0.1", chosen) as listener:
            assert listener.getsockname()[1] == chosen
    assert find_port(taken) == taken


@pytest.mark.parametrize(
    ("status", "body", "name"),
    [
        (200, b'{"status":"alive"}', "another dagmaster"),
        (200, b'{"status":"ok"}', "another program"),
        (404, b"<html>", "another program"),
    ],
)
def test_the_program_on_a_port_is_named_by_what_it_answers(status, body, name):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body if self.path == "/livez" else b"")

        def log_message(self, *_args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answer) as other:
        thread = threading.Thread(target=other.handle_request)
        thread.start()
        assert name_program(other.server_port) == name
        thread.join()


def test_a_program_that_does_not_speak_http_is_another_program():
    def close_first() -> None:
        connection, _ = other.accept()
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as other:
        thread = threading.Thread(target=close_first)
        thread.start()
        assert name_program(other.getsockname()[1]) == "another program"
        thread.join()


def test_a_server_whose_port_is_taken_is_rejected_with_the_address():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = CliRunner().invoke(server, ["--port", str(port)])
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}: another program has this port. Stop it" in result.output
    with pytest.raises(click.ClickException, match="this machine has no such address"):
        bind("192.0.2.1", 8420)


@pytest.mark.parametrize("text", ["8420", ":8420", "host:", "host:x", "host:65536", "host:-1"])
def test_an_address_has_a_host_and_a_port(text):
    with pytest.raises(click.UsageError, match="HOST:PORT"):
        parse_address(text)
    assert parse_address("[::1]:8420") == ("::1", 8420)


def test_a_url_has_the_port_that_the_socket_has_got():
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        assert url_of(listener, has_tls=True) == f"https://127.0.0.1:{port}"


def test_files_of_tls_that_cannot_be_used_are_rejected_before_the_start(tmp_path):
    file = tmp_path / "x.pem"
    file.write_text("not PEM")
    with pytest.raises(click.UsageError, match="go together"):
        check_tls_files(str(file), None)
    with pytest.raises(click.ClickException, match=r"cannot use the certificate .*x\.pem"):
        check_tls_files(str(file), str(file))
    check_tls_files(None, None)

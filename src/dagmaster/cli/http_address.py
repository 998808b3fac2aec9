"""The address that the HTTP API listens on."""

from __future__ import annotations

import socket
from typing import Final

import click

PORT: Final = 8420
MAX_PORT: Final = 65_535


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; raise a usage error for another text."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
        raise click.UsageError(f"{text!r} is not an address: write HOST:PORT, as 127.0.0.1:{PORT}")
    return host.strip("[]"), int(port)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raise a usage error if the address is taken."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def find_port(preferred: int = PORT) -> int:
    """Return the preferred port of this machine if it is free, else another one."""
    for port in (preferred, 0):
        try:
            with socket.create_server(("127.0.0.1", port)) as listener:
                return int(listener.getsockname()[1])
        except OSError:
            continue
    raise click.ClickException("no port of 127.0.0.1 is free")

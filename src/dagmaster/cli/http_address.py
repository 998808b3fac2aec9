"""The address that the HTTP API listens on."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
from typing import Final

import click

PORT: Final = 8420
GATEWAY_PORT: Final = 8430
MAX_PORT: Final = 65_535
ANSWER_SECONDS: Final = 1.0
MAX_ANSWER_BYTES: Final = 1000


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; raise a usage error for another text."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
        raise click.UsageError(f"{text!r} is not an address: write HOST:PORT, such as 127.0.0.1:{PORT}")
    return host.strip("[]"), int(port)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raise a usage error if the address is taken."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program has this port. Stop it, or choose another port"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address"
    return os.strerror(error.errno).lower() if error.errno else str(error)


def url_of(listener: socket.socket, *, has_tls: bool = False) -> str:
    """Return the URL of a socket that listens, with the port that it has got."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if has_tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def check_tls_files(certificate: str | None, key_file: str | None) -> None:
    """Raise a usage error if one of the files is missing, or if they cannot be used together."""
    if certificate is None or key_file is None:
        if certificate is not key_file:
            raise click.UsageError("--certificate and --certificate-key go together")
        return
    import ssl

    try:
        # A key with a password would ask for it at the terminal.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            certificate, key_file, password=""
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise click.ClickException(
            f"cannot use the certificate {certificate} with the key {key_file}: {reason}."
            " Both are PEM files, and the key has no password"
        ) from error


def find_port(preferred: int = PORT) -> int:
    """Return the preferred port of this machine if it is free, else another one."""
    for port in (preferred, 0):
        try:
            with socket.create_server(("127.0.0.1", port)) as listener:
                return int(listener.getsockname()[1])
        except OSError:
            continue
    raise click.ClickException("no port of 127.0.0.1 is free")


def name_program(port: int) -> str:
    """Return what listens on a port of this machine: another dagmaster, if it answers /livez as one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/livez")
        is_dagmaster = json.loads(connection.getresponse().read(MAX_ANSWER_BYTES)) == {"status": "alive"}
    except (OSError, http.client.HTTPException, ValueError):
        is_dagmaster = False
    finally:
        connection.close()
    return "another dagmaster" if is_dagmaster else "another program"

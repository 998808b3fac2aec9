"""`dagmaster server`: the HTTP API and the web page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from dagmaster.cli.commands.services import serve, with_parent_option
from dagmaster.cli.http_address import PORT, bind, check_tls_files, url_of
from dagmaster.cli.log_options import LogOptions, log_options
from dagmaster.sdk.command_line import data_dir_option

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

    from dagmaster.cli.commands.services import Service
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.settings import Settings
    from dagmaster.telemetry.logs import LogFormat, LogLevel

F = TypeVar("F", bound="Callable[..., Any]")


def address_options(port: int) -> Callable[[F], F]:
    """Return the options of the address that a service listens on."""

    def add(command: F) -> F:
        numbered = click.option(
            "--port",
            type=click.IntRange(0, 65_535),
            default=port,
            show_default=True,
            help="0: any free port.",
        )(command)
        return click.option(
            "--host", default="127.0.0.1", show_default=True, help="The address to listen on."
        )(numbered)

    return add


def tls_options(command: F) -> F:
    """Add the options of TLS, and of proxies that end it."""
    for option in (
        click.option(
            "--trusted-proxies", metavar="ADDRESSES", help="Proxies whose X-Forwarded headers are believed."
        ),
        click.option(
            "--certificate-key", type=click.Path(exists=True, dir_okay=False), help="Its private key (PEM)."
        ),
        click.option(
            "--certificate", type=click.Path(exists=True, dir_okay=False), help="A TLS certificate (PEM)."
        ),
    ):
        command = option(command)
    return command


@click.command()
@address_options(PORT)
@tls_options
@click.option(
    "--access-log/--no-access-log",
    default=None,
    help="Log each request that was answered.  [default: DAGMASTER_ACCESS_LOG, off]",
)
@data_dir_option
@log_options
@with_parent_option
def server(
    *,
    host: str,
    port: int,
    certificate: str | None,
    certificate_key: str | None,
    trusted_proxies: str | None,
    access_log: bool | None,
    data_dir: pathlib.Path | None,
    log_format: LogFormat | None,
    log_level: LogLevel | None,
    with_parent: bool,
) -> int:
    """Run the HTTP API, under /api/v1, and the web page, under /ui.

    It keeps no state: any number may run behind a balancer. Every request needs a key (`dagmaster keys
    create`), except /livez, /readyz and /openapi.json, the description of the API. The web page asks for a
    key once.

    \b
    Examples:
      dagmaster keys create ops --scope admin
      dagmaster server --port 8420
      curl -H "Authorization: Bearer $DAGMASTER_KEY" http://127.0.0.1:8420/api/v1/jobs
    """
    from dagmaster.bootstrap import blob_directory
    from dagmaster.bootstrap.http_server import ServerService

    check_tls_files(certificate, certificate_key)
    listener = bind(host, port)
    address = url_of(listener, has_tls=certificate is not None)

    def make(config: DatabaseConfig, _blobs: OutputBlobs, settings: Settings) -> Service:
        return ServerService(
            config,
            settings,
            blob_directory(settings, data_dir),
            listener,
            certificate=certificate,
            key_file=certificate_key,
            trusted_proxies=trusted_proxies,
            access_log=access_log,
            # Only `dagmaster dev` starts a server that ends with its parent.
            is_dev=with_parent,
        )

    logs = LogOptions(log_format, log_level)
    return serve(
        f"server at {address}/ui/", make, data_dir, logs, with_parent=with_parent, needs_schema=False
    )

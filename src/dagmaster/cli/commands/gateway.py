"""`dagmaster gateway`: what partners call instead of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dagmaster.cli.commands.server import address_options, tls_options
from dagmaster.cli.commands.services import serve, with_parent_option
from dagmaster.cli.http_address import GATEWAY_PORT, bind, check_tls_files, url_of
from dagmaster.cli.log_options import LogOptions, log_options
from dagmaster.sdk.command_line import data_dir_option

if TYPE_CHECKING:
    import pathlib

    from dagmaster.cli.commands.services import Service
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.settings import Settings
    from dagmaster.telemetry.logs import LogFormat, LogLevel


@click.command()
@address_options(GATEWAY_PORT)
@click.option(
    "--orchestrator-url",
    metavar="URL",
    help="The server to forward to.  [default: DAGMASTER_ORCHESTRATOR_URL]",
)
@tls_options
@data_dir_option
@log_options
@with_parent_option
def gateway(
    *,
    host: str,
    port: int,
    orchestrator_url: str | None,
    certificate: str | None,
    certificate_key: str | None,
    trusted_proxies: str | None,
    data_dir: pathlib.Path | None,
    log_format: LogFormat | None,
    log_level: LogLevel | None,
    with_parent: bool,
) -> int:
    """Run a gateway: partners submit requests there, and ask how far they are.

    It reads the database with the role dagmaster_gateway, which can change nothing, and forwards every change
    to a server, with the key of the caller. It keeps no state: any number may run behind a balancer. Until
    its database and its server are there, it answers 503.

    \b
    Examples:
      DAGMASTER_DATABASE_URL=postgresql://gateway@…  dagmaster gateway --orchestrator-url http://server:8420
      curl http://127.0.0.1:8430/readyz
    """
    from dagmaster.bootstrap.gateway import GatewayService
    from dagmaster.settings.gateway import GatewaySettings

    check_tls_files(certificate, certificate_key)
    changes = {}
    if orchestrator_url is not None:
        try:
            changes = GatewaySettings(orchestrator_url=orchestrator_url).model_dump(
                include={"orchestrator_url"}
            )
        except ValueError as error:
            raise click.UsageError(
                "--orchestrator-url is an http or https URL without a user and a query"
            ) from error
    listener = bind(host, port)
    address = url_of(listener, has_tls=certificate is not None)

    def make(config: DatabaseConfig, _blobs: OutputBlobs, settings: Settings) -> Service:
        return GatewayService(
            config,
            settings.model_copy(update=changes),
            listener,
            certificate=certificate,
            key_file=certificate_key,
            trusted_proxies=trusted_proxies,
        )

    logs = LogOptions(log_format, log_level)
    return serve(
        f"gateway at {address}",
        make,
        data_dir,
        logs,
        with_parent=with_parent,
        needs_schema=False,
        needs_secrets=False,
    )

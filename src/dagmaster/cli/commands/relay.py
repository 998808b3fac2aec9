"""`dagmaster relay`: the service that delivers callbacks, alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dagmaster.cli.commands.services import metrics_port_option, serve, with_parent_option
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
@metrics_port_option
@data_dir_option
@log_options
@with_parent_option
def relay(
    *,
    metrics_port: int | None,
    data_dir: pathlib.Path | None,
    log_format: LogFormat | None,
    log_level: LogLevel | None,
    with_parent: bool,
) -> int:
    """Deliver callbacks, and nothing else.

    Every orchestrator does it as well, unless DAGMASTER_RELAY is false: then a relay can run where it may
    reach the internet, and orchestrators where they may not. Any number of relays may use one database.

    \b
    Examples:
      DAGMASTER_RELAY=false dagmaster orchestrator
      DAGMASTER_DATABASE_URL=postgresql://… dagmaster relay
    """
    from dagmaster.bootstrap.callbacks import make_relay
    from dagmaster.bootstrap.monitoring import open_metrics_port

    def make(config: DatabaseConfig, _blobs: OutputBlobs, settings: Settings) -> Service:
        metrics = None if with_parent else open_metrics_port(settings, metrics_port)
        return make_relay(config, settings, metrics=metrics, allows_loopback=with_parent)

    return serve("relay", make, data_dir, LogOptions(log_format, log_level), with_parent=with_parent)

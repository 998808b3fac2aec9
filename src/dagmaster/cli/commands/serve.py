"""`dagmaster serve`: the service that the settings name."""

from __future__ import annotations

from typing import Any

import click

from dagmaster.cli.commands.services import orchestrator, worker
from dagmaster.cli.errors import command_errors
from dagmaster.cli.log_options import log_options
from dagmaster.sdk.command_line import data_dir_option


@click.command("serve")
@click.option("--host", help="The address that a server or a gateway listens on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="The port of a server (8420) or a gateway (8430)."
)
@data_dir_option
@log_options
@click.pass_context
def serve_mode(context: click.Context, /, *, host: str | None, port: int | None, **options: Any) -> int:
    """Run the service that DAGMASTER_RUN_MODE names: for one container image that serves as all of them.

    An orchestrator, a worker of DAGMASTER_QUEUES with the handlers of DAGMASTER_HANDLERS, a server, a
    gateway to DAGMASTER_ORCHESTRATOR_URL, or a relay of callbacks. RUN_MODE and other names are also read,
    as every service does (dagmaster config show --services).

    \b
    Examples:
      DAGMASTER_RUN_MODE=orchestrator dagmaster serve
      DAGMASTER_RUN_MODE=worker DAGMASTER_QUEUES=light DAGMASTER_HANDLERS=myapp.tasks dagmaster serve
      DAGMASTER_RUN_MODE=server dagmaster serve --host 0.0.0.0
    """
    from dagmaster.settings import load_settings

    with command_errors():
        mode = load_settings(services=True).run_mode
    address = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    if address and mode not in {"server", "gateway"}:
        raise click.UsageError("--host and --port are for DAGMASTER_RUN_MODE=server or gateway")
    options |= {"with_parent": False, **address}
    match mode:
        case "orchestrator":
            return int(context.invoke(orchestrator, address=None, metrics_port=None, **options))
        case "worker":
            return int(context.invoke(worker, queues=(), modules=(), metrics_port=None, **options))
        case "server":
            from dagmaster.cli.commands.server import server

            return int(context.invoke(server, **options))
        case "gateway":
            from dagmaster.cli.commands.gateway import gateway

            return int(context.invoke(gateway, **options))
        case "relay":
            from dagmaster.cli.commands.relay import relay

            return int(context.invoke(relay, metrics_port=None, **options))
    raise click.UsageError(
        "set DAGMASTER_RUN_MODE to orchestrator, worker, server, gateway or relay, or start"
        " `dagmaster orchestrator`"
    )

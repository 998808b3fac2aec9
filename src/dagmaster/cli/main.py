"""`dagmaster`: the root command. A subcommand is imported when it is used, so that `--help` is fast."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any, Final

import click

from dagmaster.cli.errors import CommandError
from dagmaster.errors import OUTCOMES, Category, DagmasterError, UnexpectedFailure, UsageInvalid
from dagmaster.sdk.command_line import SERVICES_CONFIG, CommandGroup, is_json_requested
from dagmaster.sdk.products import load, products
from dagmaster.sdk.terminal import echo, visible_stderr

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping, Sequence
    from types import FrameType

_LOGGER: Final = logging.getLogger(__name__)

# Exit codes of every command. Those of errors come from the table of their categories.
COMPLETED: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = OUTCOMES[Category.INVALID].exit_code
UNAVAILABLE: Final = OUTCOMES[Category.UNAVAILABLE].exit_code
INTERRUPTED: Final = 130

REMOTE: Final = frozenset(
    {"callbacks", "changes", "fleet", "handlers", "jobs", "keys", "metrics", "migrate", "platforms"}
    | {"requests", "submit", "tenants", "workflows"}
)
"""The commands that can ask a server instead of a database."""
_PRODUCT_COMMANDS: Final = {
    name: command for product in products() for name, command in product.commands.items()
}
LOCAL_REASONS: Final = {
    "blobs": "It reads and writes storage itself, and no data passes through a server. Set"
    " DAGMASTER_BRONZE_URL, DAGMASTER_SILVER_URL and DAGMASTER_GOLD_URL to the zones of the workers",
    **{name: command.local_reason for name, command in _PRODUCT_COMMANDS.items()},
    "config": "It shows the settings of this machine. Those of a server are where the server runs",
    "doctor": "It checks this machine: its packages, its database, its disks. The state of a server is at"
    " /health",
    "partners": "It sends samples to a receiver from this machine, and asks no database either",
    "run": "It runs a workflow in this process. `dagmaster submit` runs it on the workers of a server",
    "secrets-key": "Its keys are on this machine, and never sent. Run it where the database can be reached",
    "storm": "It simulates a workflow in this process, and asks no database either",
    **dict.fromkeys(
        ("dev", "gateway", "orchestrator", "relay", "serve", "server", "worker"),
        "It starts services of this machine",
    ),
}
"""Why a command asks no server."""


class LazyGroup(CommandGroup):
    """A group whose commands are in modules that are imported when the command is used."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which a newcomer needs them."""
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        target, _ = self.lazy[cmd_name]
        command = load(target)
        if not isinstance(command, click.Command):
            raise TypeError(f"{target} is not a command")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn its errors into exit codes and, with `--json`, into a JSON document.

        A reader that closes the pipe (`dagmaster … | head`) is not an error.
        """
        try:
            return super().invoke(ctx)
        except DagmasterError as error:
            raise CommandError(error) from error
        except click.ClickException as error:
            if isinstance(error, CommandError) or not is_json_requested():
                raise
            raise CommandError(UsageInvalid(error.format_message())) from error
        except (BrokenPipeError, SystemExit) as error:
            # rich turns BrokenPipeError into SystemExit; click would exit with 1.
            if not isinstance(error if isinstance(error, OSError) else error.__context__, BrokenPipeError):
                raise
            _discard_output()
            return COMPLETED
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            raise CommandError(_unexpected(error)) from error

    def help_rows(self) -> list[tuple[str, str]]:
        """Return the commands with their sentences, without importing them."""
        return [*((name, sentence) for name, (_, sentence) in self.lazy.items()), *super().help_rows()]


@click.group(
    cls=LazyGroup,
    lazy={
        "run": ("dagmaster.cli.commands.run:run", "Run a workflow file in this process."),
        "dev": (
            "dagmaster.cli.commands.dev:dev",
            "Run the whole system on this machine: database, orchestrator, worker.",
        ),
        "submit": ("dagmaster.cli.commands.submit:submit", "Submit a job."),
        "jobs": ("dagmaster.cli.commands.jobs:jobs", "List, watch, explain and control jobs."),
        "workflows": (
            "dagmaster.cli.commands.workflows:workflows",
            "Validate, draw and publish workflow files, and show the published ones.",
        ),
        "handlers": ("dagmaster.cli.commands.handlers:handlers", "List, show and test handlers."),
        "blobs": ("dagmaster.cli.commands.blobs:blobs", "Store data for workflows, and fetch results."),
        **{name: (command.target, command.sentence) for name, command in _PRODUCT_COMMANDS.items()},
        "storm": (
            "dagmaster.cli.commands.simulate:storm",
            "Simulate a workflow under thousands of schedules with faults.",
        ),
        "fleet": (
            "dagmaster.cli.commands.fleet:fleet",
            "Show the orchestrators, the workers and the queues; drain a service.",
        ),
        "metrics": (
            "dagmaster.cli.commands.metrics:metrics",
            "Show what finished jobs show: success, durations, failures, throughput.",
        ),
        "orchestrator": ("dagmaster.cli.commands.services:orchestrator", "Run an orchestrator."),
        "worker": ("dagmaster.cli.commands.services:worker", "Run a worker."),
        "serve": (
            "dagmaster.cli.commands.serve:serve_mode",
            "Run the service that DAGMASTER_RUN_MODE names.",
        ),
        "server": ("dagmaster.cli.commands.server:server", "Run the HTTP API."),
        "gateway": ("dagmaster.cli.commands.gateway:gateway", "Run a gateway: what partners call."),
        "relay": ("dagmaster.cli.commands.relay:relay", "Deliver callbacks."),
        "callbacks": (
            "dagmaster.cli.commands.callbacks:callbacks",
            "List callbacks, send them again, pause endpoints, and make signing secrets.",
        ),
        "tenants": (
            "dagmaster.cli.commands.tenants:tenants",
            "Create, list and change tenants: teams that do not see each other.",
        ),
        "keys": (
            "dagmaster.cli.commands.keys:keys",
            "Create, list, rotate and revoke keys for the HTTP API.",
        ),
        "secrets-key": (
            "dagmaster.cli.commands.secrets_key:secrets_key",
            "Make, check and rotate the key that encrypts secret inputs.",
        ),
        "requests": (
            "dagmaster.cli.commands.requests:requests",
            "List what partners asked for, and the jobs that it led to.",
        ),
        "partners": (
            "dagmaster.cli.commands.partners:partners",
            "Check the receiver of a partner's callbacks.",
        ),
        "platforms": (
            "dagmaster.cli.commands.platforms:platforms",
            "Declare whose identifiers partners send.",
        ),
        "changes": ("dagmaster.cli.commands.changes:changes", "List who changed jobs, workflows and keys."),
        "migrate": ("dagmaster.cli.commands.migrate:migrate", "Upgrade the schema of a database."),
        "config": ("dagmaster.cli.commands.config:config", "Show the settings, and the origin of each."),
        "doctor": (
            "dagmaster.cli.commands.doctor:doctor",
            "Check that jobs can run here, and print how to repair what does not work.",
        ),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with:  dagmaster run workflows/hello_world.yaml -i name=Ada",
)
@click.option("--url", metavar="URL", help="Ask this server instead of a database.  [default: DAGMASTER_URL]")
@click.option(
    "--key",
    metavar="KEY",
    help="The key for the server. Others on this machine may see it here: use DAGMASTER_KEY.",
)
@click.version_option(package_name="dagmaster", prog_name="dagmaster")
@click.pass_context
def cli(context: click.Context, url: str | None, key: str | None) -> None:
    """Run durable workflows.

    A workflow is a YAML file: nodes that run handlers, and the dependencies between them. The whole file is
    validated before anything runs, and every problem is reported with its line.
    """
    context.meta[SERVICES_CONFIG] = _services_config
    command = context.invoked_subcommand
    if (url is not None or key is not None) and command not in REMOTE:
        reason = LOCAL_REASONS[command or ""]
        raise click.UsageError(
            f"`dagmaster {command}` works on this machine, and takes no --url and no --key. {reason}. A"
            f" server is asked by: {', '.join(sorted(REMOTE))}"
        )
    if url is not None or key is not None:
        from dagmaster.cli.system import remember_server

        remember_server(context, url, key)


def _services_config(data_dir: pathlib.Path | None) -> dict[str, Any]:
    from dagmaster.cli.storage_access import services_config

    return services_config(data_dir)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exit with one of the codes above."""
    with contextlib.suppress(ValueError):
        # Only the main thread can handle signals.
        signal.signal(signal.SIGTERM, _as_ctrl_c)
    try:
        code = cli.main(args=None if arguments is None else list(arguments), standalone_mode=False)
    except click.ClickException as error:
        error.show(visible_stderr())
        code = _exit_code(error)
    except (click.Abort, KeyboardInterrupt):
        echo("interrupted", err=True)
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else COMPLETED)


def _as_ctrl_c(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM as Ctrl-C: a process that exits at once would leave its embedded server running."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background processes with SIGINT ignored.
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _unexpected(error: Exception) -> UnexpectedFailure:
    """Return what a user reads about an unexpected exception; print its traceback if asked for."""
    from dagmaster.settings import read_settings

    if _LOGGER.hasHandlers():
        # A service: its trace belongs in its log.
        _LOGGER.critical("unexpected failure", exc_info=error)
    sentence = f"dagmaster failed unexpectedly ({type(error).__name__}); this is a mistake in dagmaster"
    settings = read_settings().settings
    if not settings.debug:
        return UnexpectedFailure(f"{sentence}. DAGMASTER_DEBUG=1 prints the trace")
    echo("".join(traceback.format_exception(error)), err=True, nl=False)
    return UnexpectedFailure(f"{sentence}. The trace is on the error stream")


def _discard_output() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _exit_code(error: click.ClickException) -> int:
    if isinstance(error, CommandError):
        return OUTCOMES[error.error.category].exit_code
    # click exits with 1 where the arguments are wrong; 1 is a failed job here.
    return BAD_INPUT if error.exit_code == 1 else error.exit_code

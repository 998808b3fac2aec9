"""What the commands of products share with dagmaster's: options, groups, the services of workers."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

SERVICES_CONFIG: Final = "dagmaster.services_config"
"""Where the root command keeps its function for `services_config`."""
_JSON_REQUESTED: Final = "dagmaster.json"


def services_config(data_dir: pathlib.Path | None) -> dict[str, Any]:
    """Return the configuration of the services that workers with the settings of this machine use."""
    config: dict[str, Any] = click.get_current_context().meta[SERVICES_CONFIG](data_dir)
    return config


class CommandGroup(click.Group):
    """A group that suggests the most similar command for an unknown name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return a command; for an unknown name, suggest the most similar one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from dagmaster.errors.suggestions import did_you_mean

            hint = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(f"{error.message} {hint.capitalize()}".strip(), ctx=ctx) from error

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands, each with its whole first sentence."""
        with formatter.section("Commands"):
            formatter.write_dl(self.help_rows())

    def help_rows(self) -> list[tuple[str, str]]:
        """Return the commands of this group, with the first sentence of each."""
        return [(name, command.get_short_help_str(limit=100)) for name, command in self.commands.items()]


def is_json_requested() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON_REQUESTED))


def remember_json_requested(context: click.Context, _parameter: click.Parameter, value: object) -> object:
    """Record that `--json` is set: the callback of every such option."""
    if value:
        context.meta[_JSON_REQUESTED] = True
    return value


def json_output_option(help_text: str) -> Callable[[F], F]:
    """Return the option `--json`; errors of a command that has it are also JSON."""
    return click.option(
        "--json", "as_json", is_flag=True, is_eager=True, callback=remember_json_requested, help=help_text
    )


json_option = json_output_option("Print one JSON document, and nothing else.")
json_lines_option = json_output_option("Print one JSON document a line, and nothing else.")
data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=pathlib.Path, file_okay=False),
    help="The data directory of the embedded PostgreSQL.  [default: DAGMASTER_DATA_DIR, else"
    " ~/.local/share/dagmaster/postgres; of root, /var/lib/dagmaster/postgres]",
)

"""How a command reports an error: a sentence on stderr, or with `--json` one document on stdout."""

from __future__ import annotations

import contextlib
from typing import IO, TYPE_CHECKING, Any

import click

from dagmaster.errors import DagmasterError
from dagmaster.sdk.command_line import is_json_requested
from dagmaster.sdk.terminal import echo, echo_json, visible_stderr

if TYPE_CHECKING:
    from collections.abc import Iterator


class CommandError(click.ClickException):
    """An error of dagmaster that ends a command; its category determines the exit code."""

    def __init__(self, error: DagmasterError) -> None:
        super().__init__(str(error))
        self.error = error
        # Read now: when click shows the error, the context is closed.
        self.as_json = is_json_requested()

    def show(self, file: IO[Any] | None = None) -> None:
        if self.as_json:
            echo_json({"error": self.error.to_dict()})
            return
        super().show(file or visible_stderr())
        from dagmaster.cli.suggested_commands import suggest_remedy

        remedy = suggest_remedy(self.error)
        if remedy is not None:
            echo(remedy, err=True)


@contextlib.contextmanager
def command_errors() -> Iterator[None]:
    try:
        yield
    except DagmasterError as error:
        raise CommandError(error) from error

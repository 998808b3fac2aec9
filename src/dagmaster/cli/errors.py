"""How a command reports an error: a sentence on stderr, or with `--json` one document on stdout."""

from __future__ import annotations

import contextlib
import json
from typing import IO, TYPE_CHECKING, Any

import click

from dagmaster.errors import DagmasterError
from dagmaster.sdk.command_line import is_json_requested

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
            click.echo(json.dumps({"error": self.error.to_dict()}, ensure_ascii=False), file=file)
            return
        super().show(file)
        from dagmaster.cli.suggested_commands import suggest_remedy

        remedy = suggest_remedy(self.error)
        if remedy is not None:
            click.echo(remedy, err=True)


@contextlib.contextmanager
def command_errors() -> Iterator[None]:
    try:
        yield
    except DagmasterError as error:
        raise CommandError(error) from error

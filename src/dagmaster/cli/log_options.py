"""The options of services for their logs; the settings are the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dagmaster.telemetry.logs import LogFormat, LogLevel, configure_logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.settings import Settings

F = TypeVar("F", bound="Callable[..., Any]")


def log_options(command: F) -> F:
    log_format = click.option(
        "--log-format",
        type=click.Choice([one.value for one in LogFormat], case_sensitive=False),
        callback=lambda _context, _parameter, value: None if value is None else LogFormat(value),
        help="Write the log as text, or as JSON: one object a line.  [default: DAGMASTER_LOG_FORMAT, else"
        " text]",
    )
    log_level = click.option(
        "--log-level",
        type=click.Choice([one.value for one in LogLevel], case_sensitive=False),
        callback=lambda _context, _parameter, value: None if value is None else LogLevel(value),
        help="The least severe lines of the log.  [default: DAGMASTER_LOG_LEVEL, else info]",
    )
    return log_format(log_level(command))


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What the command line asks for; None: as the settings say."""

    log_format: LogFormat | None
    log_level: LogLevel | None

    def configure(self, settings: Settings) -> LogFormat:
        """Configure the log of this process, redacting the secrets of its environment; return its format."""
        from dagmaster.redaction import redact_value
        from dagmaster.settings import secret_values

        secrets = secret_values()
        log_format = self.log_format or settings.log_format
        configure_logs(
            log_format,
            self.log_level or settings.log_level,
            redact=lambda text: str(redact_value(text, secrets)),
        )
        return log_format

    def arguments(self) -> list[str]:
        options = (("--log-format", self.log_format), ("--log-level", self.log_level))
        return [f"{name}={value}" for name, value in options if value is not None]

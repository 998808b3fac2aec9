"""Read the settings from the environment: where each value came from, what is wrong, and how they are shown.

Services (orchestrator, worker) also read the names of the source systems, see `aliases`. `dev`,
`run` and tests do not: a DATABASE_URL in a developer's shell is not meant for them. Secrets are masked. No
file and no connection is opened here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import SecretStr, ValidationError

from dagmaster.errors import SettingsInvalid
from dagmaster.errors.suggestions import nearest
from dagmaster.ports.blob_uris import shorten_uri
from dagmaster.settings.aliases import ALIASES, Alias
from dagmaster.settings.database_urls import MASK, build_url, mask_url, secrets_in
from dagmaster.settings.groups import GROUPS, PREFIX, Settings

SECRET_PREFIX: Final = "DAGMASTER_SECRET_"  # noqa: S105 - the beginning of a name

_TEST_VARIABLES: Final = frozenset({"DAGMASTER_SOAK_MINUTES"})
"""Variables of the tests: not settings, but known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsReport:
    """The settings read from the environment.

    An invalid setting has its default here, and a message in `problems`.
    """

    settings: Settings
    origins: dict[str, str]
    """The variable that each setting came from; several are joined by ` + `. Absent: the default."""
    problems: dict[str, str]
    """The problem of each invalid setting: a sentence that starts with the variable."""
    typos: tuple[str, ...]
    """A sentence for each unknown variable `DAGMASTER_…`."""
    unused: tuple[str, ...]
    """A sentence for each alias that is set and has no effect."""
    secrets: tuple[str, ...]
    """The names of the secrets, sorted. Never their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingView:
    """One setting, with secrets masked."""

    name: str
    group: str
    variable: str
    value: Any
    """JSON. A secret is masked."""
    source: str
    """`default`, or its variable."""
    description: str
    problem: str = ""


def load_settings(*, services: bool = False) -> Settings:
    """Read the settings; raise SettingsInvalid with a sentence for each problem.

    Aliases are read for services only.
    """
    reading = read_settings(services=services)
    if reading.problems:
        raise SettingsInvalid("\n".join(reading.problems.values()))
    return reading.settings


def read_settings(*, services: bool = False) -> SettingsReport:
    """Read the settings and their origins, without raising."""
    # pydantic-settings reads names in any case.
    variables = {name.upper(): name for name, value in os.environ.items() if value}
    origins = {
        name: variables[_variable(name)] for name in Settings.model_fields if _variable(name) in variables
    }
    values: dict[str, Any] = {}
    unused: tuple[str, ...] = ()
    if services:
        values, named, unused = _from_aliases(origins)
        origins |= named
    try:
        settings, problems = Settings(**values), {}
    except ValidationError as error:
        invalid = {
            str(detail["loc"][0]): _describe_problem(dict(detail))
            for detail in error.errors(include_url=False)
        }
        problems = {
            name: f"{origins[name]} {reason}{_quote_raw(name, origins)}" for name, reason in invalid.items()
        }
        settings = Settings(**values | {name: Settings.model_fields[name].get_default() for name in invalid})
    return SettingsReport(
        settings=settings,
        origins=origins,
        problems=problems,
        typos=_find_typos(variables),
        unused=unused,
        secrets=tuple(
            sorted(
                name.removeprefix(SECRET_PREFIX)
                for name in variables.values()
                if name.startswith(SECRET_PREFIX)
            )
        ),
    )


def show_settings(reading: SettingsReport) -> list[SettingView]:
    return [
        SettingView(
            name=name,
            group=group,
            variable=_variable(name),
            value=_raw(name, reading.origins)
            if name in reading.problems
            else _to_json(getattr(reading.settings, name)),
            source=reading.origins.get(name, "default"),
            description=field.description or "",
            problem=reading.problems.get(name, ""),
        )
        for group, model in GROUPS.items()
        for name, field in model.model_fields.items()
    ]


def secret_values() -> frozenset[str]:
    """Return the secrets of the environment, in every form that an error message may contain."""
    secrets = {value for name, value in os.environ.items() if name.startswith(SECRET_PREFIX)}
    names = [alias.name for alias in ALIASES if alias.is_secret] + [_variable(name) for name in _SECRETS]
    for name in [*names, "PGPASSWORD"]:
        secrets |= secrets_in(os.environ.get(name, ""))
    return frozenset(secret for secret in secrets if secret)


def aliases_set() -> list[str]:
    return [alias.name for alias in ALIASES if os.environ.get(alias.name)]


_SECRETS: Final = frozenset(
    name for name, field in Settings.model_fields.items() if SecretStr in get_args(field.annotation)
)


def _variable(setting: str) -> str:
    return f"{PREFIX}{setting.upper()}"


def _from_aliases(direct: dict[str, str]) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
    """Return the values and origins from aliases, and a sentence for each alias without effect."""
    present = [alias for alias in ALIASES if os.environ.get(alias.name)]
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    unused = [
        f"{alias.name} is known and not used: {alias.instead}." for alias in present if not alias.setting
    ]
    for alias in [alias for alias in present if alias.setting and not alias.part]:
        winner = direct.get(alias.setting) or origins.get(alias.setting)
        if winner:
            unused.append(f"{alias.name} is overridden by {winner}.")
        else:
            values[alias.setting], origins[alias.setting] = os.environ[alias.name], alias.name
    parts, overridden = _choose_parts(present, direct.get("database_url") or origins.get("database_url"))
    unused += overridden
    if "host" in parts:
        values["database_url"] = build_url({part: os.environ[name] for part, name in parts.items()})
        origins["database_url"] = " + ".join(parts.values())
    else:
        unused += [f"{name} is set and not used: there is no POSTGRES_HOST." for name in parts.values()]
    return values, origins, tuple(unused)


def _choose_parts(present: list[Alias], database_url: str | None) -> tuple[dict[str, str], list[str]]:
    """Return the name for each part of the address, and a sentence for each name that another overrides.

    `database_url`: what sets the address as a whole, and so overrides all of them.
    """
    parts: dict[str, str] = {}
    overridden: list[str] = []
    for alias in present:
        winner = database_url or parts.get(alias.part)
        if alias.part and winner:
            overridden.append(f"{alias.name} is overridden by {winner}.")
        elif alias.part:
            parts[alias.part] = alias.name
    return parts, overridden


def _describe_problem(error: dict[str, Any]) -> str:  # noqa: PLR0911 - one case a kind of error
    limits = error.get("ctx", {})
    match error["type"]:
        case "int_parsing" | "int_type" | "int_from_float" | "int_parsing_size":
            return "must be a whole number"
        case "float_parsing" | "float_type" | "finite_number":
            return "must be a number"
        case "bool_parsing" | "bool_type":
            return "must be true or false"
        case "greater_than_equal":
            return f"must be at least {limits['ge']:g}"
        case "greater_than":
            return f"must be more than {limits['gt']:g}"
        case "less_than_equal":
            return f"must be at most {limits['le']:g}"
        case "multiple_of":
            return f"must be a multiple of {limits['multiple_of']:g}"
        case "string_too_short" | "too_short":
            return f"must have at least {limits['min_length']} characters"
        case "string_too_long":
            return f"must have at most {limits['max_length']} characters"
        case "enum" | "literal_error":
            return f"must be {limits['expected'].replace(chr(39), '')}"
        case "value_error":
            return str(limits["error"])
    return f"is not valid: {error['msg']}"


def _quote_raw(setting: str, origins: dict[str, str]) -> str:
    return "." if setting in _SECRETS else f", not {_raw(setting, origins)!r}."


def _raw(setting: str, origins: dict[str, str]) -> str:
    return MASK if setting in _SECRETS else shorten_uri(os.environ.get(origins[setting], ""))[:100]


def _to_json(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return mask_url(value.get_secret_value())
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def _find_typos(variables: dict[str, str]) -> tuple[str, ...]:
    known = {_variable(name) for name in Settings.model_fields}
    messages = []
    for name, written in sorted(variables.items()):
        if (
            not name.startswith(PREFIX)
            or name in known | _TEST_VARIABLES
            or written.startswith(SECRET_PREFIX)
        ):
            continue
        # Without the common prefix, which would make all names similar.
        near = nearest(name.removeprefix(PREFIX), [name.removeprefix(PREFIX) for name in known])
        messages.append(f"{written} is not a setting" + (f": did you mean {PREFIX}{near}?" if near else "."))
    return tuple(messages)

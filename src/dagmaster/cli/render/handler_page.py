"""Handlers on the terminal: a list, and one with its params and output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from dagmaster.sdk.terminal import echo, style
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_MAX_DIFFERENCES: Final = 12
_MAX_DIFFERENCE: Final = 160


def print_handlers(documents: Sequence[Mapping[str, Any]]) -> None:
    width = max((len(document["name"]) for document in documents), default=0)
    for document in documents:
        first_line = document["description"].strip().split("\n", 1)[0]
        echo(f"{style(document['name'].ljust(width), bold=True)}  {first_line}".rstrip())
        for change in document.get("changes", ()):
            echo(f"{'':<{width}}  a change by {change['actor']} waits for `dagmaster handlers trust`")
    count = format_count(len(documents), "handler")
    echo(f"\n{count}. `dagmaster handlers show NAME` shows the params of one.", err=True)


def print_handler(document: Mapping[str, Any]) -> None:
    """Print a handler: what is published of it, and which live workers have it if that is known."""
    origin = f", {document['module']}" if document["module"] else ""
    echo(style(document["name"], bold=True) + f"  (version {document['version']}{origin})")
    if document["description"]:
        echo(f"\n{document['description']}")
    timeout, retry, workers = document["timeout_seconds"], document["retry"], document.get("workers")
    others = document.get("other_versions", ())
    facts = [
        ("queue", document["queue"]),
        ("timeout", None if timeout is None else f"{timeout:g} s"),
        ("attempts", None if retry is None else retry["max_attempts"]),
        ("owner", _format_owner(document)),
        ("also named", ", ".join(document["aliases"])),
        ("workers", None if workers is None else f"{format_count(workers, 'live worker')} with this version"),
        ("versions", ", ".join((document["version"], *others)) if others else ""),
    ]
    echo("")
    for label, value in facts:
        if value:
            echo(f"  {label:<10} {value}")
    for change in document.get("changes", ()):
        echo(f"\nA change by {change['actor']} (version {change['version']}) waits for an administrator:")
        for difference in change["differences"] or (
            "the same contract: its workers want to have the handler",
        ):
            echo(f"  {difference}")
    _print_fields("Params", document["params"])
    _print_fields("Output", document["output"])


def print_replacement(document: Mapping[str, Any], caller: str) -> None:
    """Print on the error stream what trust in a caller would replace."""
    changes = [change for change in document["changes"] if change["actor"] == caller]
    owner, name = document["owner"], document["name"]
    if owner == caller and not changes:
        queue = json.dumps(document["queue"])
        echo(f"{name}: {caller} owns the contract; its default queue {queue} would count", err=True)
    for change in changes:
        what = f"version {change['version']} of {caller}, instead of the contract of {owner}"
        echo(f"{name}: {what if change['differences'] else f'{caller} has the same contract'}", err=True)
        for difference in change["differences"][:_MAX_DIFFERENCES]:
            end = "…" if len(difference) > _MAX_DIFFERENCE else ""
            echo(f"  {difference[:_MAX_DIFFERENCE]}{end}", err=True)
        more = len(change["differences"]) - _MAX_DIFFERENCES
        if more > 0:
            echo(f"  and {more} more: dagmaster handlers show {name} --published", err=True)


def _format_owner(document: Mapping[str, Any]) -> str:
    owner = document.get("owner") or ""
    if not owner or document["is_trusted"]:
        return owner
    return f"{owner} (not trusted by an administrator: its default queue is not used)"


def _print_fields(title: str, schema: Mapping[str, Any] | None) -> None:
    echo(f"\n{title}:")
    if schema is None:
        echo("  not declared: anything is accepted")
        return
    from dagmaster.authoring.schema_description import REQUIRED, describe_fields

    fields = describe_fields(schema)
    if not fields:
        echo("  none")
        return
    width = max(len(field.name) for field in fields)
    for field in fields:
        default = field.default if field.default in ("", REQUIRED) else f"default {field.default}"
        details = ", ".join(filter(None, (field.kind, field.limits, default if title == "Params" else "")))
        echo(f"  {style(field.name.ljust(width), bold=True)}  {details}")
        if field.description:
            echo(f"  {'':<{width}}  {style(field.description, dim=True)}")

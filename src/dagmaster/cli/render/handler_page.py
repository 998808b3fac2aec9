"""Handlers on the terminal: a list, and one with its params and output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.sdk.terminal import echo, style
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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

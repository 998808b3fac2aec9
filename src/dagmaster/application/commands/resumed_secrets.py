"""The secret inputs that a resume as a new job would keep: who resumes it has not sent them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.engine.expressions.secret_parts import secret_names
from dagmaster.errors import SecretInputsMissing
from dagmaster.text_format import format_list

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dagmaster.engine.graph import Graph
    from dagmaster.json_types import JsonObject, JsonValue


def check_given_again(graph: Graph, inputs: Mapping[str, JsonValue], named: Collection[str]) -> None:
    """Raise `SecretInputsMissing` if other inputs would be combined with secrets that another submitter gave.

    Who chooses an input decides where secrets go. A default is no secret of the job.
    """
    kept = sorted(
        name
        for name, declared in graph.inputs.items()
        if _is_kept_secret(inputs, name, declared) and name not in named
    )
    if kept:
        raise SecretInputsMissing(
            f"an input changes, so the secret inputs have to be given again: {format_list(kept)}"
        )


def kept_secrets(
    before: Graph, after: Graph, inputs: Mapping[str, JsonValue], named: Collection[str]
) -> JsonObject:
    """Return the secrets that another version gets; raise `SecretInputsMissing` if it would show them."""
    secrets = {
        name: value
        for name, value in inputs.items()
        if name not in named and _is_kept_secret(inputs, name, before.inputs.get(name))
    }
    if shown := sorted(secrets.keys() - secret_names(after.inputs)):
        raise SecretInputsMissing(
            f"these inputs are not secret in version {after.version}, so they have to be given again:"
            f" {format_list(shown)}"
        )
    return secrets


def _is_kept_secret(inputs: Mapping[str, JsonValue], name: str, declared: Mapping[str, Any] | None) -> bool:
    if declared is None or not declared.get("secret") or inputs.get(name) is None:
        return False
    return "default" not in declared or inputs[name] != declared["default"]

"""Writes the reference pages from the code: `make docs`. A test fails when a page is stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagmaster.application.views.json_schema import view_schemas
from dagmaster.authoring.schema import NODE_MODELS, InputModel, RetryModel, WorkflowModel, json_schema
from dagmaster.authoring.schema_description import REQUIRED, FieldDescription, describe_fields
from dagmaster.bootstrap import find_handlers
from dagmaster.cli.main import cli
from dagmaster.engine.diagnosis.reasons import MEANING as REASONS
from dagmaster.engine.expressions.filters import FILTERS
from dagmaster.engine.invariants import INVARIANTS
from dagmaster.engine.transitions import JOB_MOVES, NODE_MOVES, mermaid
from dagmaster.errors import OUTCOMES, error_types
from dagmaster.ports.audit_events import MEANING, EventType
from dagmaster.settings import Settings
from dagmaster.settings_aliases import ALIASES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel

    from dagmaster.authoring.handler_registry import HandlerSpec

HERE = Path(__file__).parent
MADE = "<!-- Made by docs/generate.py: do not edit. -->\n\n"


def pages() -> dict[Path, str]:
    """Give every generated page."""
    return {
        HERE / "reference" / "workflow-file.md": _workflow_file(),
        HERE / "reference" / "states.md": _states(),
        HERE / "reference" / "expressions.md": _expressions(),
        HERE / "reference" / "commands.md": _commands(),
        HERE / "reference" / "handlers.md": _handlers(),
        HERE / "reference" / "settings.md": _settings(),
        HERE / "reference" / "events.md": _events(),
        HERE / "reference" / "reasons.md": _reasons(),
        HERE / "reference" / "errors.md": _errors(),
        HERE / "reference" / "invariants.md": _invariants(),
        HERE / "reference" / "figures.md": _figures(),
        HERE / "reference" / "workflow.schema.json": json.dumps(json_schema(), indent=2) + "\n",
        HERE / "reference" / "views.schema.json": json.dumps(view_schemas(), indent=2) + "\n",
    }


def _workflow_file() -> str:
    parts = [MADE, "# The workflow file\n\nThe [JSON Schema](workflow.schema.json) says the same for editors.\n"]
    parts.append(f"\n## Top level\n\n{_keys(WorkflowModel)}")
    parts.append(f"\n## An input\n\n{_keys(InputModel)}")
    for kind, model in NODE_MODELS.items():
        parts.append(f"\n## `type: {kind}`\n\n{_sentence(model)}\n\n{_keys(model)}")
        if kind == "conditional":
            parts.append(f"\n### A branch\n\n{_keys(model.model_fields['branches'].annotation.__args__[0])}")
        if kind == "task":
            parts.append(f"\n### `retry`\n\n`retry: none`, or a mapping:\n\n{_keys(RetryModel)}")
    return "".join(parts)


def _keys(model: type[BaseModel]) -> str:
    schema = model.model_json_schema()
    rows = []
    for name, field in schema["properties"].items():
        kind = _kind(field)
        default = "required" if name in schema.get("required", ()) else _default(field)
        rows.append(f"| `{name}` | {kind} | {default} | {field.get('description', '')} |")
    return "| key | type | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _kind(field: dict[str, Any]) -> str:
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " · ".join(f"`{each}`" for each in field["enum"])
    if "x-defined-as" in field:
        return "text, list, `all_of` or `any_of`" if field["x-defined-as"] == "DependsOn" else "mapping or `none`"
    options = [each for each in field.get("anyOf", [field]) if each.get("type") != "null"]
    names = {"object": "mapping", "array": "list", "string": "text", "number": "number", "integer": "integer"}
    return " or ".join(
        dict.fromkeys(names.get(str(each.get("type")), str(each.get("type", "any"))) for each in options)
    )


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    return "" if value in (None, "", [], {}) else f"`{json.dumps(value)}`"


def _states() -> str:
    return (
        f"{MADE}# States\n\nFrom `src/dagmaster/engine/transitions.py`. Terminal states open again only in a new run.\n\n"
        f"## Nodes\n\n```mermaid\n{mermaid(NODE_MOVES)}```\n\n## Jobs\n\n```mermaid\n{mermaid(JOB_MOVES)}```\n"
    )


def _expressions() -> str:
    filters = []
    for name, each in FILTERS.items():
        arguments = ", ".join(p if n < each.required else f"[{p}]" for n, p in enumerate(each.parameters))
        filters.append(f"`{name}{f'({arguments})' if arguments else ''}`")
    return f"""{MADE}# Expressions

Jinja's grammar, parsed once when the workflow is loaded, evaluated by dagmaster over JSON values.

| path | is |
|---|---|
| `inputs.x` | an input |
| `nodes.y.output.z` | a key of a node's output |
| `nodes.y.status`, `nodes.y.error` | always readable, e.g. `nodes.y.status == 'FAILED'`, `nodes.y.error.message` |
| `nodes.fan.outputs`, `nodes.fan.failed` | the children's outputs in index order (null for a failed one); `[{{index, error}}]` |
| `upstream.output.z` | of the satisfied dependency that finished first |
| `item`, `index`, `outer.item`, `outer.index` | inside a fan-out's task: the item, its place; of the fan-out around it |
| `value` | in conditions: the `condition_field` |
| `job.id`, `env.NAME` | the job; an environment variable that the operator allowed |
| `secrets.NAME` | in task params only, alone or as a part of text |

Operators: `+ - * / // %`, comparison chains, `in`, `and`, `or`, `not`, `a if b else c`, `is defined`, `is none`, `[ ]`.

Filters: {", ".join(filters)}.

- A key always wins over a method: `output.items` is `output["items"]`.
- A string that is one expression keeps its type: `"{{{{ inputs.count }}}}"` is a number. In text, strings stand as they are and everything else as JSON.
- A missing key is an error that names the keys that were there. `| default(…)` behind a path catches whatever is missing in it. Null is a value.
- A value is never parsed as a template again. A literal `{{{{` is written `{{{{ '{{{{' }}}}`.

Conditions: one that starts with an operator (`"< 100"`) has `value` put before it; otherwise it is an expression (`"100 <= value < 1000"`).
Units are bytes: `100MB` is 10⁸, `100MiB` is 100 · 2²⁰.
"""


def _commands() -> str:
    parts = [MADE, "# Commands\n\nExit codes: 0 completed, 1 failed, 2 bad usage or bad input, 130 interrupted.\n"]
    for names, command, context in _walk(cli, click.Context(cli, info_name="dagmaster", **cli.context_settings), ()):
        parts.append(f"\n## `{' '.join(('dagmaster', *names))}`\n\n```\n{command.get_help(context)}\n```\n")
    return "".join(parts)


def _walk(
    command: click.Command, context: click.Context, names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command, click.Context]]:
    context.terminal_width = 100
    # click keeps the option as it was for whoever asked first, and that may have been a test.
    command._help_option = None  # noqa: SLF001
    yield names, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _walk(inner, click.Context(inner, info_name=name, parent=context), (*names, name))


def _handlers() -> str:
    parts = [MADE, "# Handlers\n\n`dagmaster handlers list` and `show` tell the same.\n"]
    for spec in sorted(find_handlers(settings=Settings()), key=lambda spec: spec.name):
        rows = [
            f"| `{each.name}` | {_type(each)} | {_given(each.default)} | {_cell(each.description)} |"
            for each in describe_fields(spec.params_schema() or {})
        ]
        table = "\n| param | type | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n" if rows else ""
        output = _output(spec)
        parts.append(f"\n## `{spec.name}`\n\n{spec.description}\n{table}{output}")
    return "".join(parts)


def _output(spec: HandlerSpec) -> str:
    if spec.output_model is None:
        keys = spec.output_keys()
        return f"\nOutput: {', '.join(f'`{key}`' for key in sorted(keys))}.\n" if keys else ""
    rows = [
        f"| `{each.name}` | {_type(each)} | {_cell(each.description)} |"
        for each in describe_fields(spec.output_model.model_json_schema())
    ]
    return "\n| output | type | |\n|---|---|---|\n" + "\n".join(rows) + "\n" if rows else ""


def _type(field: FieldDescription) -> str:
    return _cell(", ".join(filter(None, (field.kind.replace(" | ", " · "), field.limits))))


def _given(default: str) -> str:
    return default if default in ("", REQUIRED) else f"`{default}`"


def _cell(text: str) -> str:
    """Text in a table: a bar would end its cell."""
    return text.replace("|", "\\|")


def _settings() -> str:
    rows = [
        f"| `DAGMASTER_{name.upper()}` | {'' if field.default in ((), None) else f'`{field.default}`'} | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    rows.append("| `DAGMASTER_SECRET_NAME` | | What `secrets.NAME` is in the process that runs the task. |")
    aliases = [
        f"| `{alias.name}` | {f'`DAGMASTER_{alias.setting.upper()}`' if alias.setting else ''} |"
        f" {f'its {alias.part}' if alias.part else f'not used: {alias.instead}' if alias.instead else ''} |"
        for alias in ALIASES
    ]
    return (
        f"{MADE}# Settings\n\n`dagmaster config show` tells the values, and where each came from. An empty variable is an"
        " unset one.\n\n| name | default | |\n|---|---|---|\n" + "\n".join(rows) + "\n\n## Other names\n\n"
        "Orchestrators and workers also read these; `dev` and `run` never do. The names above win, and of two names for"
        " one setting the upper one. Some are known and not used: `dagmaster config show --services` says so when they"
        " are set.\n\n| name | setting | |\n|---|---|---|\n" + "\n".join(aliases) + "\n"
    )


def _events() -> str:
    rows = "\n".join(f"| `{kind.value}` | {MEANING[kind]} |" for kind in EventType)
    return (
        f"{MADE}# Events\n\nThe trail of a job: numbered from 1, without gaps.\n\n| event | says |\n|---|---|\n{rows}\n"
    )


def _reasons() -> str:
    rows = "\n".join(f"| `{code.value}` | {meaning} |" for code, meaning in REASONS.items())
    return (
        f"{MADE}# Reasons\n\nWhy a job or a node stands where it stands: `dagmaster jobs why JOB [NODE]`, and its `--json`."
        " What stands higher is told first. A reason has a `code`, a `sentence`, `data` (named here in backticks) and"
        f" `because`: the nodes to ask next.\n\n| code | says |\n|---|---|\n{rows}\n"
    )


def _errors() -> str:
    categories = "\n".join(
        f"| `{category.value}` | {outcome.exit_code} | {outcome.http_status} |"
        for category, outcome in OUTCOMES.items()
    )
    rows = "\n".join(f"| `{cls.code}` | `{cls.category.value}` | {_sentence(cls)} |" for cls in error_types())
    return f"""{MADE}# Errors

Every error has a stable `code`, a `category` and a message. A command with `--json` prints them on standard output as
`{{"error": {{"code", "category", "message"}}}}`; errors with several `problems` list them, each with its position. Other
commands print the message on standard error. The category decides the exit code of a command, and the status of an
HTTP response.

| category | exit code | HTTP status |
|---|---|---|
{categories}

Other exit codes: 0 completed or accepted, 1 the job failed, 130 interrupted.

| code | category | meaning |
|---|---|---|
{rows}
"""


def _invariants() -> str:
    sentences = "\n".join(f"{number}. {sentence}" for number, (sentence, _) in enumerate(INVARIANTS, 1))
    return f"{MADE}# What holds after every step\n\nFrom `src/dagmaster/engine/invariants.py`; the tests ask it.\n\n{sentences}\n"


def _figures() -> str:
    results = HERE.parent / "bench" / "results.json"
    if not results.exists():
        return f"{MADE}# Figures\n\nNone yet: `make bench`.\n"
    found = json.loads(results.read_text(encoding="utf-8"))
    rows = []
    for row in (row for part in found["parts"].values() for row in part["rows"]):
        goal = f"≥ {row['at_least']:g}" if row["at_least"] else (f"≤ {row['at_most']:g}" if row["at_most"] else "")
        value = f"{row['value']:,.0f}" if row["value"] >= 100 else f"{row['value']:.3g}"
        rows.append(f"| {row['workload']} | {value} {row['unit']} | {goal} |")
    head = f"Measured by `make bench` on {found['cores']} shared cores, Python {found['python']}."
    return f"{MADE}# Figures\n\n{head}\n\n| workload | measured | target |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _sentence(documented: type) -> str:
    return (documented.__doc__ or "").strip()


def main() -> None:
    """Write the pages, and say which changed."""
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {path.relative_to(HERE.parent)}\n")


if __name__ == "__main__":
    main()

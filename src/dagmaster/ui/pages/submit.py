"""Submit a job: a form made from the schema of a workflow's inputs, or one text with all of them.

What was typed is kept as text, and is shown again as it was, whatever is wrong with it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.authoring.inputs import parse_input_text
from dagmaster.authoring.source_document import read_document
from dagmaster.authoring.yaml.writer import write_yaml
from dagmaster.errors import InputsInvalid, Problem, WorkflowInvalid
from dagmaster.ports.job_options import DEFAULTS, SUBMITTER_OPTIONS
from dagmaster.text_format import format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.application.views import SubmissionPlanView, VersionRecord, WorkflowRecord
    from dagmaster.json_types import JsonObject

PRIORITIES: Final = {"10": "10, most urgent", "5": "5, normal", "0": "0, least urgent"}
_NAME: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitEntry:
    """What was typed: inputs by name in a form, or all of them in one text."""

    workflow_id: str = ""
    version: str = ""
    is_text: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputField:
    """One input. `kind`: text, number, choice, secret or json."""

    name: str
    kind: str
    type: str
    value: str
    is_required: bool
    description: str
    default: str
    options: tuple[str, ...] = ()
    minimum: str = ""
    maximum: str = ""
    pattern: str = ""
    problems: tuple[str, ...] = ()


class OptionField(NamedTuple):
    """An option of the submit. With choices, it is one of them."""

    name: str
    label: str
    hint: str
    value: str
    max_length: int | None
    choices: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """What the job would do: how many nodes start at once, and what keeps it from running."""

    sentence: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitPage:
    """The page. Without a workflow, it asks for one."""

    title: str
    workflows: tuple[tuple[str, str], ...]
    entry: SubmitEntry
    versions: tuple[tuple[str, str], ...] = ()
    fields: tuple[InputField, ...] = ()
    problems: tuple[str, ...] = ()
    """Those that belong to no field."""
    text_problems: str = "[]"
    """Those of the text, for the editor."""
    plan: PlanSummary | None = None
    options: tuple[OptionField, ...] = ()


def choose_page(workflows: Sequence[WorkflowRecord]) -> SubmitPage:
    return SubmitPage(title="Submit a job", workflows=_workflow_options(workflows), entry=SubmitEntry())


def submit_page(
    entry: SubmitEntry,
    schema: JsonObject,
    workflows: Sequence[WorkflowRecord],
    versions: Sequence[VersionRecord],
    *,
    problems: Sequence[Problem] = (),
    plan: SubmissionPlanView | None = None,
) -> SubmitPage:
    """Return the form of a workflow with what was typed, and the problems at their fields."""
    fields = tuple(input_fields(schema, entry.values, problems))
    known = {one.name for one in fields}
    others = [problem for problem in problems if entry.is_text or _input_of(problem) not in known]
    active = next((f"{view.version}, active" for view in versions if view.is_active), "active")
    choices = {"": f"v{active}", **{str(view.version): f"v{view.version}" for view in reversed(versions)}}
    return SubmitPage(
        title=f"Submit {entry.workflow_id}",
        workflows=_workflow_options(workflows),
        entry=entry,
        versions=tuple(choices.items()),
        fields=fields,
        problems=tuple(str(problem) for problem in others if not (entry.is_text and problem.line)),
        text_problems=json.dumps([problem.to_dict() for problem in others if problem.line]),
        plan=None if plan is None else _summary(plan),
        options=tuple(_option_field(name, entry.options.get(name, "")) for name in SUBMITTER_OPTIONS),
    )


def _option_field(name: str, text: str) -> OptionField:
    option, default = SUBMITTER_OPTIONS[name], DEFAULTS[name]
    value = text or str(default or "")
    choices = {value: value, **PRIORITIES} if option.maximum is not None else {}
    label = name.replace("_", " ").capitalize()
    return OptionField(name, label, option.description, value, option.max_length, tuple(choices.items()))


def input_fields(
    schema: JsonObject, values: Mapping[str, str], problems: Sequence[Problem] = ()
) -> list[InputField]:
    """Return a field for each input, required ones first."""
    properties: Any = schema.get("properties") or {}
    required: Any = schema.get("required") or ()
    names = sorted(properties, key=lambda name: name not in required)
    return [
        _field(
            name,
            properties[name],
            values.get(name, ""),
            is_required=name in required,
            problems=tuple(
                "\n".join(filter(None, (problem.message, problem.hint)))
                for problem in problems
                if _input_of(problem) == name
            ),
        )
        for name in names
    ]


def read_inputs(entry: SubmitEntry) -> tuple[JsonObject, dict[str, str]]:
    """Return inputs as values, and inputs as text; raise `InputsInvalid` if the text is not a mapping.

    An empty field is an input that was left out: the workflow's default counts.
    """
    if not entry.is_text:
        return {}, {name: text for name, text in entry.values.items() if text.strip()}
    if not entry.text.strip():
        return {}, {}
    try:
        document = read_document(entry.text, "inputs")
    except WorkflowInvalid as error:
        raise InputsInvalid([replace(problem, file="") for problem in error.problems]) from None
    if not isinstance(document.data, dict):
        message = "the inputs are a mapping: write `name: value`, one in a line"
        raise InputsInvalid([replace(document.problem(message), file="")])
    return document.data, {}


def locate_problems(entry: SubmitEntry, problems: Sequence[Problem]) -> list[Problem]:
    """Return problems of inputs with the line of the text that has them; problems of a form have none."""
    if not entry.is_text or any(problem.line for problem in problems):
        return list(problems)
    document = read_document(entry.text or "{}", "")
    names = [_input_of(problem) for problem in problems]
    return [
        replace(problem, line=place.line, column=place.column)
        for problem, name in zip(problems, names, strict=True)
        for place in [document.problem("", (name,), at_key=True)]
    ]


def to_text(entry: SubmitEntry, schema: JsonObject) -> SubmitEntry:
    """Return the same inputs as one text; a new form has the defaults."""
    properties: Any = schema.get("properties") or {}
    typed = {
        name: parse_input_text(_type(properties.get(name, {})), text)
        for name, text in entry.values.items()
        if text
    }
    defaults = {name: declared["default"] for name, declared in properties.items() if "default" in declared}
    required: Any = schema.get("required") or ()
    inputs = {**dict.fromkeys(required, ""), **defaults, **typed}
    return replace(entry, is_text=True, text=write_yaml(inputs) if inputs else "")


def to_form(entry: SubmitEntry) -> SubmitEntry:
    """Return the inputs of a text as fields; raise `InputsInvalid` if it cannot be read."""
    inputs, _ = read_inputs(entry)
    values = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in inputs.items()
    }
    return replace(entry, is_text=False, values=values)


def _field(name: str, schema: Any, value: str, *, is_required: bool, problems: tuple[str, ...]) -> InputField:
    kind, type_ = "text", _type(schema)
    options: tuple[str, ...] = ()
    if "enum" in schema:
        kind, options = "choice", tuple(_shown(option) for option in schema["enum"])
    elif type_ == "boolean":
        kind, options = "choice", ("true", "false")
    elif schema.get("writeOnly"):
        kind = "secret"
    elif type_ in ("integer", "number"):
        kind = "number"
    elif type_ in ("object", "array"):
        kind = "json"
    return InputField(
        name=name,
        kind=kind,
        type=type_,
        value=value,
        is_required=is_required,
        description=str(schema.get("description") or ""),
        default=_shown(schema["default"]) if "default" in schema and kind != "secret" else "",
        options=options,
        minimum=_shown(schema["minimum"]) if "minimum" in schema else "",
        maximum=_shown(schema["maximum"]) if "maximum" in schema else "",
        pattern=str(schema.get("pattern") or ""),
        problems=problems,
    )


def _type(schema: Any) -> str:
    return str(schema.get("format") or schema.get("type") or "string")


def _shown(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _input_of(problem: Problem) -> str:
    """Return the input that a problem is about: the first part of its path."""
    match = _NAME.match(problem.path)
    return "" if match is None else match[0]


def _workflow_options(workflows: Sequence[WorkflowRecord]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            view.workflow_id,
            view.workflow_id if view.name in (None, view.workflow_id) else f"{view.workflow_id}: {view.name}",
        )
        for view in workflows
    )


def _summary(plan: SubmissionPlanView) -> PlanSummary:
    starting = [
        node.node_id for node in plan.nodes if node.status.value in ("READY", "DISPATCHED", "WAITING")
    ]
    named = format_list(starting)
    nodes = format_count(len(plan.nodes), "node")
    sentence = f"The inputs are valid: {plan.workflow_id} v{plan.version} has {nodes}"
    sentence += f", and starts with {named}." if starting else "."
    warnings = [
        f"no live worker serves the queue {queue.queue!r}: its tasks will wait"
        for queue in plan.queues
        if not queue.workers
    ]
    warnings += [f"{uri} does not exist" for uri in plan.missing_blobs or ()]
    return PlanSummary(sentence, tuple(warnings))

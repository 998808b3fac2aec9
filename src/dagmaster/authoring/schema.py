"""The grammar of a workflow file: its keys, their types, their bounds, and the JSON Schema for editors.

How keys relate (edges, references, handlers) is checked in `compiler`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from dagmaster.authoring.source_document import entries
from dagmaster.patterns import MAX_PATTERN_CHARACTERS
from dagmaster.ports.queue_names import MAX_QUEUE, QUEUE_PATTERN
from dagmaster.sdk.retry_options import RetryModel

MAX_NODES: Final = 100_000
ID_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
WORKFLOW_ID_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_.-]*$"
MAX_WORKFLOW_ID: Final = 64
MAX_NODE_ID: Final = 100
# What an integer column of a database holds.
MAX_COUNT: Final = 2_147_483_647

_TARGETS_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
}
# pydantic looks a `$ref` up at once, so what is defined elsewhere is named here and put in by `json_schema`.
_DEPENDS_SCHEMA: Final[dict[str, Any]] = {"x-defined-as": "DependsOn"}
_DEPENDS: Final = (
    "The nodes and groups that it comes after: one, a list (all of them), `all_of: [...]` or `any_of: [...]`,"
    " also one"
    " inside the other. `node.branch` is a conditional that chose this branch."
)
_RETRY_SCHEMA: Final[dict[str, Any]] = {"x-defined-as": "Retry"}
_SOURCE_SCHEMA: Final[dict[str, Any]] = {"anyOf": [{"type": "string", "pattern": r"\{\{"}, {"type": "array"}]}
_TOLERANCE_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?%$"}],
}
_SECONDS_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"\{\{"}],
}

# Read by hand: a union would answer a mistake with the errors of every alternative.
Targets = Annotated[Any, Field(json_schema_extra=_TARGETS_SCHEMA)]
DependsOn = Annotated[Any, Field(json_schema_extra=_DEPENDS_SCHEMA)]
Retry = Annotated[Any, Field(json_schema_extra=_RETRY_SCHEMA)]
Source = Annotated[Any, Field(json_schema_extra=_SOURCE_SCHEMA)]
Tolerance = Annotated[Any, Field(json_schema_extra=_TOLERANCE_SCHEMA)]
WaitSeconds = Annotated[Any, Field(json_schema_extra=_SECONDS_SCHEMA)]
Expression = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0, le=366 * 86_400)]


class FileModel(BaseModel):
    """The base of all parts of the file: unknown keys and loose types are errors."""

    # Built when the first of its kind is read: 45 of 95 ms of this import, and a workflow has few kinds
    # (2026-11).
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class NodeModel(FileModel):
    """What every node has."""

    description: str = Field(default="", max_length=4096, description="For people.")
    depends_on: DependsOn = Field(default=None, description=_DEPENDS)
    group: str | None = Field(
        default=None,
        pattern=ID_PATTERN,
        max_length=MAX_NODE_ID,
        description="The group that it is in. If no node has this name, this declares the group.",
    )


class NextModel(NodeModel):
    """What every node but the end and the conditional has."""

    next: Targets = Field(default=None, description="The nodes or groups that follow: edges.")


class StartModel(FileModel):
    """The entry. At most one; implied when absent."""

    type: Literal["start"]
    description: str = Field(default="", max_length=4096, description="For people.")
    next: Targets = Field(default=None, description="The nodes or groups that follow: edges.")


class EndModel(NodeModel):
    """An exit. Implied when absent."""

    type: Literal["end"]


class TaskModel(NextModel):
    """Runs a handler on a worker."""

    type: Literal["task"] = "task"
    handler: str = Field(min_length=1, max_length=128, description="The name of a registered handler.")
    queue: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_QUEUE,
        # Checked by the compiler: definitions that are stored may have others.
        json_schema_extra={"pattern": QUEUE_PATTERN},
        description="A name without spaces, commas and `*`. Default: the handler's own, else the operator's.",
    )
    params: dict[str, JsonValue] = Field(default_factory=dict, description="The handler's params.")
    timeout_seconds: float | None = Field(
        default=None,
        ge=1,
        le=86_400,
        description="From the handler's start. Default: the handler's own, else the operator's (3600).",
    )
    dispatch_timeout_seconds: Seconds | None = Field(
        default=None, description="How long it may wait in its queue."
    )
    retry: Retry = Field(default=None, description="Default: the handler's own, else 3 attempts.")
    allow_failure: bool = Field(default=False, description="A failure does not fail the job; dependents run.")
    pool: str | None = Field(
        default=None, min_length=1, max_length=128, description="Not implemented yet: rejected."
    )
    code_fingerprint: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="The code of the handler that the submitter has (`dagmaster.code_fingerprint`). A worker"
        " with other code runs the task, and reports the difference.",
    )


class BranchModel(FileModel):
    """One way out of a conditional."""

    name: str | None = Field(
        default=None, pattern=ID_PATTERN, max_length=64, description="Default: its position."
    )
    condition: Expression | None = Field(default=None, description="`< 100`, or an expression with `value`.")
    default: bool = Field(default=False, description="Taken when no condition holds.")
    next: Targets = Field(default=None, description="The node or nodes that follow this branch.")

    @model_validator(mode="after")
    def _one_of_both(self) -> BranchModel:
        if self.default == (self.condition is not None):
            raise ValueError("a branch has either a condition or `default: true`")
        return self


class ConditionalModel(NodeModel):
    """Chooses one branch."""

    type: Literal["conditional"]
    condition_field: Expression | None = Field(default=None, description="What `value` is in the conditions.")
    branches: list[BranchModel] = Field(
        min_length=1, max_length=1000, description="Evaluated in order, default last."
    )


class WorkflowNodeModel(NextModel):
    """Runs another workflow as a child job."""

    type: Literal["workflow"]
    workflow_id: str = Field(
        pattern=WORKFLOW_ID_PATTERN, max_length=MAX_WORKFLOW_ID, description="The workflow to run."
    )
    version: int | None = Field(default=None, ge=1, le=MAX_COUNT, description="Default: the active one.")
    inputs: dict[str, JsonValue] = Field(default_factory=dict, description="The inputs of the child job.")


class FanOutModel(NextModel):
    """Runs one task for each item of a list, in parallel."""

    type: Literal["fan_out"]
    source: Source = Field(description="A list, or an expression that evaluates to a list.")
    task: dict[str, JsonValue] = Field(
        description="What runs for each item: a task, a fan_out or a workflow."
    )
    max_parallel: int | None = Field(
        default=None, ge=1, le=1_000_000, description="How many run concurrently."
    )
    tolerate_failures: Tolerance = Field(
        default=0, description="How many children may fail: a count, or a share such as '2%'."
    )
    on_item_error: Literal["fail", "tolerate", "quarantine"] = Field(
        "fail", description="What a failed child means. `quarantine` is not implemented yet: rejected."
    )
    fail_fast: bool = Field(
        default=False, description="Stop the other children once the failures exceed the tolerance."
    )


class FanInModel(NextModel):
    """Aggregates the children of a fan-out, or the outputs of the nodes before it."""

    type: Literal["fan_in"]
    aggregation: Literal["collect", "collect_all", "concat", "sum", "first", "last"] = Field(
        "collect",
        description="`collect`: `results`, the outputs of what completed, in order, `count` and `failed`."
        " `collect_all`: the same with null for what did not complete. `concat`: `results`, the items of the"
        " lists in"
        " the outputs. `sum`: `total` of the numbers in the outputs. `first`, `last`: `result`, one output.",
    )


class ApprovalModel(NextModel):
    """Pauses for a person."""

    type: Literal["approval"]
    approvers: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Who may answer, as anna (a user, or a person with a token), key:ci (a key) or oidc:anna."
        " Empty: anyone.",
    )
    message: str = Field(default="", max_length=4096, description="The question to the approvers.")
    timeout_seconds: Seconds | None = Field(default=None, description="How long to wait for an answer.")
    on_timeout: Literal["approve", "reject"] = Field("reject", description="What happens without an answer.")


class WaitModel(NextModel):
    """Pauses for a time or for a signal."""

    type: Literal["wait"]
    seconds: WaitSeconds = Field(default=None, description="How long: a number, or an expression.")
    until: Expression | None = Field(default=None, description="When it ends: a date-time, or an expression.")
    signal: str | None = Field(
        default=None, min_length=1, max_length=128, description="The signal it waits for."
    )
    timeout_seconds: Seconds | None = Field(default=None, description="How long it waits for the signal.")
    on_timeout: Literal["go_on", "fail"] = Field("fail", description="What happens when no signal comes.")

    @model_validator(mode="after")
    def _one_reason(self) -> WaitModel:
        keys = [key for key in ("seconds", "until", "signal") if getattr(self, key) is not None]
        if len(keys) != 1:
            raise ValueError("a wait has exactly one of seconds, until, signal")
        if self.signal is None and self.timeout_seconds is not None:
            raise ValueError("timeout_seconds goes with signal: a wait for a time ends by itself")
        return self


class GroupModel(NextModel):
    """Completes when all nodes in it are finished, at any depth.

    What it waits for, each of them waits for.
    """

    type: Literal["group"]


class InputModel(FileModel):
    """One input of a workflow."""

    type: Literal["string", "integer", "number", "boolean", "array", "object", "uri", "date", "date-time"] = (
        "string"
    )
    required: bool = Field(default=False, description="It must be provided, unless it has a default.")
    default: JsonValue = Field(default=None, description="Used when it is not provided.")
    enum: list[JsonValue] | None = Field(default=None, min_length=1, description="The allowed values.")
    pattern: str | None = Field(
        default=None,
        max_length=MAX_PATTERN_CHARACTERS,
        description="A regular expression for text: see *Patterns*.",
    )
    minimum: float | None = Field(default=None, description="The smallest number.")
    maximum: float | None = Field(default=None, description="The largest number.")
    items: dict[str, JsonValue] | None = Field(
        default=None, description="A JSON Schema for the items of an array."
    )
    properties: dict[str, JsonValue] | None = Field(
        default=None,
        description="JSON Schemas for an object's keys. A key that is left out has its `default`, at any"
        " depth.",
    )
    constraints: dict[str, JsonValue] | None = Field(
        default=None,
        description="More of JSON Schema that the value must fit: minLength, minItems, required …",
    )
    description: str = Field(default="", max_length=4096, description="For people.")
    secret: bool = Field(
        default=False,
        description="Encrypted where it is stored, redacted wherever it is shown, and used whole: in params"
        " of tasks and inputs of child workflows, alone or as a part of text.",
    )


class WorkflowModel(FileModel):
    """A workflow file."""

    workflow_id: str | None = Field(
        default=None, pattern=WORKFLOW_ID_PATTERN, max_length=MAX_WORKFLOW_ID, description="Its id."
    )
    name: str | None = Field(
        default=None, min_length=1, max_length=256, description="For people; the id if alone."
    )
    version: int = Field(default=1, ge=1, le=MAX_COUNT, description="Raised when the graph changes.")
    description: str = Field(default="", max_length=16_384, description="For people.")
    inputs: dict[str, InputModel] = Field(default_factory=dict, description="The inputs of a job.")
    nodes: dict[str, Any] = Field(max_length=MAX_NODES, description="The steps.")
    outputs: dict[str, JsonValue] | None = Field(default=None, description="The job's result.")
    on_failure: Literal["finish_running", "cancel_running", "continue"] = Field(
        "finish_running", description="What the other nodes do when a node fails permanently."
    )
    deadline_seconds: Seconds | None = Field(
        default=None,
        description="How long the job may take in total. Default: the operator's, else no limit.",
    )
    max_active_jobs: int | None = Field(
        default=None, ge=1, le=MAX_COUNT, description="Not implemented yet: rejected."
    )
    tags: list[str] = Field(default_factory=list, max_length=100, description="For `workflows list --tag`.")


AnyNodeModel = (
    StartModel
    | EndModel
    | TaskModel
    | ConditionalModel
    | FanOutModel
    | FanInModel
    | WorkflowNodeModel
    | ApprovalModel
    | WaitModel
    | GroupModel
)

NODE_MODELS: Final[dict[str, type[AnyNodeModel]]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(AnyNodeModel)
}


def json_schema() -> dict[str, Any]:
    definitions: dict[str, Any] = {"DependsOn": _depends_on(), "Retry": _retry()}
    for model in (*NODE_MODELS.values(), RetryModel, WorkflowModel):
        schema = model.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(schema.pop("$defs", {}))
        definitions[model.__name__] = schema
    definitions["Node"] = _by_type(tuple(NODE_MODELS))
    description = FanOutModel.model_fields["task"].description
    definitions["FanOutModel"]["properties"]["task"] = _by_type(("task", "fan_out", "workflow")) | {
        "description": description
    }
    root = definitions.pop("WorkflowModel")
    root["properties"]["nodes"] = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": MAX_NODES,
        "propertyNames": {"pattern": ID_PATTERN, "not": {"pattern": "__"}},
        "additionalProperties": {"$ref": "#/$defs/Node"},
        "description": "The steps.",
    }
    whole = {"$schema": _DIALECT, **root, "title": "dagmaster workflow", "$defs": definitions}
    _tidy(whole)
    return whole


_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def _by_type(kinds: tuple[str, ...]) -> dict[str, Any]:
    """Choose the schema of a node by its type, so that an editor shows the errors of that type only."""
    choices: list[dict[str, Any]] = [
        {
            "if": {"properties": {"type": {"const": kind}}, "required": ["type"]},
            "then": {"$ref": f"#/$defs/{NODE_MODELS[kind].__name__}"},
        }
        for kind in kinds
    ]
    choices.append({"if": {"not": {"required": ["type"]}}, "then": {"$ref": "#/$defs/TaskModel"}})
    return {"type": "object", "properties": {"type": {"enum": list(kinds)}}, "allOf": choices}


def _depends_on() -> dict[str, Any]:
    itself = {"$ref": "#/$defs/DependsOn"}
    many = {"type": "array", "items": itself, "minItems": 1}
    gates = [
        {
            "type": "object",
            "properties": {gate: {"anyOf": [{"type": "string"}, many]}},
            "required": [gate],
            "additionalProperties": False,
        }
        for gate in ("all_of", "any_of")
    ]
    return {"anyOf": [{"type": "string"}, many, *gates]}


def _retry() -> dict[str, Any]:
    return {"anyOf": [{"const": "none"}, {"$ref": "#/$defs/RetryModel"}]}


def _tidy(schema: Any) -> None:
    """Replace definitions by references, and remove `null`: a key without a value is a mistake."""
    if isinstance(schema, dict):
        name = schema.pop("x-defined-as", None)
        if name is not None:
            schema["$ref"] = f"#/$defs/{name}"
        if "default" in schema and schema["default"] is None:
            del schema["default"]
        choices = schema.get("anyOf")
        if isinstance(choices, list) and {"type": "null"} in choices:
            rest = [choice for choice in choices if choice != {"type": "null"}]
            del schema["anyOf"]
            schema.update(rest[0] if len(rest) == 1 else {"anyOf": rest})
    for _, value in entries(schema):
        _tidy(value)

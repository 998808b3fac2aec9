"""The bodies of graphs that are built in code: tasks, groups and dependencies, whole or as lines."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, create_model

from dagmaster.authoring.added_nodes import fill_place
from dagmaster.authoring.graph_parts import TaskPart
from dagmaster.authoring.python.task_options import TASK_OPTIONS
from dagmaster.authoring.schema import TaskModel
from dagmaster.errors import EvaluationFailed, NodesRejected
from dagmaster.http.api.tasks import Digits
from dagmaster.http.job_options import OptionsBody
from dagmaster.http.routes import Body
from dagmaster.ports.job_options import MAX_NAME
from dagmaster.ports.queue_names import MAX_QUEUE, QUEUE_PATTERN
from dagmaster.sdk.retry_options import RetryModel

MAX_TASKS: Final = 1_000
"""The most tasks of a JSON body: more are sent as lines."""
Path = list[str | int]
Text = Annotated[str, Field(max_length=200)]


class ReferenceBody(Body):
    """A place in params where the result of another task stands."""

    path: Path = Field(min_length=1, max_length=100, examples=[["data"]])
    task: Digits = Field(description="It is waited for, as with a dependency.")
    within: Path = Field(
        default_factory=list, max_length=100, description="The place in the result; default: all."
    )


class _TaskKeys(Body):
    """What a task runs. Params are values: text is never a template."""

    type: Literal["task"] = "task"
    handler: str = Field(min_length=1, max_length=128, examples=["myapp.extract"])
    queue: str | None = Field(
        default=None, max_length=MAX_QUEUE, pattern=QUEUE_PATTERN, description="Default: of the server."
    )
    params: dict[str, Any] = Field(default_factory=dict)
    timeout_seconds: float | None = Field(default=None, ge=1, le=864_000)
    retry: RetryModel | None = None


_OTHER_KEYS: Final[dict[str, Any]] = {
    name: (TaskModel.model_fields[name].annotation, TaskModel.model_fields[name])
    for name in TASK_OPTIONS
    if name not in _TaskKeys.model_fields
}
"""The options that are as in a workflow file."""
TaskDefinition: Any = create_model(
    "TaskDefinition", __base__=_TaskKeys, __doc__=_TaskKeys.__doc__, **_OTHER_KEYS
)


class CollectDefinition(Body):
    """The results of tasks as a list."""

    type: Literal["fan_in"]
    sources: list[Digits] = Field(max_length=1_000_000)


class WaitDefinition(Body):
    """A wait for a signal, as that of a context that still adds tasks."""

    type: Literal["wait"]
    signal: str = Field(min_length=1, max_length=128)
    description: Text = ""
    timeout_seconds: float | None = Field(default=None, gt=0, le=31_536_000)
    on_timeout: Literal["go_on", "fail"] = "fail"


class TaskBody(Body):
    """A task. `id`: a number that the caller chose, unique among all tasks; `label`: its name begins so."""

    id: Digits
    label: str = Field(default="task", max_length=200)
    name: str | None = Field(default=None, max_length=100, description="Unique in the job.")
    group: Digits | None = None
    definition: TaskDefinition | CollectDefinition | WaitDefinition
    references: list[ReferenceBody] = Field(default_factory=list, max_length=10_000)

    def to_part(self, default_queue: str | None) -> TaskPart:
        definition = self.definition.model_dump(exclude_defaults=True)
        if isinstance(self.definition, TaskDefinition):
            queue = self.definition.queue or default_queue
            if queue is None:
                raise NodesRejected(
                    f"task {self.name or self.label} ({self.definition.handler}) has no queue"
                )
            definition["queue"] = queue
            self._check_places(self.definition.params)
        elif self.references:
            raise NodesRejected(
                f"{self.name or self.label} is a {self.definition.type}: only tasks have references"
            )
        elif isinstance(self.definition, CollectDefinition):
            definition["sources"] = [int(source) for source in self.definition.sources]
        references = [
            [one.path, int(one.task), *([one.within] if one.within else [])] for one in self.references
        ]
        group = None if self.group is None else int(self.group)
        return TaskPart(int(self.id), self.label, definition, self.name, group, references)

    def _check_places(self, params: dict[str, Any]) -> None:
        """Raise `NodesRejected` if a reference stands where nothing can be."""
        for reference in self.references:
            try:
                fill_place(params, reference.path, None)
            except EvaluationFailed as error:
                raise NodesRejected(f"task {self.name or self.label}: {error}") from None


class GroupBody(Body):
    """A group, and the group that it is in."""

    id: Digits
    name: str = Field(min_length=1, max_length=100)
    parent: Digits | None = None


class DependencyBody(Body):
    """`next` waits for `previous`."""

    previous_type: Literal["task", "group"] = "task"
    previous_id: Digits
    next_type: Literal["task", "group"] = "task"
    next_id: Digits


class PartBody(Body):
    """Tasks, groups and dependencies.

    `known`: node ids of tasks and groups of the job that they refer to, by id.
    """

    tasks: list[TaskBody] = Field(default_factory=list, max_length=MAX_TASKS)
    groups: list[GroupBody] = Field(default_factory=list, max_length=MAX_TASKS)
    dependencies: list[DependencyBody] = Field(default_factory=list, max_length=10 * MAX_TASKS)
    known: dict[Digits, str] = Field(default_factory=dict, max_length=10 * MAX_TASKS)


class GraphJob(OptionsBody):
    """A job without its graph."""

    name: str = Field(min_length=1, max_length=MAX_NAME)


class PartLine(Body):
    """A line of a part of a graph: one of these keys.

    `known`: the id and the node id of a task or a group of the job that others refer to.
    """

    task: TaskBody | None = None
    group: GroupBody | None = None
    dependency: DependencyBody | None = None
    known: list[str] | None = Field(default=None, min_length=2, max_length=2)

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "maxProperties": 1,
            "examples": [
                {"task": {"id": "1", "definition": {"handler": "myapp.extract", "queue": "cpu"}}},
                {"task": {"id": "2", "definition": {"handler": "myapp.load", "queue": "cpu"}}},
                {"dependency": {"previous_id": "1", "next_id": "2"}},
            ],
        }
    )


class GraphLine(PartLine):
    """A line of a job with its graph: the first one has the key `job`, all others one of the other keys."""

    job: GraphJob | None = None

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "maxProperties": 1,
            "examples": [
                {"job": {"name": "nightly"}},
                {"task": {"id": "1", "definition": {"handler": "myapp.extract", "queue": "cpu"}}},
            ],
        }
    )


class GraphJobBody(GraphJob):
    """A job with its graph."""

    graph: PartBody

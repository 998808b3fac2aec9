"""A document becomes a Graph, or all of its problems at once.

The same way for a YAML file and for a stored definition. What is stored is complete: a handler's own queue, timeout and
retry are written into the definition, so that it compiles anywhere, without the handlers, to the same graph.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from dagmaster.authoring import problems as says
from dagmaster.authoring import schema
from dagmaster.authoring.certainty import Certainty
from dagmaster.authoring.checks import References
from dagmaster.authoring.document import Document, document_of, read_document, read_file
from dagmaster.authoring.inputs import problems_of_inputs
from dagmaster.authoring.links import Links
from dagmaster.authoring.names import did_you_mean
from dagmaster.authoring.specs import SpecMaker, output_keys_of
from dagmaster.engine.graph import Graph, Kind, OnFailure, Wiring
from dagmaster.errors import Problem, WorkflowInvalid

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Mapping

    from dagmaster.authoring.document import Path
    from dagmaster.authoring.handlers import Registry
    from dagmaster.engine.templates import Template

_ID: Final = re.compile(schema.ID_PATTERN)
_MAX_ID: Final = 100
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A graph, and what its author should know all the same."""

    graph: Graph
    warnings: tuple[Problem, ...]


def compile_file(
    path: pathlib.Path, *, handlers: Registry | None = None, allow_missing_handlers: bool = False
) -> Compiled:
    """Compile a workflow file."""
    with _no_collection():
        return compile_document(read_file(path), handlers=handlers, allow_missing_handlers=allow_missing_handlers)


def compile_text(
    text: str, file: str = "<text>", *, handlers: Registry | None = None, allow_missing_handlers: bool = False
) -> Compiled:
    """Compile a workflow that is given as YAML."""
    with _no_collection():
        return compile_document(
            read_document(text, file), handlers=handlers, allow_missing_handlers=allow_missing_handlers
        )


def compile_definition(definition: Mapping[str, Any]) -> Graph:
    """Compile a stored definition. Handlers are not asked: what they gave stands in it."""
    return compile_document(document_of(dict(definition))).graph


def compile_document(
    document: Document, *, handlers: Registry | None = None, allow_missing_handlers: bool = False
) -> Compiled:
    """Check a document and compile it; `WorkflowInvalid` has every problem that was found."""
    return _Compilation(document, handlers, allow_missing_handlers=allow_missing_handlers).run()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the cyclic collector out: all that is made here stays, and going through it over and over was half the cost.

    A file of 10,000 nodes took 2.3 s of CPU with it and takes 1.3 s without (2026-11, `bench/language.py`).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Compilation:
    """One document on its way to a graph."""

    def __init__(self, document: Document, handlers: Registry | None, *, allow_missing_handlers: bool) -> None:
        self.document = document
        self.handlers = handlers
        self.allow_missing_handlers = allow_missing_handlers
        self.problems: list[Problem] = []

    def run(self) -> Compiled:
        workflow = self._read_workflow()
        if workflow is None:
            raise WorkflowInvalid(_in_order(self.problems))
        self._check_identity(workflow)
        self.problems += problems_of_inputs(self.document, workflow.inputs)
        models = self._read_nodes(workflow)
        ids = list(workflow.nodes)
        links = Links(self.document, ids, models)
        self.problems += links.problems
        maker = SpecMaker(self.document, links, self.handlers, allow_missing_handlers=self.allow_missing_handlers)
        specs = {node_id: spec for node_id, model in models.items() if (spec := maker.make(node_id, model))}
        outputs = None if workflow.outputs is None else maker.template(workflow.outputs, ("outputs",), maker.OUTPUTS)
        self.problems += maker.problems
        if len(links.order) == len(ids):
            self.problems += self._check_references(workflow, models, links, maker)
        errors = [problem for problem in self.problems if problem.severity == "error"]
        if errors or len(specs) < len(ids):
            raise WorkflowInvalid(_in_order(self.problems))
        graph = self._graph(workflow, links, maker, outputs)
        return Compiled(graph, tuple(_in_order(self.problems)))

    def _read_workflow(self) -> schema.WorkflowModel | None:
        data = self.document.data
        if not isinstance(data, dict):
            hint = "a workflow file has the keys name, inputs, nodes, outputs …"
            self.problems.append(self.document.problem("a workflow file is a mapping", hint=hint))
            return None
        return self._validate(schema.WorkflowModel, data, ())

    def _check_identity(self, workflow: schema.WorkflowModel) -> None:
        if workflow.workflow_id is None:
            if workflow.name is None:
                hint = "add workflow_id: my_workflow (letters, digits, _ . -)"
                self.problems.append(self.document.problem("missing key 'workflow_id'", hint=hint))
            elif not re.fullmatch(schema.WORKFLOW_ID_PATTERN, workflow.name):
                message = "name alone must be an identifier (letters, digits, _ . -), or add workflow_id"
                self.problems.append(self.document.problem(message, ("name",)))

    def _read_nodes(self, workflow: schema.WorkflowModel) -> dict[str, schema.AnyNodeModel]:
        models: dict[str, schema.AnyNodeModel] = {}
        for node_id, raw in workflow.nodes.items():
            path: Path = ("nodes", node_id)
            if "__" in node_id:
                self._problem("a node id has no '__': that is how children are named", path, at_key=True)
            elif not _ID.match(node_id) or len(node_id) > _MAX_ID:
                message = f"a node id is made of letters, digits and _, at most {_MAX_ID}, and starts with no digit"
                self._problem(message, path, at_key=True)
            model = self._read_node(raw, path)
            if model is not None:
                models[node_id] = model
        return models

    def _read_node(self, raw: Any, path: Path) -> schema.AnyNodeModel | None:
        """Read one node by its type."""
        if not isinstance(raw, dict):
            self._problem("a node is a mapping: type, handler, params, next …", path)
            return None
        kind = raw.get("type", "task")
        model = schema.NODE_MODELS.get(kind) if isinstance(kind, str) else None
        if model is None:
            hint = did_you_mean(str(kind), schema.NODE_MODELS)
            self._problem(f"unknown node type {kind!r}", (*path, "type"), hint=hint)
            return None
        return self._validate(model, raw, path)

    def _validate(self, model: type[_Model], raw: Any, path: Path) -> _Model | None:
        """Validate by a model; its errors become problems. What is right is read all the same, to find them all."""
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            self.problems += says.of_validation(self.document, error, model, path)
            wrong = {item["loc"][0] for item in error.errors(include_url=False) if item["loc"]}
        right = {key: value for key, value in raw.items() if key not in wrong}
        if model is schema.WorkflowModel and isinstance(raw.get("inputs"), dict):
            right.setdefault("inputs", {name: {} for name in raw["inputs"]})
        try:
            return model.model_validate(right)
        except ValidationError:
            return None

    def _check_references(
        self,
        workflow: schema.WorkflowModel,
        models: Mapping[str, schema.AnyNodeModel],
        links: Links,
        maker: SpecMaker,
    ) -> list[Problem]:
        kinds = {node_id: Kind(model.type) for node_id, model in models.items()}
        references = References(
            self.document,
            inputs=workflow.inputs,
            optional_inputs=[
                name
                for name, model in workflow.inputs.items()
                if not model.required and "default" not in model.model_fields_set
            ],
            # A node that could not be read has its own problem: what refers to it is not one more.
            kinds={**dict.fromkeys(links.ids, Kind.FAN_OUT), **kinds},
            output_keys={node_id: output_keys_of(model, self.handlers) for node_id, model in models.items()},
            may_fail=frozenset(node_id for node_id, model in models.items() if getattr(model, "allow_failure", False)),
            requires=links.requires,
            certainty=Certainty(links.order, links.requires, links.branch_names),
        )
        for use, path, node_id, nesting in maker.uses:
            references.check(use, path, node_id=node_id, nesting=nesting)
        return references.problems

    def _graph(self, workflow: schema.WorkflowModel, links: Links, maker: SpecMaker, outputs: Template | None) -> Graph:
        specs = maker.specs
        ends = [node_id for node_id, spec in specs.items() if spec.kind is Kind.END]
        before_end = {leaf.node for end in ends if end in links.requires for leaf in links.requires[end].leaves()}
        before_end |= set(links.to_end)
        if not before_end:
            followed = {leaf.node for gate in links.requires.values() for leaf in gate.leaves()}
            before_end = {node_id for node_id in specs if node_id not in followed}
        definition = self._definition(workflow, maker)
        return Graph(
            workflow_id=definition["workflow_id"],
            version=workflow.version,
            name=workflow.name or definition["workflow_id"],
            description=workflow.description,
            inputs=definition.get("inputs", {}),
            specs=specs,
            outputs=outputs,
            result_nodes=tuple(node_id for node_id in specs if node_id in before_end),
            on_failure=OnFailure(workflow.on_failure),
            deadline_seconds=workflow.deadline_seconds,
            max_active_jobs=workflow.max_active_jobs,
            tags=tuple(workflow.tags),
            definition=definition,
            content_hash=hash_of(definition),
            wiring=Wiring(specs.values()),
        )

    def _definition(self, workflow: schema.WorkflowModel, maker: SpecMaker) -> dict[str, Any]:
        whole = workflow.model_dump(exclude_defaults=True, exclude={"nodes"})
        whole["workflow_id"] = workflow.workflow_id or workflow.name
        whole["version"] = workflow.version
        # The order of nodes is part of the meaning: a fan-in takes its sources in file order. No other order is.
        nodes = {node_id: _sorted(maker.definitions[node_id]) for node_id in maker.specs}
        return {**_sorted(whole), "nodes": nodes}

    def _problem(self, message: str, path: Path, *, at_key: bool = False, hint: str = "") -> None:
        self.problems.append(self.document.problem(message, path, at_key=at_key, hint=hint))


def hash_of(definition: Mapping[str, Any]) -> str:
    """Give the content hash of a definition."""
    text = json.dumps(definition, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _in_order(problems: list[Problem]) -> list[Problem]:
    """Order problems as they stand in the file, each once."""
    return sorted(dict.fromkeys(problems), key=lambda problem: (problem.line, problem.column))

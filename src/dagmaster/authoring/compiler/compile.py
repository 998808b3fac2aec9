"""Compile a document into a Graph, or report all its problems at once.

YAML files and stored definitions take the same path. A stored definition is complete: the handler's queue,
timeout and retry are part of it, so it compiles to the same graph anywhere, without the handlers.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring import schema
from dagmaster.authoring.compiler.availability import Availability
from dagmaster.authoring.compiler.edges import Edges
from dagmaster.authoring.compiler.fan_out_sources import check_fan_out_sources
from dagmaster.authoring.compiler.ineffective_keys import check_ineffective_keys
from dagmaster.authoring.compiler.node_groups import NodeGroups
from dagmaster.authoring.compiler.node_outputs import output_keys
from dagmaster.authoring.compiler.node_specs import NodeSpecBuilder
from dagmaster.authoring.compiler.node_templates import sort_keys
from dagmaster.authoring.compiler.reference_checks import ReferenceChecker
from dagmaster.authoring.garbage_collection import without_gc
from dagmaster.authoring.input_definitions import check_inputs
from dagmaster.authoring.model_reader import UNREADABLE, read_model
from dagmaster.authoring.source_document import (
    Document,
    document_from_data,
    format_path,
    read_document,
    read_file,
)
from dagmaster.authoring.validation_messages import MAX_PROBLEMS, describe_actual
from dagmaster.engine.expressions.paths import OUTPUTS
from dagmaster.engine.graph import DefaultLimits, Graph, Kind, OnFailure, Wiring
from dagmaster.engine.groups import result_nodes, written_name
from dagmaster.errors import Problem, WorkflowInvalid
from dagmaster.errors.source_map import truncate
from dagmaster.errors.suggestions import did_you_mean, nearest

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping

    from dagmaster.authoring.source_document import Path
    from dagmaster.engine.expressions.templates import Template
    from dagmaster.json_types import JsonValue
    from dagmaster.sdk.handler_catalog import HandlerCatalog

_ID: Final = re.compile(schema.ID_PATTERN)
_MAX_ID: Final = schema.MAX_NODE_ID


@dataclass(frozen=True, slots=True)
class Compiled:
    """A graph and the warnings for its author."""

    graph: Graph
    warnings: tuple[Problem, ...]


def compile_file(
    path: pathlib.Path, *, handlers: HandlerCatalog | None = None, allow_missing_handlers: bool = False
) -> Compiled:
    with without_gc():
        return compile_document(
            read_file(path), handlers=handlers, allow_missing_handlers=allow_missing_handlers
        )


def compile_text(
    text: str,
    file: str = "<text>",
    *,
    handlers: HandlerCatalog | None = None,
    allow_missing_handlers: bool = False,
) -> Compiled:
    with without_gc():
        return compile_document(
            read_document(text, file), handlers=handlers, allow_missing_handlers=allow_missing_handlers
        )


def compile_definition(
    definition: Mapping[str, JsonValue], limits: DefaultLimits | None = None, *, is_published: bool = True
) -> Graph:
    """Compile a stored definition, which contains the handlers' defaults; the operator's are `limits`.

    With `is_published=False` it comes from a caller, and its patterns are checked.
    """
    document = document_from_data(dict(definition))
    return _Compilation(document, None, is_stored=True, is_published=is_published, limits=limits).run().graph


def compile_document(
    document: Document, *, handlers: HandlerCatalog | None = None, allow_missing_handlers: bool = False
) -> Compiled:
    """Check a document and compile it; raise `WorkflowInvalid` with every problem."""
    return _Compilation(document, handlers, allow_missing_handlers=allow_missing_handlers).run()


class _Compilation:
    """The compilation of one document."""

    def __init__(
        self,
        document: Document,
        handlers: HandlerCatalog | None,
        *,
        allow_missing_handlers: bool = False,
        is_stored: bool = False,
        is_published: bool = False,
        limits: DefaultLimits | None = None,
    ) -> None:
        self.document = document
        self.limits = limits or DefaultLimits()
        self.handlers = handlers
        self.allow_missing_handlers = allow_missing_handlers
        self.is_stored = is_stored
        self.is_published = is_published
        self.problems: list[Problem] = []
        self.problem_limit = MAX_PROBLEMS
        self.wrong_inputs: set[str] = set()
        # Nodes whose targets are unknown.
        self.unreadable: set[str] = set()

    def run(self) -> Compiled:
        workflow = self._read_workflow()
        if workflow is None:
            raise WorkflowInvalid(_in_file_order(self.problems))
        self._check_identity(workflow)
        self.problems += check_inputs(
            self.document,
            workflow.inputs,
            self.wrong_inputs,
            is_stored=self.is_stored,
            is_published=self.is_published,
        )
        if not self.is_stored:
            self.problems += check_ineffective_keys(self.document)
        self._stop_if_too_many(self.problems)
        models = self._read_nodes(workflow)
        groups = NodeGroups(self.document, list(workflow.nodes), models, self.unreadable)
        ids, models = groups.ids, groups.models
        edges = Edges(self.document, groups, self.unreadable)
        self.problems += [*groups.problems, *edges.problems]
        self._stop_if_too_many(self.problems)
        maker = NodeSpecBuilder(
            self.document,
            edges,
            self.handlers,
            allow_missing_handlers=self.allow_missing_handlers,
            limits=self.limits,
            secret_inputs=_secret_inputs(workflow),
            is_stored=self.is_stored,
        )
        for node_id, model in models.items():
            maker.make(node_id, model)
            self._stop_if_too_many(maker.problems)
        outputs = (
            None
            if workflow.outputs is None
            else maker.values.template(workflow.outputs, ("outputs",), OUTPUTS)
        )
        self.problems += maker.problems
        if ids:
            self.problems += self._check_references(workflow, models, edges, maker)
        if not self.is_stored:
            # Earlier versions published such workflows.
            types = {
                name: model.type for name, model in workflow.inputs.items() if name not in self.wrong_inputs
            }
            self.problems += check_fan_out_sources(self.document, types, models)
        errors = [problem for problem in self.problems if problem.severity == "error"]
        if errors or len(maker.specs) < len(ids):
            raise WorkflowInvalid(_in_file_order(self.problems))
        graph = self._graph(workflow, edges, maker, outputs)
        return Compiled(graph, tuple(_in_file_order(self.problems)))

    def _read_workflow(self) -> schema.WorkflowModel | None:
        data = self.document.data
        if not isinstance(data, dict):
            hint = "a workflow file has the keys workflow_id, inputs, nodes, outputs …"
            message = f"a workflow file is a mapping (key: value){describe_actual(data)}"
            self.problems.append(self.document.problem(message, hint=hint))
            return None
        workflow, self.problems = read_model(self.document, schema.WorkflowModel, data, ())
        inputs = data.get("inputs")
        wrong = {path for problem in self.problems for path in _with_prefixes(problem.path)}
        for name in inputs if isinstance(inputs, dict) else ():
            if format_path(("inputs", name)) in wrong:
                self.wrong_inputs.add(name)
        if workflow is not None and data.get("nodes") == {} and not self.is_stored:
            self._problem("a workflow has at least one node", ("nodes",))
        return workflow

    def _check_identity(self, workflow: schema.WorkflowModel) -> None:
        if workflow.workflow_id is not None or "workflow_id" in self.document.data:
            return
        name = workflow.name
        if name is None:
            if "name" not in self.document.data:
                hint = "add workflow_id: my_workflow (letters, digits, _ . -)"
                self.problems.append(self.document.problem("missing key 'workflow_id'", hint=hint))
        elif not re.fullmatch(schema.WORKFLOW_ID_PATTERN, name) or len(name) > schema.MAX_WORKFLOW_ID:
            message = (
                "name alone is the id, which is made of letters, digits and _ . -, at most"
                f" {schema.MAX_WORKFLOW_ID}, "
                "and starts with a letter or _"
            )
            like = re.sub(r"[^a-z0-9_.-]+", "_", name.lower())[: schema.MAX_WORKFLOW_ID]
            hint = f"add workflow_id: {like if re.match('[a-z_]', like) else 'my_workflow'}"
            self.problems.append(self.document.problem(message, ("name",), hint=hint))

    def _read_nodes(self, workflow: schema.WorkflowModel) -> Mapping[str, schema.AnyNodeModel]:
        models: dict[str, schema.AnyNodeModel] = {}
        for node_id, raw in workflow.nodes.items():
            path: Path = ("nodes", node_id)
            if "__" in node_id:
                hint = f"for example: {re.sub('__+', '_', node_id)}"
                self._problem(
                    "a node id has no '__': that is how children are named", path, at_key=True, hint=hint
                )
            elif not _ID.fullmatch(node_id) or len(node_id) > _MAX_ID:
                message = (
                    f"a node id is made of letters, digits and _, at most {_MAX_ID}, and starts with no digit"
                )
                self._problem(message, path, at_key=True)
            model = self._read_node(node_id, raw, path)
            self._stop_if_too_many(self.problems)
            if model is None:
                self.unreadable.add(node_id)
            else:
                models[node_id] = model
        return models

    def _read_node(self, node_id: str, raw: Any, path: Path) -> schema.AnyNodeModel | None:
        """Read one node by its type; where the type is wrong, by the one that was meant."""
        if not isinstance(raw, dict):
            hint = f"for example: {{handler: {raw}}}" if isinstance(raw, str) and raw.isidentifier() else ""
            message = f"a node is a mapping (type, handler, params, next …){describe_actual(raw)}"
            self._problem(message, path, hint=hint)
            return None
        kind = raw.get("type", "task")
        if not isinstance(kind, str) or kind not in schema.NODE_MODELS:
            hint = did_you_mean(str(kind), schema.NODE_MODELS)
            message = (
                f"unknown node type {truncate(kind)!r}"
                if isinstance(kind, str)
                else f"type is text{describe_actual(kind)}"
            )
            self._problem(message, (*path, "type"), hint=hint)
            kind = nearest(str(kind), schema.NODE_MODELS) or ""
            known = {key: raw[key] for key in ("depends_on", "next", "group") if key in raw}
            raw = {**raw, "type": kind} if kind else {**known, "handler": UNREADABLE}
            if not kind:
                self.unreadable.add(node_id)
        model, problems = read_model(self.document, schema.NODE_MODELS[kind or "task"], raw, path)
        self.problems += problems
        if (
            isinstance(model, schema.ConditionalModel)
            and schema.BranchModel(condition=UNREADABLE) in model.branches
        ):
            self.unreadable.add(node_id)
        return model

    def _check_references(
        self,
        workflow: schema.WorkflowModel,
        models: Mapping[str, schema.AnyNodeModel],
        edges: Edges,
        maker: NodeSpecBuilder,
    ) -> list[Problem]:
        asked: dict[str, set[str]] = {}
        for use, _, node_id, _ in maker.values.uses:
            if node_id is not None and use.keys[0] == "nodes":
                asked.setdefault(node_id, set()).add(str(use.keys[1]))
        availability = Availability(edges.order, edges.requires, edges.branch_names, asked)
        references = ReferenceChecker(
            self.document,
            inputs=workflow.inputs,
            optional_inputs=[
                name
                for name, model in workflow.inputs.items()
                if not model.required
                and "default" not in model.model_fields_set
                and name not in self.wrong_inputs
            ],
            secret_inputs=_secret_inputs(workflow),
            # A node that could not be read is already a problem: references to it are not reported again.
            kinds={
                node_id: Kind.FAN_OUT if node_id in self.unreadable else Kind(models[node_id].type)
                for node_id in edges.ids
            },
            output_keys={
                node_id: output_keys(model, self.handlers)
                for node_id, model in models.items()
                if node_id not in self.unreadable
            },
            may_fail=frozenset(
                node_id for node_id, model in models.items() if getattr(model, "allow_failure", False)
            ),
            edges=edges,
            availability=availability,
            is_stored=self.is_stored,
        )
        for use, path, node_id, nesting in maker.values.uses:
            references.check(use, path, node_id=node_id, nesting=nesting)
        return references.problems + self._check_unreachable(edges, availability)

    def _check_unreachable(self, edges: Edges, availability: Availability) -> list[Problem]:
        """Report nodes that need two branches of which only one is ever taken, without their followers."""
        problems: list[Problem] = []
        for node_id in edges.order:
            if node_id in edges.unresolved or not availability.can_never_run(node_id):
                continue
            if not any(availability.can_never_run(leaf.node) for leaf in edges.requires[node_id].leaves()):
                written = written_name(node_id)
                message = f"node {written!r} never runs: no choice of branches satisfies its dependencies"
                hint = (
                    "a depends_on list needs all its nodes: use any_of, or edges (next), which join what ran"
                )
                where = ("nodes", written, "depends_on")
                problems.append(self.document.problem(message, where, hint=hint, severity="warning"))
        return problems

    def _graph(
        self, workflow: schema.WorkflowModel, edges: Edges, maker: NodeSpecBuilder, outputs: Template | None
    ) -> Graph:
        # The nodes that join the dependencies of groups are in the graph, but not in the definition.
        specs = {node_id: maker.specs.get(node_id, linked) for node_id, linked in edges.linked.items()}
        ends = [node_id for node_id, spec in specs.items() if spec.kind is Kind.END]
        before_end = {source for end in ends for source in edges.sources(end)}
        before_end |= set(edges.to_end)
        if not before_end:
            followed = {leaf.node for gate in edges.requires.values() for leaf in gate.leaves()}
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
            result_nodes=result_nodes(specs, before_end),
            on_failure=OnFailure(workflow.on_failure),
            deadline_seconds=workflow.deadline_seconds or self.limits.job_timeout_seconds,
            max_active_jobs=workflow.max_active_jobs,
            tags=tuple(workflow.tags),
            definition=definition,
            content_hash=content_hash(definition),
            wiring=Wiring(specs.values()),
        )

    def _definition(self, workflow: schema.WorkflowModel, maker: NodeSpecBuilder) -> dict[str, Any]:
        whole = workflow.model_dump(exclude_defaults=True, exclude={"nodes"})
        whole["workflow_id"] = workflow.workflow_id or workflow.name
        whole["version"] = workflow.version
        # The order of nodes is part of the meaning: a fan-in takes its sources in file order. No other order
        # is.
        nodes = {node_id: sort_keys(maker.definitions[node_id]) for node_id in maker.specs}
        return {**sort_keys(whole), "nodes": nodes}

    def _stop_if_too_many(self, problems: list[Problem]) -> None:
        """Stop at more problems than anyone reads: finding all of them is slow."""
        if len(problems) <= self.problem_limit:
            return
        if sum(problem.severity == "error" for problem in problems) > MAX_PROBLEMS:
            raise WorkflowInvalid(
                _in_file_order(self.problems if problems is self.problems else self.problems + problems)
            )
        self.problem_limit = 2 * len(problems)

    def _problem(self, message: str, path: Path, *, at_key: bool = False, hint: str = "") -> None:
        self.problems.append(self.document.problem(message, path, at_key=at_key, hint=hint))


def content_hash(definition: Mapping[str, JsonValue]) -> str:
    text = json.dumps(definition, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _secret_inputs(workflow: schema.WorkflowModel) -> frozenset[str]:
    return frozenset(name for name, model in workflow.inputs.items() if model.secret)


def _in_file_order(problems: list[Problem]) -> list[Problem]:
    """Order problems by position, without duplicates. If there are too many, the last one says so."""
    unique = sorted(dict.fromkeys(problems), key=lambda problem: problem.severity != "error")
    kept = sorted(unique[:MAX_PROBLEMS], key=lambda problem: (problem.line, problem.column))
    if len(unique) > len(kept):
        more = f"there are more problems: these are {MAX_PROBLEMS} of them"
        kept.append(Problem(message=more, file=kept[-1].file, severity=unique[0].severity))
    return kept


def _with_prefixes(path: str) -> list[str]:
    return [path, *(path[: match.start()] for match in re.finditer(r"[.\[]", path))]

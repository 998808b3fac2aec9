"""Check every reference in a workflow before anything runs.

A reference is valid if its target exists, is upstream, has that key, and is certainly available or has a
default.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.compiler.edges import MAX_HINTS
from dagmaster.engine.graph import GateKind, Kind
from dagmaster.engine.groups import is_group_start
from dagmaster.errors.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from dagmaster.authoring.compiler.availability import Availability
    from dagmaster.authoring.compiler.edges import Edges
    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.engine.expressions.expression import PathUse
    from dagmaster.errors import Problem
    from dagmaster.json_types import JsonValue

_NODE_KEYS: Final = ("output", "status", "error")
_FAN_OUT_KEYS: Final = (*_NODE_KEYS, "outputs", "failed")
_UPSTREAM_KEYS: Final = ("output", "status", "error")
_MAX_MEMBERS: Final = 3
_JOB_KEYS: Final = ("id",)
_ALWAYS_READABLE: Final = frozenset({"status", "error"})


class ReferenceChecker:
    """Checks the paths that expressions use."""

    def __init__(  # noqa: PLR0913 - all that is known of the document
        self,
        document: Document,
        *,
        inputs: Iterable[str],
        optional_inputs: Iterable[str],
        secret_inputs: Collection[str],
        kinds: Mapping[str, Kind],
        output_keys: Mapping[str, frozenset[str] | None],
        may_fail: frozenset[str],
        edges: Edges,
        availability: Availability,
        is_stored: bool,
    ) -> None:
        self.document = document
        self.inputs = frozenset(inputs)
        self.optional_inputs = frozenset(optional_inputs)
        self.secret_inputs = secret_inputs
        self.kinds = kinds
        self.output_keys = output_keys
        self.may_fail = may_fail
        self.edges = edges
        self.requires = edges.requires
        # Nodes whose dependencies are unknown: that is reported already.
        self.unresolved = edges.unresolved
        self.availability = availability
        self.is_stored = is_stored
        self.problems: list[Problem] = []

    def check(self, use: PathUse, path: Path, *, node_id: str | None, nesting: int = 0) -> None:
        """Check one use by a node (None: the workflow's outputs)."""
        root, *rest = use.keys
        if root == "inputs" and rest:
            self._input(use, path, rest)
        elif root == "nodes":
            self._node(use, path, rest, node_id)
        elif root == "upstream":
            self._upstream(use, path, rest, node_id)
        elif root == "job":
            self._key(rest, _JOB_KEYS, use, path, "job has")
        elif (
            root == "outer"
            and next(index for index, key in enumerate(use.keys) if key != "outer") + 1 > nesting
        ):
            hint = f"this task is inside {nesting} fan-outs"
            self._problem(
                f"{_format_reference(use)}: there are not that many enclosing fan-outs", use, path, hint
            )

    def _input(self, use: PathUse, path: Path, rest: list[Any]) -> None:
        name = str(rest[0])
        if name not in self.inputs:
            hint = (did_you_mean(name, self.inputs) if self._may_hint() else "") or "declare it under inputs:"
            self._problem(f"unknown input {name!r}", use, path, hint=hint)
        elif name in self.optional_inputs and not use.guarded:
            written = "" if name in self.secret_inputs else ", or write `| default(…)`"
            hint = f"give it `required: true` or a default{written}"
            self._problem(
                f"input {name!r} may be absent, and the run would fail here", use, path, hint, "warning"
            )

    def _node(self, use: PathUse, path: Path, rest: list[Any], node_id: str | None) -> None:
        source = str(rest[0])
        kind = self.kinds.get(source)
        if kind is None:
            hint = did_you_mean(source, self.kinds) if self._may_hint() else ""
            self._problem(f"unknown node {source!r}", use, path, hint)
            return
        is_doubtful = node_id in self.unresolved
        if node_id is not None and not is_doubtful and not self.availability.is_before(source, node_id):
            hint = f"add {source!r} to depends_on of {node_id!r}, or add an edge from it"
            what = "itself" if source == node_id else f"{source!r}, which is not upstream of it"
            self._problem(f"node {node_id!r} refers to {what}", use, path, "" if source == node_id else hint)
            return
        keys = _FAN_OUT_KEYS if kind is Kind.FAN_OUT else _NODE_KEYS
        if not self._key(rest[1:], keys, use, path, f"node {source!r} has"):
            return
        if rest[1] in _ALWAYS_READABLE or not self._output_key(source, rest[1:], use, path):
            return
        if not use.guarded:
            self._check_available(
                source, use, path, node_id, is_doubtful=is_doubtful or source in self.unresolved
            )

    def _check_available(
        self, source: str, use: PathUse, path: Path, node_id: str | None, *, is_doubtful: bool = False
    ) -> None:
        if source in self.may_fail:
            why = f"{source!r} may fail (allow_failure)"
        elif is_doubtful:
            return
        elif node_id is None and not self.availability.always_runs(source):
            why = f"{source!r} may be skipped"
        elif node_id is not None and not self.availability.is_certain(source, node_id):
            why = f"{source!r} may be skipped or still open when {node_id!r} runs"
        else:
            return
        self._problem(
            f"{_format_reference(use)} may be missing: {why}", use, path, "write `| default(…)` behind it"
        )

    def _upstream(self, use: PathUse, path: Path, rest: list[Any], node_id: str | None) -> None:
        gate = None if node_id is None else self.requires.get(node_id)
        if gate is None:
            if node_id not in self.unresolved:
                self._problem("there is no upstream here: the node depends on nothing", use, path)
            return
        leaves = gate.leaves()
        if (gate.kind is GateKind.ALL and len(leaves) > 1) or is_group_start(leaves[0].node):
            hint = f"name the node: nodes.{self.edges.sources(str(node_id))[0]}.output"
            self._problem("upstream is one node, and this one waits for several", use, path, hint)
            return
        if not self._key(rest, _UPSTREAM_KEYS, use, path, "upstream has") or rest[0] in _ALWAYS_READABLE:
            return
        self._check_sources(list(dict.fromkeys(leaf.node for leaf in leaves)), use, path, rest)

    def _check_sources(self, sources: list[str], use: PathUse, path: Path, rest: list[Any]) -> None:
        """Check that each node that may be `upstream` gives the value; report the first that does not."""
        # With a default, it is enough that one of them gives the key.
        if use.guarded and any(self._has_output_key(source, rest) for source in sources):
            return
        for source in sources:
            if not self._output_key(source, rest, use, path):
                return
            if source in self.may_fail and not use.guarded:
                message = f"{_format_reference(use)} may be missing: {source!r} may fail (allow_failure)"
                self._problem(message, use, path, "write `| default(…)` behind it")
                return

    def _has_output_key(self, source: str, rest: list[JsonValue]) -> bool:
        keys = self.output_keys.get(source)
        # Earlier versions published such references, which are {}: their jobs go on.
        if self.kinds.get(source) is Kind.GROUP and rest[0] == "output" and not self.is_stored:
            return False
        return rest[0] != "output" or not rest[1:] or keys is None or rest[1] in keys

    def _output_key(self, source: str, rest: list[JsonValue], use: PathUse, path: Path) -> bool:
        if self._has_output_key(source, rest):
            return True
        if self.kinds.get(source) is Kind.GROUP:
            members = self._members(source) if self._may_hint() else ()
            examples = " or ".join(f"nodes.{member}.output" for member in islice(members, _MAX_MEMBERS))
            hint = f"name a node that is in it: {examples}" if examples else "name a node that is in it"
            self._problem(f"{source!r} is a group, and a group has no output", use, path, hint)
            return False
        keys = self.output_keys[source] or ()
        hint = did_you_mean(str(rest[1]), keys) or _listed(keys)
        self._problem(f"the output of {source!r} has no key {rest[1]!r}", use, path, hint)
        return False

    def _members(self, group: str) -> Iterator[str]:
        for node_id, one in self.edges.groups.group_of.items():
            if one == group and self.kinds.get(node_id) is not Kind.GROUP:
                yield node_id

    def _key(self, rest: list[Any], keys: tuple[str, ...], use: PathUse, path: Path, who: str) -> bool:
        if rest and rest[0] in keys:
            return True
        named = f"no {rest[0]!r}" if rest else "no value by itself: name one of its keys"
        hint = did_you_mean(str(rest[0]), keys) if rest else f"one of: {', '.join(keys)}"
        self._problem(f"{who} {named}", use, path, hint)
        return False

    def _may_hint(self) -> bool:
        # A hint costs the number of names, so a file of many mistakes gets it for the first ones only.
        return len(self.problems) < MAX_HINTS

    def _problem(
        self, message: str, use: PathUse, path: Path, hint: str = "", severity: str = "error"
    ) -> None:
        problem = self.document.problem(message, path, hint=hint, offset=use.offset, severity=severity)
        self.problems.append(problem)


def _format_reference(use: PathUse) -> str:
    return ".".join(str(key) for key in use.keys)


def _listed(keys: Iterable[str]) -> str:
    names = sorted(keys)
    return f"it has {', '.join(names[:MAX_HINTS])}" if names else "it has no keys"

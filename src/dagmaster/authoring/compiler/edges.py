"""Edges, dependency expressions, cycles and reachability of the nodes of a file.

Every mistake becomes a problem of the document, and reading continues.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.node_reader import as_gate, branch_name, read_gate
from dagmaster.authoring.schema import BranchModel, ConditionalModel, NextModel, StartModel
from dagmaster.engine.graph import Gate, GateKind, Leaf
from dagmaster.engine.groups import is_group_start, members, spell_cycle, written_name
from dagmaster.engine.topology import find_cycle, topological_order
from dagmaster.errors.suggestions import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from dagmaster.authoring.compiler.node_groups import NodeGroups
    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.errors import Problem
    from dagmaster.json_types import JsonValue

END: Final = "END"
MAX_GATE_DEPTH: Final = 16
MAX_HINTS: Final = 20
_GATES: Final = ("any_of", "all_of")
_SEPARATORS: Final = (
    (re.compile(r"\s*(?:,|&&?|\band\b)\s*|\s+"), "a list:"),
    (re.compile(r"\s*(?:\|\|?|\bor\b)\s*"), "{any_of:"),
)


class Edges:
    """The dependencies of each node, with the problems found on the way.

    `unreadable` names nodes whose targets are unknown. `unresolved` are nodes whose dependencies are unknown
    because of another problem: later checks report nothing about them.
    """

    def __init__(
        self,
        document: Document,
        groups: NodeGroups,
        unreadable: AbstractSet[str] = frozenset(),
    ) -> None:
        self.document = document
        self.groups = groups
        self.ids = groups.ids
        self.unreadable = unreadable
        self.unresolved: set[str] = {*unreadable, *groups.unresolved}
        self.known = set(groups.ids)
        self.models = groups.models
        self.problems: list[Problem] = []
        self.branch_names: dict[str, list[str]] = {}
        self.to_end: dict[str, None] = {}
        self.written: dict[str, Gate] = {}
        edges = self._edges()
        self._dependencies(edges)
        self.linked = groups.link(self.written)
        self.requires = {
            node_id: spec.requires for node_id, spec in self.linked.items() if spec.requires is not None
        }
        self.order = self._topological_order()
        self._propagate_unresolved()
        self._reachability()

    def sources(self, node_id: str) -> list[str]:
        """Return the nodes that a node depends on, as they were written: for it, or else for its group."""
        gate = self.written.get(node_id) or self.requires.get(node_id)
        names = () if gate is None else dict.fromkeys(leaf.node for leaf in gate.leaves())
        return [
            source for name in names for source in (self.sources(name) if is_group_start(name) else [name])
        ]

    # ── Edges ──

    def _edges(self) -> dict[str, list[tuple[Leaf, Path]]]:
        """Read every `next`; return the sources of the edges into each target."""
        edges: dict[str, list[tuple[Leaf, Path]]] = {}
        for node_id, model in self.models.items():
            if isinstance(model, ConditionalModel):
                self.branch_names[node_id] = self._names_of_branches(node_id, model)
                for index, branch in enumerate(model.branches):
                    path: Path = ("nodes", node_id, "branches", index, "next")
                    for target, where in self._targets(node_id, branch, path):
                        leaf = Leaf(node_id, self.branch_names[node_id][index])
                        edges.setdefault(target, []).append((leaf, where))
            elif isinstance(model, NextModel | StartModel):
                for target, where in self._targets(node_id, model, ("nodes", node_id, "next")):
                    edges.setdefault(target, []).append((Leaf(node_id), where))
        return edges

    def _targets(
        self, node_id: str, model: NextModel | StartModel | BranchModel, path: Path
    ) -> list[tuple[str, Path]]:
        value = model.next
        if value is None:
            return []
        items = value if isinstance(value, list) else [value]
        targets: dict[str, Path] = {}
        for index, item in enumerate(items):
            where = (*path, index) if isinstance(value, list) else path
            if not isinstance(item, str):
                self._problem("next is the name of a node, or a list of names", where)
            elif item not in self.known and item != END:
                meant = self._unknown_node(item, where)
                self.unresolved.update([meant] if meant else [])
            elif item in targets:
                self._problem(f"node {item!r} is named twice", where)
            else:
                targets[item] = where
        if END in targets and END not in self.known:
            # It needs no declared END: it only marks the result.
            self.to_end[node_id] = None
        return list(targets.items())

    def _names_of_branches(self, node_id: str, model: ConditionalModel) -> list[str]:
        names: list[str] = []
        for index, branch in enumerate(model.branches):
            name = branch_name(branch.name, index, is_default=branch.default)
            if name in names and not (branch.default and branch.name is None):
                self._problem(f"branch {name!r} appears twice", ("nodes", node_id, "branches", index))
            names.append(name)
        defaults = [index for index, branch in enumerate(model.branches) if branch.default]
        for index in defaults[1:]:
            self._problem("a conditional has one default", ("nodes", node_id, "branches", index))
        return names

    # ── Dependency expressions ──

    def _dependencies(self, edges: Mapping[str, list[tuple[Leaf, Path]]]) -> None:
        for node_id, model in self.models.items():
            incoming = edges.get(node_id, [])
            written = getattr(model, "depends_on", None)
            if isinstance(model, StartModel):
                for leaf, where in incoming:
                    self._problem(f"nothing leads to the start: remove the edge from {leaf.node!r}", where)
            elif written is not None:
                if self._is_gate(written, ("nodes", node_id, "depends_on"), 0):
                    self.written[node_id] = as_gate(read_gate(written))
                    self._edges_are_named(node_id, incoming)
                else:
                    self.unresolved.add(node_id)
            elif incoming:
                self.written[node_id] = Gate(GateKind.JOIN, tuple(leaf for leaf, _ in incoming))

    def _edges_are_named(self, node_id: str, incoming: list[tuple[Leaf, Path]]) -> None:
        named = set(self.written[node_id].leaves())
        for leaf, where in incoming:
            if leaf in named or Leaf(leaf.node) in named:
                continue
            source = leaf.node if leaf.branch is None else f"{leaf.node}.{leaf.branch}"
            self._problem(
                f"{node_id!r} has depends_on, which does not name {source!r}: this edge would have no effect",
                where,
                hint=f"add {source!r} to depends_on of {node_id!r}, or remove it here",
            )

    def _is_gate(self, value: JsonValue, path: Path, depth: int) -> bool:
        """Return whether a dependency expression is right; report what is wrong in it."""
        if depth > MAX_GATE_DEPTH:
            self._problem(f"dependencies nest at most {MAX_GATE_DEPTH} deep", path)
            return False
        if isinstance(value, str):
            return self._is_leaf(value, path)
        if isinstance(value, list):
            places: list[Path] = [(*path, index) for index in range(len(value))]
            return self._are_members(GateKind.ALL, value, path, places, depth)
        if not isinstance(value, dict):
            self._problem("depends_on is a node, a list of nodes, or {any_of: […]} or {all_of: […]}", path)
            return False
        wrong = next((key for key in value if key not in _GATES), None)
        if wrong is not None:
            self._problem(
                f"unknown key {wrong!r}", (*path, wrong), at_key=True, hint=did_you_mean(wrong, _GATES)
            )
            return False
        if len(value) != 1:
            self._problem("write one of any_of, all_of here; nest the other inside it", path)
            return False
        key, inner = next(iter(value.items()))
        where = (*path, key)
        if not isinstance(inner, list):
            return self._are_members(key, [inner], where, [where], depth)
        return self._are_members(key, inner, where, [(*where, index) for index in range(len(inner))], depth)

    def _are_members(self, kind: str, values: list[Any], path: Path, places: list[Path], depth: int) -> bool:
        if not values:
            self._problem(f"{kind} is empty: name at least one node", path)
            return False
        # All of them: each mistake is reported.
        are_right = [self._is_gate(value, at, depth + 1) for value, at in zip(values, places, strict=True)]
        return all(are_right)

    def _is_leaf(self, text: str, path: Path) -> bool:
        node, dot, branch = text.partition(".")
        if node not in self.known or " " in text:
            self._unknown_node(text if " " in text else node, path)
            return False
        if not dot:
            return True
        names = self.branch_names.get(node)
        if names is not None and branch in names:
            return True
        if node in self.unreadable:
            return False
        if names is None:
            hint = "write the name of the node alone"
            self._problem(f"{node!r} is not a conditional: it has no branch {branch!r}", path, hint=hint)
        else:
            self._problem(f"{node!r} has no branch {branch!r}", path, hint=did_you_mean(branch, names))
        return False

    # ── The whole ──

    def _topological_order(self) -> list[str]:
        """Sort the nodes topologically; report the cycles if there are any."""
        sources = {
            node_id: list(dict.fromkeys(leaf.node for leaf in gate.leaves()))
            for node_id, gate in self.requires.items()
        }
        ids = list(self.linked)
        order = topological_order(ids, sources)
        left = set(ids).difference(order)
        self.unresolved |= left
        for _ in range(MAX_HINTS):
            if not left:
                break
            tangled = {node_id: sources[node_id] for node_id in ids if node_id in left}
            cycle = find_cycle(tangled)
            self._problem(
                f"cycle: {spell_cycle(cycle, self.linked)}",
                self.groups.place(written_name(cycle[0])),
                at_key=True,
                hint="remove one of these dependencies to break the cycle",
            )
            left = left.difference(cycle)
            tangled = {
                node_id: [target for target in tangled[node_id] if target in left] for node_id in tangled
            }
            left = left.difference(
                topological_order([node_id for node_id in tangled if node_id in left], tangled)
            )
        return order

    def _propagate_unresolved(self) -> None:
        """Mark followers of unresolved nodes; without edges, a node may follow an unreadable one."""
        if self.unreadable:
            starts = (node_id for node_id, model in self.models.items() if isinstance(model, StartModel))
            self.unresolved |= self.known.difference(self.requires, starts)
        for node_id in self.order:
            gate = self.requires.get(node_id)
            if gate is not None and any(leaf.node in self.unresolved for leaf in gate.leaves()):
                self.unresolved.add(node_id)

    def _reachability(self) -> None:
        starts = [node_id for node_id, model in self.models.items() if isinstance(model, StartModel)]
        for extra in starts[1:]:
            hint = "a start may lead to several nodes: next: [a, b]"
            self._problem(
                f"a workflow has one start: {starts[0]!r} is it", ("nodes", extra), at_key=True, hint=hint
            )
        if not starts:
            return
        reached = {*starts, *self.unresolved}
        for node_id in self.order:
            gate = self.requires.get(node_id)
            if gate is not None and any(leaf.node in reached for leaf in gate.leaves()):
                reached.add(node_id)
        for node_id in self.ids:
            # Of a group, its nodes are reported.
            if node_id not in reached and not members(self.linked[node_id]):
                self._problem(
                    f"node {node_id!r} cannot be reached from {starts[0]!r}",
                    ("nodes", node_id),
                    at_key=True,
                    hint="add it to the next of a node before it, or give it depends_on",
                )

    def _unknown_node(self, name: str, path: Path) -> str | None:
        """Report an unknown node, with the nearest name."""
        # A hint costs the number of nodes, so a file of many mistakes gets it for the first ones only.
        if len(self.problems) >= MAX_HINTS:
            self._problem(f"unknown node {name!r}", path)
            return None
        hint = self._hint_for_several(name)
        if hint:
            self._problem(f"unknown node {name!r}", path, hint=hint)
            return None
        self._problem(f"unknown node {name!r}", path, hint=did_you_mean(name, self.known))
        return nearest(name, self.known)

    def _hint_for_several(self, text: str) -> str:
        """Return how to write several nodes, if the text names several: `x, y`, `x and y`, `x or y`."""
        for separator, written in _SEPARATORS:
            names = separator.split(text.strip())
            if len(names) > 1 and all(name.partition(".")[0] in self.known for name in names):
                return f"write {written} [{', '.join(names)}]" + "}" * written.startswith("{")
        return ""

    def _problem(self, message: str, path: Path, *, at_key: bool = False, hint: str = "") -> None:
        self.problems.append(self.document.problem(message, path, at_key=at_key, hint=hint))

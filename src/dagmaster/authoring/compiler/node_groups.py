"""The groups of a file: which nodes are in them, and what a node waits for because of its group.

A `group:` that names no node declares the group. Every mistake becomes a problem of the document.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dagmaster.authoring.schema import GroupModel
from dagmaster.engine.graph import GroupSpec, Spec
from dagmaster.engine.groups import link_groups
from dagmaster.errors.suggestions import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dagmaster.authoring.schema import AnyNodeModel
    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.engine.graph import Gate
    from dagmaster.errors import Problem

_MAX_HINTS: Final = 20


class NodeGroups:
    """The groups of a file: `ids` and `models` include those that a `group:` declares."""

    def __init__(
        self,
        document: Document,
        ids: list[str],
        models: Mapping[str, AnyNodeModel],
        unreadable: Collection[str],
    ) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self.group_of: dict[str, str] = {}
        # Nodes whose group is unknown: that is reported already.
        self.unresolved: set[str] = set()
        self.ids = ids
        self.models = models
        # Where a group is declared that has no entry itself.
        self.places: dict[str, Path] = {}
        named = {
            node_id: group for node_id, model in models.items() if (group := getattr(model, "group", None))
        }
        if named:
            self._read(named, unreadable)

    def place(self, node_id: str) -> Path:
        return self.places.get(node_id, ("nodes", node_id))

    def link(self, requires: Mapping[str, Gate]) -> dict[str, Spec]:
        specs = {
            node_id: (GroupSpec if isinstance(self.models.get(node_id), GroupModel) else Spec)(
                id=node_id, requires=requires.get(node_id), group=self.group_of.get(node_id)
            )
            for node_id in self.ids
        }
        return link_groups(specs, {})

    def _read(self, named: Mapping[str, str], unreadable: Collection[str]) -> None:
        known = set(self.ids)
        declared = [node_id for node_id, model in self.models.items() if isinstance(model, GroupModel)]
        for node_id, group in named.items():
            where: Path = ("nodes", node_id, "group")
            if group in unreadable:
                self.unresolved.add(node_id)
                continue
            if group not in known:
                if group not in self.places:
                    self._declare(group, where, declared)
            elif group not in self.places and not isinstance(self.models.get(group), GroupModel):
                hint = (
                    did_you_mean(group, declared)
                    or f"give {group!r} another name, or write `type: group` there"
                )
                self._problem(f"{group!r} is a {self.models[group].type}, not a group", where, hint=hint)
                self.unresolved.add(node_id)
                continue
            self.group_of[node_id] = group
        self._check_containment(named)
        if self.places:
            self._insert_declared()

    def _declare(self, group: str, where: Path, declared: list[str]) -> None:
        self.places[group] = where
        if "__" in group:
            hint = f"for example: {re.sub('__+', '_', group)}"
            self._problem("the name of a group has no '__': that is how children are named", where, hint=hint)
            return
        near = nearest(group, declared) if len(self.problems) < _MAX_HINTS else None
        if near is not None:
            message = f"group {group!r} is declared here, and {near!r} is another group"
            hint = f"did you mean {near!r}? Else add {group}: {{type: group}} under nodes:"
            self.problems.append(self.document.problem(message, where, hint=hint, severity="warning"))

    def _check_containment(self, named: Mapping[str, str]) -> None:
        checked: set[str] = set()
        for node_id in named:
            path = {node_id: None}
            inner = node_id
            while (
                (group := self.group_of.get(inner)) is not None and group not in path and group not in checked
            ):
                path[group] = None
                inner = group
            if group in path:
                names = list(path)
                spelled = " → ".join([*names[names.index(group) :], group])
                self._problem(f"group {group!r} contains itself: {spelled}", ("nodes", group, "group"))
                del self.group_of[inner]
                self.unresolved.add(inner)
            checked.update(path)

    def _insert_declared(self) -> None:
        """Put each group that has no entry itself before the first node that is in it."""
        ids: dict[str, None] = {}
        models: dict[str, AnyNodeModel] = {}
        for node_id in self.ids:
            group = self.group_of.get(node_id)
            for new in (group, node_id) if group in self.places else (node_id,):
                if new not in ids:
                    ids[new] = None
                    models |= {new: self.models[new]} if new in self.models else {}
                    if new in self.places:
                        models[new] = GroupModel(type="group")
        self.ids, self.models = list(ids), models

    def _problem(self, message: str, path: Path, *, hint: str = "") -> None:
        self.problems.append(self.document.problem(message, path, hint=hint))

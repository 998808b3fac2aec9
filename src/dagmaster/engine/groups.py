"""Groups of nodes, as nodes.

A group is one node, which completes when every member is finished: a join. A member may be a group. What a group waits
for, every member waits for: one leaf, the `entry` of the group. If that is more than one dependency, a node `x__start`
joins them, so that a group of m nodes behind n dependencies has m + n edges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import Gate, GateKind, GroupSpec, Leaf

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dagmaster.engine.graph import Spec

START_SUFFIX: Final = "__start"


def with_leaf(requires: Gate | None, leaf: Leaf | None) -> Gate | None:
    """Return a dependency expression that needs this leaf, too."""
    if leaf is None:
        return requires
    if requires is None:
        return Gate(GateKind.ALL, (leaf,))
    if requires.kind is GateKind.ALL:
        return requires if leaf in requires.members else Gate(GateKind.ALL, (*requires.members, leaf))
    return Gate(GateKind.ALL, (requires, leaf))


def with_members(group: GroupSpec, members: Iterable[str]) -> GroupSpec:
    """Return a group with further members."""
    leaves: tuple[Gate | Leaf, ...] = tuple(map(Leaf, members))
    if group.requires is not None and group.requires.kind is GateKind.JOIN:
        leaves = (*group.requires.members, *leaves)
    return replace(group, requires=Gate(GateKind.JOIN, leaves)) if leaves else group


def link_groups(specs: Mapping[str, Spec], existing: Mapping[str, Spec]) -> dict[str, Spec]:
    """Return specs whose dependencies include those of their groups, and the start nodes and groups that change.

    `specs` have the dependencies that were written. Their groups are among them, or exist already.
    """
    return _GroupLinker(specs, existing).link()


class _GroupLinker:
    """Links the nodes of one batch to their groups."""

    def __init__(self, specs: Mapping[str, Spec], existing: Mapping[str, Spec]) -> None:
        self.specs = specs
        self.existing = existing
        self.linked: dict[str, Spec] = {}
        self.entries: dict[str, Leaf | None] = {}
        self.members: dict[str, list[str]] = {}

    def link(self) -> dict[str, Spec]:
        for spec in self.specs.values():
            if spec.group is not None:
                self.members.setdefault(spec.group, []).append(spec.id)
        for spec in self.specs.values():
            self.linked[spec.id] = self._link_one(spec)
        for group_id in self.members:
            if group_id not in self.specs:
                self.linked[group_id] = with_members(self._group(group_id), self.members[group_id])
        return self.linked

    def _link_one(self, spec: Spec) -> Spec:
        if isinstance(spec, GroupSpec):
            entry = self._entry(spec.id)
            empty = replace(spec, requires=with_leaf(None, entry), entry=entry)
            return with_members(empty, self.members.get(spec.id, ()))
        if spec.group is None:
            return spec
        return replace(spec, requires=with_leaf(spec.requires, self._entry(spec.group)))

    def _entry(self, group_id: str | None) -> Leaf | None:
        if group_id is None:
            return None
        if group_id not in self.entries:
            group = self._group(group_id)
            self.entries[group_id] = self._new_entry(group) if group_id in self.specs else group.entry
        return self.entries[group_id]

    def _new_entry(self, group: GroupSpec) -> Leaf | None:
        requires = with_leaf(group.requires, self._entry(group.group))
        if requires is None:
            return None
        if len(requires.members) == 1 and isinstance(requires.members[0], Leaf):
            return requires.members[0]
        start = f"{group.id}{START_SUFFIX}"
        self.linked[start] = GroupSpec(id=start, requires=requires)
        return Leaf(start)

    def _group(self, group_id: str) -> GroupSpec:
        group = self.specs.get(group_id) or self.existing[group_id]
        assert isinstance(group, GroupSpec)  # noqa: S101 - for mypy; checked before
        return group

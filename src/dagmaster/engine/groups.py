"""Groups of nodes, as nodes.

A group is one node, which completes when every member is finished: a join. A member may be a group. What a
group waits for, every member waits for: one leaf, the `entry` of the group. If that is more than one
dependency, a node `x__start` joins them, so that a group of m nodes behind n dependencies has m + n edges. A
member that depends on another member needs no such leaf: the other one has it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import Gate, GateKind, GroupSpec, Leaf, WaitSpec
from dagmaster.engine.status import NOT_BEGUN_MEMBER, NodeStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from dagmaster.engine.graph import Spec, Wiring

START_SUFFIX: Final = "__start"


def is_group_start(node_id: str) -> bool:
    """Return whether a node joins the dependencies of a group: no author wrote it."""
    return node_id.endswith(START_SUFFIX)


def written_name(node_id: str) -> str:
    """Return the name that an author wrote: of a group, for the node that joins its dependencies."""
    return node_id.removesuffix(START_SUFFIX)


def has_members(spec: Spec) -> bool:
    is_filled = (
        isinstance(spec, GroupSpec) and spec.requires is not None and spec.requires.kind is GateKind.JOIN
    )
    return is_filled and not is_group_start(spec.id)


def members(spec: Spec) -> list[str]:
    return [leaf.node for leaf in spec.leaves()] if has_members(spec) else []


def all_members(specs: Mapping[str, Spec], group_id: str) -> Iterator[str]:
    """Yield the members of a group at any depth, without the groups among them."""
    pending = [group_id]
    while pending:
        node_id = pending.pop()
        if isinstance(specs[node_id], GroupSpec):
            pending += members(specs[node_id])[::-1]
        else:
            yield node_id


def result_nodes(specs: Mapping[str, Spec], last: Collection[str]) -> tuple[str, ...]:
    followed = frozenset(
        leaf.node for spec in specs.values() if not has_members(spec) for leaf in spec.leaves()
    )
    chosen = {node_id for node_id in last if not isinstance(specs[node_id], GroupSpec)}
    for group_id in {node_id for node_id in last if isinstance(specs[node_id], GroupSpec)}:
        chosen |= {
            member for member in all_members(specs, group_id) if _is_last(member, group_id, specs, followed)
        }
    return tuple(node_id for node_id in specs if node_id in chosen)


def _is_last(member: str, group_id: str, specs: Mapping[str, Spec], followed: frozenset[str]) -> bool:
    """Return whether nothing depends on a member of a group, or on an inner group that the member is in."""
    inner = [*groups_of(specs, member)]
    return followed.isdisjoint([member, *inner[: inner.index(group_id)]])


def last_nodes(specs: Mapping[str, Spec], wiring: Wiring) -> Iterator[str]:
    """Yield the nodes that nothing waits for, nor for a group that they are in; no groups and no waits."""
    for node_id, spec in specs.items():
        if not isinstance(spec, GroupSpec | WaitSpec) and not _is_followed(node_id, specs, wiring):
            yield node_id


def _is_followed(node_id: str, specs: Mapping[str, Spec], wiring: Wiring) -> bool:
    place: str | None = node_id
    while place is not None:
        group = specs[place].group
        if any(dependent.node != group for dependent in wiring.dependents.get(place, ())):
            return True
        place = group
    return False


def groups_of(specs: Mapping[str, Spec], node_id: str) -> Iterator[str]:
    """Yield the groups that a node is in, innermost first."""
    group = specs[node_id].group
    while group is not None:
        yield group
        group = specs[group].group


def begun_groups(specs: Mapping[str, Spec], statuses: Iterable[tuple[str, NodeStatus]]) -> frozenset[str]:
    """Return the groups with a member that has begun, at any depth.

    It costs the nodes and groups, not their depth.
    """
    begun: set[str] = set()
    for node_id, status in statuses:
        spec = specs.get(node_id)
        if spec is None or spec.group is None or status in NOT_BEGUN_MEMBER or isinstance(spec, GroupSpec):
            continue
        for group_id in groups_of(specs, node_id):
            if group_id in begun:
                break
            begun.add(group_id)
    return frozenset(begun)


def shown_status(node_id: str, status: NodeStatus, begun: Collection[str]) -> NodeStatus:
    """Return the status to show: a group is stored as PENDING until all its members have ended."""
    return NodeStatus.RUNNING if status is NodeStatus.PENDING and node_id in begun else status


def with_leaf(requires: Gate | None, leaf: Leaf | None) -> Gate | None:
    """Return a dependency expression that also needs this leaf."""
    if leaf is None:
        return requires
    if requires is None:
        return Gate(GateKind.ALL, (leaf,))
    if requires.kind is GateKind.ALL:
        return requires if leaf in requires.members else Gate(GateKind.ALL, (*requires.members, leaf))
    return Gate(GateKind.ALL, (requires, leaf))


def with_members(group: GroupSpec, members: Iterable[str]) -> GroupSpec:
    leaves: tuple[Gate | Leaf, ...] = tuple(map(Leaf, members))
    if group.requires is not None and group.requires.kind is GateKind.JOIN:
        leaves = (*group.requires.members, *leaves)
    return replace(group, requires=Gate(GateKind.JOIN, leaves)) if leaves else group


def without_members(group: GroupSpec, names: Collection[str]) -> GroupSpec:
    leaves = tuple(Leaf(member) for member in members(group) if member not in names)
    return replace(group, requires=Gate(GateKind.JOIN, leaves) if leaves else with_leaf(None, group.entry))


def link_groups(specs: Mapping[str, Spec], existing: Mapping[str, Spec]) -> dict[str, Spec]:
    """Return specs with the dependencies of their groups, and the start nodes and groups that change.

    `specs` have the dependencies that were written. Their groups are among them, or exist already.
    """
    if not any(spec.group is not None or isinstance(spec, GroupSpec) for spec in specs.values()):
        return dict(specs)
    return _GroupLinker(specs, existing).link()


def spell_cycle(cycle: Sequence[str], specs: Mapping[str, Spec]) -> str:
    """Spell out a cycle as its nodes were written, with the dependencies that nodes have from groups."""
    names = list(dict.fromkeys(map(written_name, cycle)))
    inherited = [
        f"{target} is in the group {group}, which depends on {source}"
        for source, target in zip([names[-1], *names], names, strict=False)
        if (group := _inherited_from(target, source, specs)) is not None
    ]
    return " → ".join([*names, names[0]]) + (f" ({'; '.join(inherited)})" if inherited else "")


def _inherited_from(target: str, source: str, specs: Mapping[str, Spec]) -> str | None:
    """Return the group through which a node depends on another one; None if it does not."""
    for group_id in groups_of(specs, target):
        group = specs[group_id]
        start = specs.get(f"{group_id}{START_SUFFIX}")
        leaves = start.leaves() if start is not None else []
        if isinstance(group, GroupSpec) and group.entry is not None:
            leaves.append(group.entry)
        if source in {leaf.node for leaf in leaves}:
            return group_id
    return None


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
        return replace(spec, requires=self._with_entry(spec))

    def _entry(self, group_id: str | None) -> Leaf | None:
        if group_id is None:
            return None
        # The outermost first, and no recursion: groups may be nested deeper than Python's stack.
        unknown: list[GroupSpec] = []
        outer: str | None = group_id
        while outer is not None and outer not in self.entries:
            unknown.append(self._group(outer))
            outer = unknown[-1].group if outer in self.specs else None
        for group in reversed(unknown):
            self.entries[group.id] = self._new_entry(group) if group.id in self.specs else group.entry
        return self.entries[group_id]

    def _with_entry(self, spec: Spec) -> Gate | None:
        """Return what a member waits for: its own dependencies, and its group's."""
        requires = spec.requires
        if spec.group is None or (requires is not None and self._waits_for_member(requires, spec.group)):
            return requires
        return with_leaf(requires, self._entry(spec.group))

    def _waits_for_member(self, requires: Gate | Leaf, group_id: str) -> bool:
        """Return whether a member of the group must complete before a node with these dependencies starts."""
        if isinstance(requires, Leaf):
            return self._is_in(requires.node, group_id)
        if requires.kind is not GateKind.ALL and len(requires.members) > 1:
            return False
        return any(self._waits_for_member(member, group_id) for member in requires.members)

    def _is_in(self, node_id: str, group_id: str) -> bool:
        group = self._spec(node_id).group
        while group is not None and group != group_id:
            group = self._spec(group).group
        return group is not None

    def _new_entry(self, group: GroupSpec) -> Leaf | None:
        requires = self._with_entry(group)
        if requires is None:
            return None
        leaves = set(requires.leaves())
        if len(leaves) == 1:
            return leaves.pop()
        start = f"{group.id}{START_SUFFIX}"
        self.linked[start] = GroupSpec(id=start, requires=requires, added_by=group.added_by)
        return Leaf(start)

    def _group(self, group_id: str) -> GroupSpec:
        group = self._spec(group_id)
        assert isinstance(group, GroupSpec)  # noqa: S101 - for mypy; checked before
        return group

    def _spec(self, node_id: str) -> Spec:
        return self.specs.get(node_id) or self.existing[node_id]

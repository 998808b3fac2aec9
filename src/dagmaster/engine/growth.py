"""Graphs that grow: nodes, groups and dependencies that are added to the graph of one job.

A batch is added as a whole or not at all. What it may not be is decided here: a name that is in use, a
reference to nothing, a cycle, a dependency of a node that has started, or one on a node that can never
complete. A job that is ending starts nothing, but a task that succeeds may still add to it: a resume runs
what was added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from dagmaster.engine.fanout import reset
from dagmaster.engine.gates import BROKEN
from dagmaster.engine.graph import GroupSpec, Leaf, Spec, Wiring
from dagmaster.engine.groups import (
    has_members,
    link_groups,
    members,
    spell_cycle,
    with_leaf,
    with_members,
    without_members,
)
from dagmaster.engine.model import is_dormant, is_unsuccessful, leaf_outcome
from dagmaster.engine.stand_ins import Edges, LiveEdges, update_stand_ins
from dagmaster.engine.status import NodeStatus
from dagmaster.engine.topology import find_cycle, topological_order
from dagmaster.engine.transitions import NODE_MOVES, Move
from dagmaster.errors import NodesRejected

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from dagmaster.engine.graph import Graph
    from dagmaster.engine.model import Job, Node


@dataclass(frozen=True, slots=True)
class NodeBatch:
    """Nodes and groups to add, with their dependencies; `links`: new dependencies of existing nodes."""

    numbers: tuple[int, ...]
    specs: tuple[Spec, ...]
    links: tuple[tuple[str, Leaf], ...] = ()

    def merge(self, more: NodeBatch) -> NodeBatch:
        """Return both as one batch, which is added as a whole."""
        return NodeBatch(self.numbers + more.numbers, self.specs + more.specs, self.links + more.links)


class Growth(NamedTuple):
    """What a batch changed in a job: its new nodes, and existing ones whose dependencies changed.

    Not groups that had members and got more: they also wait for the new ones.
    """

    new: list[Node]
    changed: list[Node]


def grow_graph(graph: Graph, batches: Iterable[NodeBatch]) -> Graph:
    """Return a new graph with the nodes of batches that were checked before."""
    specs, wiring = dict(graph.specs), graph.wiring.copy()
    for batch in batches:
        left = _left_groups(specs, batch)
        filled = _filled_groups(specs, batch, left)
        known = {**specs, **left} if left else specs
        _put_all(specs, wiring, left | _link(known, batch, _kept_members(specs, batch)), filled)
    return replace(graph, specs=specs, wiring=wiring)


def grow_job(job: Job, batch: NodeBatch) -> Growth:
    """Add a batch to a job, or raise `NodesRejected` and change nothing."""
    if job.superseded:
        linked, left, kept = _check_reused(job, batch)
    else:
        linked, left, kept = check_batch(job.graph.specs, batch, job.graph.wiring), {}, {}
    _check_statuses(job, batch, linked)
    graph = job.own_graph()
    assert isinstance(graph.specs, dict)  # noqa: S101 - for mypy; a job's own graph can be changed
    filled = _filled_groups(graph.specs, batch, left)
    _put_all(graph.specs, graph.wiring, linked, filled)
    growth, reused = Growth([], []), []
    nodes = job.nodes
    for node_id, spec in linked.items():
        if node_id not in nodes:
            growth.new.append(job.put(spec))
        elif node_id in filled or (node_id in left and is_dormant(nodes[node_id])):
            # Its count of settled members stays.
            nodes[node_id].spec = spec
        elif is_dormant(nodes[node_id]):
            reused.append(node_id)
            growth.new.append(_reuse_name(job, spec))
        else:
            growth.changed.append(job.put(spec))
    if reused:
        _recount_dependents(job, growth, reused, [member for members in kept.values() for member in members])
    return growth


def _check_reused(
    job: Job, batch: NodeBatch
) -> tuple[dict[str, Spec], dict[str, Spec], dict[str, list[str]]]:
    """Return the specs to put into a graph with superseded nodes, the groups that are left, and kept members.

    Names of superseded nodes are free, and nothing can refer to them.
    """
    specs, live = job.graph.specs, _LiveSpecs(job)
    _check_names(live, batch)
    left, kept = _left_groups(specs, batch), _kept_members(specs, batch)
    linked = left | _link({**specs, **left} if left else specs, batch, kept)
    reused = {spec.id for spec in batch.specs if spec.id in specs}
    _check_cycles(live, batch, linked, LiveEdges(job, reused), reused)
    return linked, left, kept


class _LiveSpecs(Mapping[str, Spec]):
    """The specs of a job without superseded nodes: nothing can refer to these, and their names are free."""

    def __init__(self, job: Job) -> None:
        self._specs, self._nodes = job.graph.specs, job.nodes

    def __getitem__(self, node_id: str) -> Spec:
        if is_dormant(self._nodes[node_id]):
            raise KeyError(node_id)
        return self._specs[node_id]

    def __iter__(self) -> Iterator[str]:
        return (node_id for node_id in self._specs if not is_dormant(self._nodes[node_id]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _left_groups(specs: Mapping[str, Spec], batch: NodeBatch) -> dict[str, Spec]:
    """Return the groups without the members that are added again: these may be in other groups now."""
    left: dict[str, set[str]] = {}
    new: set[str] | None = None
    for spec in batch.specs:
        old = specs.get(spec.id)
        if old is not None and old.group is not None:
            new = {one.id for one in batch.specs} if new is None else new
            if old.group not in new:
                left.setdefault(old.group, set()).add(spec.id)
    groups = {group: specs[group] for group in left}
    return {
        name: without_members(group, left[name])
        for name, group in groups.items()
        if isinstance(group, GroupSpec)
    }


def _kept_members(specs: Mapping[str, Spec], batch: NodeBatch) -> dict[str, list[str]]:
    """Return the members that stay in groups that are added again: those that are not added again."""
    groups = [spec.id for spec in batch.specs if isinstance(spec, GroupSpec) and spec.id in specs]
    new = {spec.id for spec in batch.specs} if groups else set()
    return {
        group: [
            member for member in members(specs[group]) if member not in new and specs[member].group == group
        ]
        for group in groups
    }


def _reuse_name(job: Job, spec: Spec) -> Node:
    """Put a new node in the place of a superseded one. Its attempts continue, as in every new run."""
    node = job.put(spec)
    node.status = NODE_MOVES[node.status][Move.REOPEN]
    reset(node)
    job.open += 1
    job.changed.append(node)
    return node


def _recount_dependents(job: Job, growth: Growth, reused: Sequence[str], kept: Sequence[str]) -> None:
    """Count the leaves again of nodes that waited for superseded ones: reused names, and other stand-ins."""
    counted = {node.id for node in (*growth.new, *growth.changed)}
    for node_id in (*reused, *update_stand_ins(job, reused, kept)):
        for dependent in job.graph.wiring.dependents.get(node_id, ()):
            target = job.nodes[dependent.node]
            if target.id not in counted and target.status is NodeStatus.PENDING:
                counted.add(target.id)
                job.counts.pop(target.id, None)
                growth.changed.append(target)


def check_batch(specs: Mapping[str, Spec], batch: NodeBatch, wiring: Wiring | None = None) -> dict[str, Spec]:
    """Return the specs to put into a graph, or raise `NodesRejected`."""
    _check_names(specs, batch)
    linked = _link(specs, batch)
    _check_cycles(specs, batch, linked, Edges(wiring or Wiring(specs.values())))
    return linked


def _filled_groups(
    specs: Mapping[str, Spec], batch: NodeBatch, left: Collection[str]
) -> dict[str, list[str]]:
    """Return the new members of the groups that have members already, but of those that members have left."""
    filled: dict[str, list[str]] = {}
    new = {spec.id for spec in batch.specs if isinstance(spec, GroupSpec)}
    for spec in batch.specs:
        group = spec.group
        if group is None or group in new or group in left:
            continue
        if group in specs and has_members(specs[group]):
            filled.setdefault(group, []).append(spec.id)
    return filled


def _put_all(
    specs: dict[str, Spec], wiring: Wiring, linked: Mapping[str, Spec], filled: Mapping[str, Sequence[str]]
) -> None:
    wiring.remove([specs[node_id] for node_id in linked if node_id in specs and node_id not in filled])
    for node_id, spec in linked.items():
        if node_id in filled:
            wiring.add_members(node_id, filled[node_id])
        else:
            wiring.add(spec)
        specs[node_id] = spec


def _link(
    specs: Mapping[str, Spec], batch: NodeBatch, kept: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Spec]:
    new = {spec.id: spec for spec in batch.specs}
    for target, leaf in batch.links:
        if target in new:
            new[target] = replace(new[target], requires=with_leaf(new[target].requires, leaf))
    linked = link_groups(new, specs)
    for group_id, others in (kept or {}).items():
        group = linked[group_id]
        assert isinstance(group, GroupSpec)  # noqa: S101 - for mypy
        linked[group_id] = with_members(group, others)
    for target, leaf in batch.links:
        if target not in new:
            spec = linked.get(target) or specs[target]
            linked[target] = replace(spec, requires=with_leaf(spec.requires, leaf))
    return linked


def _check_names(specs: Mapping[str, Spec], batch: NodeBatch) -> None:
    new = {spec.id: spec for spec in batch.specs}
    if len(new) < len(batch.specs):
        name, _ = Counter(spec.id for spec in batch.specs).most_common(1)[0]
        raise NodesRejected(f"two nodes are named {name!r}: only one can have a name", [name])
    checked: set[str] = set()
    for spec in batch.specs:
        if spec.id in specs:
            raise _name_in_use(spec, specs[spec.id])
        if spec.group is not None:
            _check_group(spec, new, specs, checked)
        for leaf in spec.leaves():
            if leaf.node not in new and leaf.node not in specs:
                raise NodesRejected(
                    f"node {spec.id!r} depends on {leaf.node!r}, which is no node of this job"
                )
    _check_links(specs, batch, new)


def _check_links(specs: Mapping[str, Spec], batch: NodeBatch, new: Mapping[str, Spec]) -> None:
    for target, leaf in batch.links:
        if target not in specs and target not in new:
            raise NodesRejected(f"{target!r} is to depend on {leaf.node!r}, and is no node of this job")
        if target not in new and isinstance(specs[target], GroupSpec):
            raise NodesRejected(
                f"group {target!r} exists already: what a group depends on is declared when it is added"
            )
        if leaf.node not in new and leaf.node not in specs:
            raise NodesRejected(
                f"node {target!r} is to depend on {leaf.node!r}, which is no node of this job"
            )


def _name_in_use(spec: Spec, existing: Spec) -> NodesRejected:
    message = f"the job has a node {spec.id!r} already: give the new one another name"
    if spec.added_by is not None and spec.added_by == existing.added_by:
        message = (
            f"the job has a node {spec.id!r} already, which {spec.added_by!r} added before, in this"
            " attempt or an earlier one, by a call with other content: a retry repeats the calls of at_once"
            " as they were, or gives other names. What is added without at_once is part of the job only if"
            " the attempt succeeds"
        )
    return NodesRejected(message, [spec.id])


def _check_group(spec: Spec, new: Mapping[str, Spec], specs: Mapping[str, Spec], checked: set[str]) -> None:
    """Raise `NodesRejected` if a group around a node is no group or contains itself, unless `checked`."""
    path = {spec.id: None}
    inner, group = spec.id, spec.group
    while group is not None and group not in checked:
        parent = new.get(group) or specs.get(group)
        if not isinstance(parent, GroupSpec):
            raise NodesRejected(f"node {inner!r} is in {group!r}, which is no group of this job")
        if group in path:
            raise NodesRejected(f"group {group!r} contains itself: {' → '.join([*path, group])}")
        path[group] = None
        inner, group = group, None if group in specs else parent.group
    del path[spec.id]
    checked.update(path)


def _check_cycles(
    specs: Mapping[str, Spec],
    batch: NodeBatch,
    linked: Mapping[str, Spec],
    edges: Edges,
    reused: Collection[str] = (),
) -> None:
    """Look for a cycle. It costs what is added, and the shorter way through the existing nodes."""
    # Not a node that waits for nothing: most of 100,000 do.
    affected = {
        node_id: None
        for node_id, spec in linked.items()
        if spec.requires is not None and node_id not in specs
    }
    targets = _existing_targets(specs, batch)
    # What waited for a superseded node waits for the new one of its name.
    targets |= {node_id: None for node_id in affected if node_id in reused}
    if targets and _leads_to(targets, _existing_sources(specs, batch, linked), edges):
        affected |= targets | dict.fromkeys(_descendants(targets, edges))
    sources = {
        node_id: [source for source in _sources(node_id, linked, edges) if source in affected]
        for node_id in affected
    }
    ordered = set(topological_order(affected, sources))
    if len(ordered) < len(affected):
        cycle = find_cycle({node_id: sources[node_id] for node_id in affected if node_id not in ordered})
        raise NodesRejected(f"cycle: {spell_cycle(cycle, {**specs, **linked})}", cycle)


def _existing_targets(specs: Mapping[str, Spec], batch: NodeBatch) -> dict[str, None]:
    """Return the existing nodes and groups that depend on something in the batch."""
    targets = {target: None for target, _ in batch.links if target in specs}
    groups = {spec.group: None for spec in batch.specs if spec.group is not None}
    return targets | {group: None for group in groups if group in specs}


def _existing_sources(
    specs: Mapping[str, Spec], batch: NodeBatch, linked: Mapping[str, Spec]
) -> dict[str, None]:
    """Return the existing nodes that something in the batch depends on."""
    leaves = [leaf for node_id, spec in linked.items() if node_id not in specs for leaf in spec.leaves()]
    leaves += [leaf for _, leaf in batch.links]
    return {leaf.node: None for leaf in leaves if leaf.node in specs}


def _leads_to(targets: Collection[str], sources: Collection[str], edges: Edges) -> bool:
    """Return whether a way leads from one of these nodes to one of the others.

    Both ends are searched in turn: a node that is added after a short past, or before a short future, costs
    no more.
    """
    after, before = set(targets), set(sources)
    later, earlier = list(targets), list(sources)
    while later and earlier and after.isdisjoint(earlier[-1:]) and before.isdisjoint(later[-1:]):
        following = set(edges.dependents(later.pop())) - after
        after |= following
        later += following
        preceding = set(edges.sources(earlier.pop())) - before
        before |= preceding
        earlier += preceding
    return not after.isdisjoint(before)


def _descendants(node_ids: Iterable[str], edges: Edges) -> Iterable[str]:
    seen: dict[str, None] = {}
    pending = list(node_ids)
    while pending:
        for node_id in edges.dependents(pending.pop()):
            if node_id not in seen:
                seen[node_id] = None
                pending.append(node_id)
    return seen


def _sources(node_id: str, linked: Mapping[str, Spec], edges: Edges) -> Iterable[str]:
    spec = linked.get(node_id)
    sources = edges.sources(node_id) if spec is None else (leaf.node for leaf in spec.leaves())
    return dict.fromkeys(sources)


def _check_statuses(job: Job, batch: NodeBatch, linked: Mapping[str, Spec]) -> None:
    for node in [job.nodes[node_id] for node_id in linked if node_id in job.nodes]:
        if is_dormant(node) or node.status is NodeStatus.PENDING:
            continue
        if not (job.ending and is_unsuccessful(node)):
            raise NodesRejected(
                f"{node.id!r} is {node.status}: a dependency or a member can be added only before it has"
                " started"
            )
    if not job.ending:
        _check_sources(job, batch)


def _check_sources(job: Job, batch: NodeBatch) -> None:
    new = {spec.id for spec in batch.specs}
    written = [leaf for spec in batch.specs for leaf in spec.leaves()]
    for leaf in (*written, *(leaf for _, leaf in batch.links)):
        source = None if leaf.node in new else job.nodes.get(leaf.node)
        if source is not None and leaf_outcome(source, leaf.branch) == BROKEN:
            raise NodesRejected(f"{source.id!r} is {source.status}: what depends on it could never run")

"""Graphs that grow: nodes, groups and dependencies that are added to the graph of one job.

A batch is added as a whole or not at all. What it may not be is decided here: a name that is in use, a reference to
nothing, a cycle, a dependency of a node that has started, or one on a node that can never complete. A job that is
ending starts nothing, but a task that succeeds may still add to it: a resume runs what was added.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from dagmaster.engine.fanout import reset
from dagmaster.engine.gates import BROKEN
from dagmaster.engine.graph import GroupSpec, Leaf, Wiring
from dagmaster.engine.groups import has_members, link_groups, spell_cycle, with_leaf
from dagmaster.engine.model import is_dormant, is_unsuccessful, leaf_outcome
from dagmaster.engine.status import NodeStatus
from dagmaster.engine.topology import find_cycle, topological_order
from dagmaster.engine.transitions import NODE_MOVES, Move
from dagmaster.errors import NodesRejected

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.engine.model import Job, Node


@dataclass(frozen=True, slots=True)
class NodeBatch:
    """Nodes and groups to add, with the dependencies that were written; `links` are dependencies of existing nodes."""

    numbers: tuple[int, ...]
    specs: tuple[Spec, ...]
    links: tuple[tuple[str, Leaf], ...] = ()

    def merge(self, more: NodeBatch) -> NodeBatch:
        """Return both as one batch, which is added as a whole."""
        return NodeBatch(self.numbers + more.numbers, self.specs + more.specs, self.links + more.links)


class Growth(NamedTuple):
    """What a batch changed in a job: its new nodes, and existing ones whose dependencies changed.

    Not groups that had members and got more: they wait for the new ones, too.
    """

    new: list[Node]
    changed: list[Node]


def grow_graph(graph: Graph, batches: Iterable[NodeBatch]) -> Graph:
    """Return a graph of its own with the nodes of batches that were checked before."""
    specs, wiring = dict(graph.specs), graph.wiring.copy()
    for batch in batches:
        filled = _filled_groups(specs, batch)
        for spec in _link(specs, batch).values():
            _put(specs, wiring, spec, filled)
    return replace(graph, specs=specs, wiring=wiring)


def grow_job(job: Job, batch: NodeBatch) -> Growth:
    """Add a batch to a job, or raise `NodesRejected` and change nothing."""
    linked = check_batch(_live_specs(job), batch, job.graph.wiring)
    _check_statuses(job, batch, linked)
    graph = job.own_graph()
    assert isinstance(graph.specs, dict)  # noqa: S101 - for mypy; a job's own graph can be changed
    filled = _filled_groups(graph.specs, batch)
    growth = Growth([], [])
    nodes, specs, wiring = job.nodes, graph.specs, graph.wiring
    for node_id, spec in linked.items():
        if node_id not in nodes:
            specs[node_id] = spec
            wiring.add(spec)
            growth.new.append(job.put(spec))
            continue
        _put(specs, wiring, spec, filled)
        if node_id in filled:
            # Its count of settled members stays.
            nodes[node_id].spec = spec
        elif is_dormant(nodes[node_id]):
            growth.new.append(_reuse_name(job, spec))
        else:
            growth.changed.append(job.put(spec))
    if job.superseded:
        _recount_dependents(job, growth)
    return growth


def _live_specs(job: Job) -> Mapping[str, Spec]:
    """Return the specs without those of superseded nodes: nothing can refer to them, and their names are free."""
    if not job.superseded:
        return job.graph.specs
    return {node_id: spec for node_id, spec in job.graph.specs.items() if not is_dormant(job.nodes[node_id])}


def _reuse_name(job: Job, spec: Spec) -> Node:
    """Put a new node in the place of a superseded one. Its attempts continue, as those of every new run."""
    node = job.put(spec)
    node.status = NODE_MOVES[node.status][Move.REOPEN]
    reset(node)
    job.open += 1
    job.changed.append(node)
    return node


def _recount_dependents(job: Job, growth: Growth) -> None:
    """Let the dependents of superseded nodes wait for the new ones of their names, and for no other node."""
    job.derive_superseded()
    counted = {node.id for node in (*growth.new, *growth.changed)}
    for node in growth.new:
        for dependent in job.graph.wiring.dependents.get(node.id, ()):
            target = job.nodes[dependent.node]
            if target.id not in counted and target.status is NodeStatus.PENDING:
                counted.add(target.id)
                job.counts.pop(target.id, None)
                growth.changed.append(target)


def check_batch(specs: Mapping[str, Spec], batch: NodeBatch, wiring: Wiring | None = None) -> dict[str, Spec]:
    """Return the specs to put into a graph, or raise `NodesRejected`."""
    _check_names(specs, batch)
    linked = _link(specs, batch)
    _check_cycles(specs, batch, linked, wiring or Wiring(specs.values()))
    return linked


def _filled_groups(specs: Mapping[str, Spec], batch: NodeBatch) -> dict[str, list[str]]:
    """Return the new members of the groups that have members already."""
    filled: dict[str, list[str]] = {}
    new = {spec.id for spec in batch.specs if isinstance(spec, GroupSpec)}
    for spec in batch.specs:
        group = spec.group
        if group is not None and group not in new and group in specs and has_members(specs[group]):
            filled.setdefault(group, []).append(spec.id)
    return filled


def _put(specs: dict[str, Spec], wiring: Wiring, spec: Spec, filled: Mapping[str, Sequence[str]]) -> None:
    if spec.id not in specs:
        wiring.add(spec)
    elif spec.id in filled:
        wiring.add_members(spec.id, filled[spec.id])
    else:
        wiring.replace(specs[spec.id], spec)
    specs[spec.id] = spec


def _link(specs: Mapping[str, Spec], batch: NodeBatch) -> dict[str, Spec]:
    new = {spec.id: spec for spec in batch.specs}
    for target, leaf in batch.links:
        if target in new:
            new[target] = replace(new[target], requires=with_leaf(new[target].requires, leaf))
    linked = link_groups(new, specs)
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
    for spec in batch.specs:
        if spec.id in specs:
            raise NodesRejected(f"the job has a node {spec.id!r} already: give the new one another name", [spec.id])
        if spec.group is not None:
            _check_group(spec, new, specs)
        if spec.requires is None:
            continue
        for leaf in spec.requires.leaves():
            if leaf.node not in new and leaf.node not in specs:
                raise NodesRejected(f"node {spec.id!r} depends on {leaf.node!r}, which is no node of this job")
    for target, leaf in batch.links:
        if target not in specs and target not in new:
            raise NodesRejected(f"{target!r} is to depend on {leaf.node!r}, and is no node of this job")
        if target not in new and isinstance(specs[target], GroupSpec):
            raise NodesRejected(
                f"group {target!r} exists already: what a group depends on is declared when it is added"
            )
        if leaf.node not in new and leaf.node not in specs:
            raise NodesRejected(f"node {target!r} is to depend on {leaf.node!r}, which is no node of this job")


def _check_group(spec: Spec, new: Mapping[str, Spec], specs: Mapping[str, Spec]) -> None:
    path = [spec.id]
    group = spec.group
    while group is not None:
        parent = new.get(group) or specs.get(group)
        if not isinstance(parent, GroupSpec):
            raise NodesRejected(f"node {path[-1]!r} is in {group!r}, which is no group of this job")
        if group in path:
            raise NodesRejected(f"group {group!r} contains itself: {' → '.join([*path, group])}")
        if group in specs:
            return
        path.append(group)
        group = parent.group


def _check_cycles(specs: Mapping[str, Spec], batch: NodeBatch, linked: Mapping[str, Spec], wiring: Wiring) -> None:
    """Look for a cycle. It costs what is added, and the shorter way through the existing nodes."""
    # Not a node that waits for nothing: most of 100,000 do.
    affected = {node_id: None for node_id, spec in linked.items() if spec.requires is not None and node_id not in specs}
    targets = {target: None for target, _ in batch.links if target in specs}
    targets |= {spec.group: None for spec in batch.specs if spec.group is not None and spec.group in specs}
    if targets and _leads_to(targets, _existing_sources(specs, batch, linked), wiring):
        affected |= targets | dict.fromkeys(_descendants(targets, wiring))
    sources = {
        node_id: [source for source in _sources(node_id, linked, wiring) if source in affected] for node_id in affected
    }
    order = topological_order(affected, sources)
    if len(order) < len(affected):
        left = affected.keys() - set(order)
        tangled = {node_id: sources[node_id] for node_id in affected if node_id in left}
        cycle = find_cycle(tangled)
        raise NodesRejected(f"cycle: {spell_cycle(cycle, {**specs, **linked})}", cycle)


def _existing_sources(specs: Mapping[str, Spec], batch: NodeBatch, linked: Mapping[str, Spec]) -> dict[str, None]:
    """Return the existing nodes that something in the batch depends on."""
    new = (spec for node_id, spec in linked.items() if node_id not in specs and spec.requires is not None)
    leaves = [leaf for spec in new if spec.requires is not None for leaf in spec.requires.leaves()]
    leaves += [leaf for _, leaf in batch.links]
    return {leaf.node: None for leaf in leaves if leaf.node in specs}


def _leads_to(targets: Collection[str], sources: Collection[str], wiring: Wiring) -> bool:
    """Return whether a way leads from one of these nodes to one of the others.

    Both ends are searched in turn: a node that is added after a short past, or before a short future, costs no more.
    """
    after, before = set(targets), set(sources)
    later, earlier = list(targets), list(sources)
    while later and earlier and after.isdisjoint(earlier[-1:]) and before.isdisjoint(later[-1:]):
        following = {dependent.node for dependent in wiring.dependents.get(later.pop(), ())} - after
        after |= following
        later += following
        preceding = {leaf.node for leaf, _ in wiring.leaves.get(earlier.pop(), ())} - before
        before |= preceding
        earlier += preceding
    return not after.isdisjoint(before)


def _descendants(node_ids: Iterable[str], wiring: Wiring) -> Iterable[str]:
    seen: dict[str, None] = {}
    pending = list(node_ids)
    while pending:
        for dependent in wiring.dependents.get(pending.pop(), ()):
            if dependent.node not in seen:
                seen[dependent.node] = None
                pending.append(dependent.node)
    return seen


def _sources(node_id: str, linked: Mapping[str, Spec], wiring: Wiring) -> Iterable[str]:
    spec = linked.get(node_id)
    if spec is None:
        return dict.fromkeys(leaf.node for leaf, _ in wiring.leaves.get(node_id, ()))
    return () if spec.requires is None else dict.fromkeys(leaf.node for leaf in spec.requires.leaves())


def _check_statuses(job: Job, batch: NodeBatch, linked: Mapping[str, Spec]) -> None:
    new = {spec.id for spec in batch.specs}
    for node in [job.nodes[node_id] for node_id in linked if node_id in job.nodes]:
        if is_dormant(node):
            continue
        if node.status is not NodeStatus.PENDING and not (job.ending and is_unsuccessful(node)):
            raise NodesRejected(
                f"{node.id!r} is {node.status}: a dependency or a member can be added only before it has started"
            )
    written = [leaf for spec in batch.specs if spec.requires is not None for leaf in spec.requires.leaves()]
    for leaf in (*written, *(leaf for _, leaf in batch.links)):
        source = None if leaf.node in new else job.nodes.get(leaf.node)
        if source is not None and leaf_outcome(source, leaf.branch) == BROKEN and not job.ending:
            raise NodesRejected(f"{source.id!r} is {source.status}: what depends on it could never run")

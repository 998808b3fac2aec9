"""Fingerprints: 16 bytes that identify what a result depends on. Same fingerprint, same result.

A task's fingerprint covers its handler's name, its resolved params, and its upstream results. The upstream
counts although the params were built from it: a handler may return the same path twice with different file
contents. The handler's version is unknown until a worker claims the task, so it is stored separately;
descendants count both.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import ConditionalSpec, GateKind, WaitSpec
from dagmaster.engine.model import FanOut
from dagmaster.engine.status import NodeStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagmaster.engine.model import Job, Node

SIZE: Final = 16


def digest(*parts: str | bytes) -> bytes:
    """Return a fingerprint of the parts. Length prefixes keep them apart."""
    raws = [part.encode() if isinstance(part, str) else part for part in parts]
    # In one call: a node that collects 100,000 results has 200,000 parts.
    return blake2b(b"".join([b"%d:%b" % (len(raw), raw) for raw in raws]), digest_size=SIZE).digest()


def upstream_digest(job: Job, node: Node) -> bytes:
    """Return the fingerprint of the outcomes of a node's leaves. A child has the one of its fan-out."""
    top = node.top
    leaves, gates = job.leaves(top.id), job.gates(top.id)
    if not leaves:
        return b""
    if gates[0].kind is GateKind.ANY:
        # Only the first leaf counts: the others may settle before or after it without effect.
        names: Iterable[str] = () if top.upstream is None else (top.upstream,)
    else:
        names = sorted({leaf.node for leaf, _ in leaves})
    nodes = job.nodes
    return digest(*[part for name in names for part in (name, outcome_digest(job, nodes[name]))])


def outcome_digest(job: Job, node: Node) -> bytes:
    """Return a digest of a node's outcome for its descendants.

    A node without a fingerprint is unique to its job.
    """
    if node.status is NodeStatus.COMPLETED:
        return (node.fingerprint or job.id.encode()) + (node.handler_version or "").encode()
    return f"{node.status} {node.skip_reason}".encode()


def of_engine_node(job: Job, node: Node) -> bytes:
    """Return the fingerprint of a node that the engine completed itself.

    Its values are in the params that use them.
    """
    spec = node.spec
    parts: list[str | bytes] = [spec.kind, upstream_digest(job, node)]
    if isinstance(node, FanOut):
        parts += [outcome_digest(job, child) for child in node.children[: node.expanded]]
    elif isinstance(spec, ConditionalSpec):
        parts.append(node.branch or "")
    elif isinstance(spec, WaitSpec) and spec.signal is not None:
        # A signal means that something changed, and is sent to one job: never reuse it.
        parts += [job.id, str(node.finished_seq)]
    return digest(*parts)

"""What a result is the result of, in 16 bytes: the same fingerprint, the same result.

Of a task: its handler's name, its resolved params, and what it follows. What it follows counts although the params
were made of it: a handler may give the same path twice with another file behind it. The version of a handler is not
part of it: nobody knows it before a worker took the task. It stands beside, and followers count both.
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
    """Give a fingerprint of some parts. Each is told from the next by its length."""
    made = blake2b(digest_size=SIZE)
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        made.update(b"%d:" % len(raw))
        made.update(raw)
    return made.digest()


def upstream_digest(job: Job, node: Node) -> bytes:
    """Give the fingerprint of all that a node follows: what each leaf of its gate came to. A child's: its fan-out's."""
    top = node.top
    leaves, gates = job.leaves(top.id), job.gates(top.id)
    if not leaves:
        return b""
    if gates[0].kind is GateKind.ANY:
        # It goes on with the first: the others may come before or after it, and change nothing.
        names: Iterable[str] = () if top.upstream is None else (top.upstream,)
    else:
        names = sorted({leaf.node for leaf, _ in leaves})
    return digest(*(part for name in names for part in (name, outcome_digest(job, job.nodes[name]))))


def outcome_digest(job: Job, node: Node) -> bytes:
    """Give what a node means to those that follow it. One that has no fingerprint is like no other."""
    if node.status is NodeStatus.COMPLETED:
        return (node.fingerprint or job.id.encode()) + (node.handler_version or "").encode()
    return f"{node.status} {node.skip_reason}".encode()


def of_engine_node(job: Job, node: Node) -> bytes:
    """Give the fingerprint of what the engine itself completed. Its values are in the params of who uses them."""
    spec = node.spec
    parts: list[str | bytes] = [spec.kind, upstream_digest(job, node)]
    if isinstance(node, FanOut):
        parts += [outcome_digest(job, child) for child in node.children[: node.expanded]]
    elif isinstance(spec, ConditionalSpec):
        parts.append(node.branch or "")
    elif isinstance(spec, WaitSpec) and spec.signal is not None:
        # A signal says that something is another than before, and is sent to one job.
        parts += [job.id, str(node.finished_seq)]
    return digest(*parts)

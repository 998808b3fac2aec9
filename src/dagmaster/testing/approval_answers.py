"""What a test gives as `answers=`: who answers the approvals of a workflow, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagmaster.engine.graph import ApprovalSpec
from dagmaster.errors.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagmaster.engine.graph import Graph
    from dagmaster.local.runner import Answers, ApprovalRequest

PERSON = "tester"


class NodeAnswers:
    """Answers approvals by their nodes: True approves, False rejects. The person is the first approver."""

    def __init__(self, answers: Mapping[str, bool]) -> None:
        self.answers = answers

    async def approval(self, request: ApprovalRequest) -> tuple[bool, str, str] | None:
        """Return the answer of a node, or None to leave the approval open."""
        approved = self.answers.get(request.node)
        return None if approved is None else (approved, next(iter(request.approval.approvers), PERSON), "")


def read_answers(answers: Any, graphs: Iterable[Graph]) -> Answers | None:
    """Return what answers the approvals of these graphs.

    Raise `TypeError` if it is neither a mapping of booleans nor can answer, `ValueError` about a node that is
    no approval.
    """
    if isinstance(answers, Mapping) and all(isinstance(value, bool) for value in answers.values()):
        _check_nodes(answers, graphs)
        return NodeAnswers(answers)
    if answers is None or callable(getattr(answers, "approval", None)):
        return answers  # type: ignore[no-any-return]
    raise TypeError(
        'answers= takes a mapping of approvals to True or False, as {"ok": True}, or an object with'
        " `async def approval(self, request)` that returns (approved, person, comment) or None, not"
        f" {answers!r:.100}"
    )


def _check_nodes(answers: Mapping[str, bool], graphs: Iterable[Graph]) -> None:
    specs = (spec for graph in graphs for spec in graph.specs.values())
    approvals = [spec.id for spec in specs if isinstance(spec, ApprovalSpec)]
    unknown = next((name for name in answers if name not in approvals), None)
    if unknown is not None:
        hint = did_you_mean(str(unknown), approvals) if approvals else "it has none"
        sentence = f"answers= has {unknown!r:.100}, and the workflow has no approval of that name"
        raise ValueError(f"{sentence}: {hint}" if hint else sentence)

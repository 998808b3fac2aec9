"""What a test gives as `answers=`: who answers the approvals of a workflow, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def read_answers(answers: Any) -> Answers | None:
    """Return what answers approvals; raise `TypeError` if it is neither a mapping of booleans nor can answer."""
    if isinstance(answers, Mapping) and all(isinstance(value, bool) for value in answers.values()):
        return NodeAnswers(answers)
    if answers is None or callable(getattr(answers, "approval", None)):
        return answers  # type: ignore[no-any-return]
    raise TypeError(
        'answers= takes a mapping of approvals to True or False, as {"ok": True}, or an object with'
        f" `async def approval(self, request)` that returns (approved, person, comment) or None, not {answers!r:.100}"
    )

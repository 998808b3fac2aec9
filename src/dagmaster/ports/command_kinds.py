"""The kinds of commands in a job's inbox."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class CommandKind(StrEnum):
    """What a command asks of a job. The values are stored in `dag_inbox.kind`."""

    CANCEL = "cancel"
    CANCEL_NODES = "cancel_nodes"
    """Cancel single nodes. An orchestrator of a version before schema 0008 rejects it."""
    APPROVE = "approve"
    REJECT = "reject"
    SIGNAL = "signal"
    RETRY = "retry"
    RESUME = "resume"
    ADD_NODES = "add_nodes"
    """Add a batch of nodes, which is stored already."""
    CHILD_FINISHED = "child_finished"
    """Sent by the owner of a child job to the parent job."""


RUN_AGAIN: Final[frozenset[str]] = frozenset({CommandKind.RETRY, CommandKind.RESUME})
"""Commands after which a finished job runs again."""

"""The two tables of the state machine, and the one door through which every move goes."""

from __future__ import annotations

import pytest

from dagmaster.engine.model import Node
from dagmaster.engine.status import TERMINAL_JOB, TERMINAL_NODE, JobStatus, NodeStatus
from dagmaster.engine.step import Step
from dagmaster.engine.transitions import JOB_MOVES, NODE_MOVES, Move, mermaid
from dagmaster.errors import InvalidTransition
from dagmaster.testing import a_job

STORED = set(NodeStatus) - {NodeStatus.CLAIMED}
FORBIDDEN = [(status, move) for status in sorted(STORED) for move in Move if move not in NODE_MOVES[status]]


def test_every_status_of_a_node_but_the_one_that_is_only_displayed_is_in_the_table():
    assert set(NODE_MOVES) == STORED


def test_every_status_of_a_job_but_the_one_that_is_only_shown_stands_in_the_table():
    assert set(JOB_MOVES) == set(JobStatus) - {JobStatus.WAITING}


@pytest.mark.parametrize("status", sorted(TERMINAL_NODE))
def test_only_a_new_run_moves_a_node_that_is_over(status):
    assert NODE_MOVES[status][Move.REOPEN] is NodeStatus.PENDING
    assert set(NODE_MOVES[status]) <= {"reopen", "supersede"}


@pytest.mark.parametrize("status", sorted(TERMINAL_JOB))
def test_only_a_new_run_moves_a_job_that_is_over(status):
    assert JOB_MOVES[status] == {Move.REOPEN: JobStatus.RUNNING}


@pytest.mark.parametrize("status", sorted(STORED - TERMINAL_NODE))
def test_every_open_node_can_be_cancelled(status):
    assert NODE_MOVES[status][Move.CANCEL] is NodeStatus.CANCELLED


def test_what_a_worker_holds_is_never_skipped_without_being_queued_again():
    skipped_from = {status for status, moves in NODE_MOVES.items() if Move.SKIP in moves}
    assert skipped_from == {NodeStatus.PENDING, NodeStatus.READY, NodeStatus.WAITING}


def test_every_status_can_be_reached():
    reached = {status for moves in NODE_MOVES.values() for status in moves.values()}
    assert reached == STORED


@pytest.mark.parametrize(("status", "move"), FORBIDDEN)
def test_a_move_that_the_table_does_not_have_is_refused(status, move):
    job = a_job(a="")
    node = Node("a", job.graph.specs["a"])
    node.status = status
    with pytest.raises(InvalidTransition, match=f"node a is {status}: it cannot {move}"):
        Step(job, 0.0, []).move(node, move)


def test_the_diagram_has_one_arrow_for_each_move():
    lines = mermaid(NODE_MOVES).splitlines()
    assert lines[:2] == ["stateDiagram-v2", "    [*] --> PENDING"]
    assert len(lines) == 2 + sum(len(moves) for moves in NODE_MOVES.values())
    assert "    DISPATCHED --> READY: requeue" in lines

"""What to type about a reason or an error: only the command line knows its commands and options."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dagmaster.application.views import BlockingReasonView, ReasonCode
from dagmaster.cli.suggested_commands import format_blocking_reason, suggest_command, suggest_remedy
from dagmaster.engine.diagnosis.active_nodes import queued
from dagmaster.engine.diagnosis.context import InFlightTask, QueueState
from dagmaster.engine.diagnosis.untrusted_handlers import untrusted
from dagmaster.errors import JobFinished, JobNotFound, NothingToResume

if TYPE_CHECKING:
    from dagmaster.json_types import JsonObject

SOURCE = Path(__file__).parents[3] / "src" / "dagmaster"


def test_what_to_type_is_a_command():
    data: JsonObject = {"queue": "light", "signal": "go", "job_id": "8", "handler": "h", "caller": "c"}
    commands = {code: suggest_command("7", code, data, "a") for code in ReasonCode}
    assert all(command.startswith("dagmaster ") for command in commands.values() if command is not None)
    assert commands[ReasonCode.SIGNAL] == "dagmaster jobs signal 7 go"
    assert commands[ReasonCode.RUNNING] is None


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ReasonCode.APPROVAL, "release waits → dagmaster jobs approve 7 release"),
        (ReasonCode.NO_ORCHESTRATOR, "release waits → dagmaster orchestrator"),
        (ReasonCode.RUNNING, "release waits"),
        (None, "release waits"),
    ],
)
def test_what_a_job_waits_for_has_the_command_to_type(code, text):
    reason = BlockingReasonView(sentence="release waits", code=code, node_id="release", data={})
    assert format_blocking_reason("7", reason) == text


def test_a_queue_whose_worker_was_drained_names_the_command_that_undrains_it():
    reason = queued("light", QueueState(draining=1, drained_worker="5"), 9.0)
    assert suggest_command("7", reason.code, reason.data, "a") == "dagmaster fleet undrain 5"
    stops = queued("light", QueueState(draining=1), 9.0)
    assert suggest_command("7", stops.code, stops.data, "a") == "dagmaster worker --queue light"


def test_an_untrusted_handler_names_the_command_that_trusts_its_caller():
    reason = untrusted(InFlightTask(queue="light", dispatched_at=0.0, handler="thumb"), "key:gpu", 9.0)
    command = "dagmaster handlers trust thumb --caller key:gpu"
    assert suggest_command("7", reason.code, reason.data, "a") == command


def test_an_error_has_a_remedy_by_its_code():
    assert "dagmaster jobs list" in str(suggest_remedy(JobNotFound("there is none")))
    assert "--from" in str(suggest_remedy(NothingToResume("it completed")))
    assert suggest_remedy(JobFinished("it ended")) is None


NAMED = re.compile(r"dagmaster (submit|jobs|workflows|handlers|worker|orchestrator)\b|--(?!json)[a-z]+")


@pytest.mark.parametrize("package", ["application", "engine"])
def test_no_sentence_of_the_application_names_a_command_or_an_option(package):
    """Another interface has neither."""
    for file in (SOURCE / package).rglob("*.py"):
        tree = ast.parse(file.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [
            node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        named = [node.value for node in texts if id(node) not in docstrings and NAMED.search(str(node.value))]
        assert named == [], file

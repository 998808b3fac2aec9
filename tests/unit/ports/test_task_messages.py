"""The task message: a JSON document that others may write."""

from __future__ import annotations

import json

import pytest

from dagmaster.errors import PermanentError
from dagmaster.ports.handler_reports import Checkpoint
from dagmaster.ports.task_messages import TaskMessage
from dagmaster.sdk.handler_context import HandlerContext

# As the first writers of such messages wrote them.
OLD = {
    "task_id": "task-abc123",
    "job_id": "job-xyz789",
    "node_id": "validate",
    "handler": "raster_validate",
    "params": {"container_name": "bronze"},
    "timeout_seconds": 300,
    "retry_count": 2,
    "checkpoint": None,
}


def test_a_message_survives_the_way_through_json():
    message = TaskMessage(
        task_id="1",
        job_id="2",
        node_id="n",
        handler="h",
        params={"a": [1]},
        timeout_seconds=3.5,
        attempt=3,
        checkpoint=Checkpoint("half", {"n": 1}, ("a.tif",)),
        dispatched_at=1_767_225_600.0,
        trace_parent="00-aa-bb-01",
    )
    assert TaskMessage.from_json(json.loads(json.dumps(message.to_json()))) == message


def test_a_message_has_its_version():
    assert TaskMessage("1", "2", "n", "h").to_json()["version"] == 1


def test_a_message_of_an_older_writer_is_read():
    message = TaskMessage.from_json(OLD)
    assert (message.task_id, message.attempt, message.retry_count) == ("task-abc123", 3, 2)
    assert message.timeout_seconds == 300


def test_keys_that_came_later_are_ignored_and_ids_may_be_numbers():
    assert TaskMessage.from_json({**OLD, "task_id": 7, "colour": "red"}).task_id == "7"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"version": 2}, "version"),
        ({"task_id": ""}, "task_id"),
        ({"task_id": True}, "task_id"),
        ({"handler": None}, "handler"),
        ({"params": [1]}, "params"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds"),
        ({"retry_count": -1}, "retry_count"),
        ({"attempt": 0}, "attempt"),
        ({"checkpoint": {"data": {}}}, "checkpoint.phase"),
        ({"dispatched_at": "2026-01-01T00:00:00"}, "dispatched_at"),
    ],
)
def test_an_invalid_message_is_rejected_with_the_reason(changed, sentence):
    with pytest.raises(PermanentError, match=f"is invalid: {sentence}") as caught:
        TaskMessage.from_json({**OLD, **changed})
    assert caught.value.kind == "invalid_message"


def test_a_value_that_is_no_message_is_rejected():
    with pytest.raises(PermanentError, match="is invalid: message"):
        TaskMessage.from_json("hello")


def test_params_are_never_shown():
    message = TaskMessage(
        "1", "2", "n", "h", {"key": "s3cret"}, checkpoint=Checkpoint("p", {"key": "s3cret"})
    )
    assert "s3cret" not in repr(message) + repr(HandlerContext(params=message.params))


def test_a_context_made_by_hand_serves_a_test_of_a_handler():
    context = HandlerContext(params={"a": 1})
    context.progress(1)
    context.checkpoint("half", {"n": 1})
    assert context.checkpoint_data == {"n": 1}
    context.raise_if_cancelled()
    context.cancel()
    assert context.cancelled
    with pytest.raises(PermanentError, match="asked to stop"):
        context.raise_if_cancelled()

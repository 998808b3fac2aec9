"""Which earlier checkpoints are kept with the newest one."""

from __future__ import annotations

import json

from dagmaster.ports.handler_reports import (
    MAX_EARLIER,
    MAX_EARLIER_CHARACTERS,
    Checkpoint,
    data_to_store,
    select_earlier,
)


def phases(newest: Checkpoint, *earlier: Checkpoint) -> list[str]:
    return [one.phase for one in select_earlier(newest, earlier)]


def test_a_checkpoint_that_is_stale_whenever_a_newer_one_is_is_not_kept():
    older = [Checkpoint("c", {}, ["x", "y"]), Checkpoint("b", {}, ["x"]), Checkpoint("a")]
    assert phases(Checkpoint("d", {}, ["x", "y", "z"]), *older) == ["c", "b", "a"]
    assert phases(Checkpoint("d", {}, ["x"]), *older) == ["a"]
    assert phases(Checkpoint("d"), *older) == []
    # Nothing older than one without artifacts can be of use.
    assert phases(Checkpoint("d", {}, ["x"]), Checkpoint("c"), Checkpoint("b", {}, ["y"])) == ["c"]


def test_another_version_of_an_artifact_is_another_artifact():
    older = Checkpoint("a", {}, ["x"], {"x": "1"})
    assert phases(Checkpoint("b", {}, ["x"], {"x": "2"}), older) == ["a"]
    assert phases(Checkpoint("b", {}, ["x"], {"x": "1"}), older) == []


def test_the_newest_of_each_phase_is_kept_and_no_more_than_fit():
    newest = Checkpoint("n", {}, ["n"])
    assert phases(newest, Checkpoint("a", {}, ["x"]), Checkpoint("a", {}, ["y"]), Checkpoint("n")) == ["a"]
    many = [Checkpoint(str(number), {}, [str(number)]) for number in range(MAX_EARLIER + 1)]
    assert phases(newest, *many) == [str(number) for number in range(MAX_EARLIER)]
    half = {"text": "." * (MAX_EARLIER_CHARACTERS // 2)}
    assert phases(newest, Checkpoint("a", half, ["a"]), Checkpoint("b", half, ["b"]), Checkpoint("c")) == [
        "a"
    ]


def test_a_checkpoint_is_stored_with_the_earlier_ones_and_read_as_it_was():
    earlier = (Checkpoint("b", {"n": 2}, ("x",), {"x": "1"}), Checkpoint("a", {"n": 1}))
    checkpoint = Checkpoint("c", {"n": 3}, ("x", "y"), {"x": "1"}, earlier)
    body = json.loads(json.dumps(checkpoint.to_json()))
    assert Checkpoint.from_json(body) == checkpoint
    row = {"phase": body["phase"], "data": data_to_store(body), "artifacts": body["artifacts"]}
    assert Checkpoint.from_stored(row) == checkpoint
    assert checkpoint.history[1:] == earlier
    assert data_to_store(Checkpoint("a", {"n": 1}).to_json()) == {"n": 1}

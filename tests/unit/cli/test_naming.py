"""The node that a user names, and what is said if it is not there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dagmaster.cli.naming import child_of, named_node, spec_of
from dagmaster.errors import NodeNotFound
from dagmaster.store.postgres.legacy_read_store import NodeRecord
from tests.unit.cli.views import graph, head


class Store:
    def __init__(self, *lines: NodeRecord) -> None:
        self.lines = {line.node_id: line for line in lines}

    async def nodes(self, _job_id: str, node_ids: list[str]) -> list[NodeRecord]:
        return [self.lines[node_id] for node_id in node_ids if node_id in self.lines]


def named(node_id: str, *lines: NodeRecord) -> NodeRecord:
    onlooker: Any = SimpleNamespace(store=Store(*lines))
    return asyncio.run(named_node(onlooker, head(), graph(), node_id))


def refused(node_id: str, *lines: NodeRecord) -> str:
    with pytest.raises(NodeNotFound) as caught:
        named(node_id, *lines)
    return str(caught.value)


def tiles(count: int | None) -> NodeRecord:
    return NodeRecord(node_id="tiles", status="RUNNING", source_count=count)


def test_a_node_without_a_row_is_pending_and_so_is_a_child_that_was_not_made_yet():
    assert named("fetch").status == "PENDING"
    assert named("tiles__3", tiles(4)).parent_node_id == "tiles"


def test_a_child_that_is_not_there_is_told_which_are():
    assert refused("tiles__4", tiles(4)) == "there is no tiles__4: tiles has 4 children, tiles__0 to tiles__3"
    assert refused("tiles__4", tiles(1)) == "there is no tiles__4: tiles has 1 child, tiles__0"
    assert refused("tiles__0", tiles(0)).endswith("tiles has no children, for its list is empty")
    assert refused("tiles__0") == "tiles has no children yet: there is no tiles__0"


@pytest.mark.parametrize("wrong", ["tile", "tiles__", "tiles__03", "tiles__-1", "tiles__x", "tile__2"])
def test_a_wrong_name_gets_the_nearest(wrong):
    assert refused(wrong, tiles(4)).endswith("Did you mean 'tiles'?")


def test_a_child_does_what_its_fan_out_has_done_for_each_item():
    assert child_of("a__1__20") == ("a__1", 20)
    spec = spec_of(graph(), "tiles__2")
    assert spec is not None
    assert spec.kind.value == "task"
    assert spec_of(graph(), "fetch__2") is None

"""The node that a caller names, and the sentence if it does not exist."""

from __future__ import annotations

import pytest

from dagmaster.application.node_lookup import child_of, dependencies_of, find_node, spec_of
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import NodeNotFound
from dagmaster.records.nodes import NodeRecord
from tests.unit.application.world import FakeReadStore, a_record, an_application, graph, run


def lookup(node_id: str, *nodes: NodeRecord) -> NodeRecord:
    result: NodeRecord = run(
        find_node(an_application(FakeReadStore(node_records=list(nodes))), a_record(), graph(), node_id)
    )
    return result


def refused(node_id: str, *nodes: NodeRecord) -> str:
    with pytest.raises(NodeNotFound) as caught:
        lookup(node_id, *nodes)
    return str(caught.value)


def tiles(count: int | None) -> NodeRecord:
    return NodeRecord(node_id="tiles", status=NodeStatus.RUNNING, job_id="7", source_count=count)


def test_a_node_without_a_row_is_pending_and_so_is_a_child_that_is_not_created_yet():
    assert lookup("fetch").status is NodeStatus.PENDING
    child = lookup("tiles__3", tiles(4))
    assert (child.parent_node_id, child.fan_out_index, child.job_id) == ("tiles", 3, "7")


def test_a_child_that_does_not_exist_gets_the_names_of_those_that_do():
    assert refused("tiles__4", tiles(4)) == "there is no tiles__4: tiles has 4 children, tiles__0 to tiles__3"
    assert refused("tiles__4", tiles(1)) == "there is no tiles__4: tiles has 1 child, tiles__0"
    assert refused("tiles__0", tiles(0)).endswith("tiles has no children, because its list is empty")
    assert refused("tiles__0") == "tiles has no children yet: there is no tiles__0"


@pytest.mark.parametrize("wrong", ["tile", "tiles__", "tiles__03", "tiles__-1", "tiles__x", "tile__2"])
def test_a_wrong_name_gets_the_nearest(wrong):
    assert refused(wrong, tiles(4)).endswith("Did you mean 'tiles'?")


def test_a_child_does_what_its_fan_out_does_for_each_item():
    assert child_of("a__1__20") == ("a__1", 20)
    spec = spec_of(graph(), "tiles__2")
    assert spec is not None
    assert spec.kind.value == "task"
    assert spec_of(graph(), "fetch__2") is None


def test_dependencies_are_in_topological_order():
    assert dependencies_of(graph()) == {
        "fetch": (),
        "tiles": ("fetch",),
        "release": ("fetch",),
        "after": ("release",),
    }

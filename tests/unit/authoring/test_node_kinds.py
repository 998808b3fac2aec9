"""The kinds of nodes: each has its keys, its spec, and what is shown of it."""

from __future__ import annotations

from typing import get_args

import dagmaster
from dagmaster.authoring import schema
from dagmaster.authoring.node_kinds import NODE_KINDS
from dagmaster.authoring.python import node_functions
from dagmaster.engine.graph import SPECS, Kind


def test_each_kind_is_in_every_table():
    kinds = list(Kind)
    assert list(NODE_KINDS) == list(SPECS) == list(schema.NODE_MODELS) == kinds
    assert set(get_args(schema.AnyNodeModel)) == set(schema.NODE_MODELS.values())


def test_each_kind_has_a_function_in_python():
    names = {Kind.WORKFLOW: "child_workflow"}
    for kind in set(Kind) - {Kind.TASK}:
        name = names.get(kind, kind.value)
        assert getattr(dagmaster, name) is getattr(node_functions, name)


def test_each_icon_is_a_path_of_one_kind_but_the_colours_may_be_shared():
    assert len({one.icon for one in NODE_KINDS.values()}) == len(NODE_KINDS)
    assert len({one.brackets for one in NODE_KINDS.values()}) == len(NODE_KINDS) - 1

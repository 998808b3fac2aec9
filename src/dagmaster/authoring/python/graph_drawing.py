"""Drawings of tasks and groups, as a notebook shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.added_nodes import PYTHON_DEFINITION, read_batch
from dagmaster.authoring.graph_parts import check_part
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.authoring.python.graph_items import GraphItem, items_in
from dagmaster.errors import NodesRejected
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph

MAX_NODES: Final = 300
"""How many nodes are drawn. More make no picture."""
_QUEUE: Final = "default"


class Drawing:
    """A graph as SVG. A notebook shows it; `svg` is the text."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        """Return the size: a notebook shows it where it cannot show the drawing."""
        return f"<Drawing: SVG of {format_count(len(self.svg), 'character')}>"


def draw(*items: GraphItem | list[Any] | tuple[Any, ...]) -> Drawing:
    """Draw tasks and groups with all that they are connected to, before or after they are applied to a job.

    Raise `NodesRejected` if they make no graph: the cycle is spelled out.
    """
    from dagmaster.authoring.diagram.diagram import svg

    return Drawing(svg(_to_graph(list(items_in(items)))))


def draw_item(item: GraphItem) -> str | None:
    """Return the drawing of a task or a group as SVG; None if the graph is too large, or is no graph yet.

    A notebook prints the traceback of an error next to what it shows: `draw` and `apply` report it.
    """
    try:
        return draw(item).svg
    except NodesRejected:
        return None


def _to_graph(items: list[GraphItem]) -> Graph:
    from dagmaster.authoring.compiler.compile import compile_definition
    from dagmaster.engine.growth import grow_graph

    collected = collect(items, default_queue=_QUEUE, follows=True, with_applied=True)
    if len(collected.items) > MAX_NODES:
        count = format_count(len(collected.items), "node")
        raise NodesRejected(f"the graph has {count}, and a drawing at most {MAX_NODES}: draw a group of it")
    names = {item.id: item.node_id for item in collected.items if item.node_id is not None}
    for part in collected.part.tasks:
        part.name = names.get(part.id, part.name)
    batch = read_batch(check_part(collected.part), (1,))
    name = items[0].label if len(items) == 1 else format_count(len(collected.items), "node")
    return replace(grow_graph(compile_definition(PYTHON_DEFINITION), [batch]), name=name)

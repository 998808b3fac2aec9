"""What queries and commands work with: the stores of one database, wired by `bootstrap`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagmaster.orchestrator.graph_cache import GraphCache, OutlineCache

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.ports.client_store import ClientStore
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.read_store import ReadStore
    from dagmaster.ports.reusable_results import ReusableResults


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The ports behind `application`. Every query and command takes one as its first argument."""

    read: ReadStore
    client: ClientStore
    results: ReusableResults
    blobs: OutputBlobs
    env: Mapping[str, str] = field(default_factory=dict)
    """What expressions of new jobs may read as env.NAME."""
    graphs: GraphCache = field(init=False, compare=False, repr=False)
    """Compiled graphs. A stored graph never changes, so each is compiled once."""
    outlines: OutlineCache = field(init=False, compare=False, repr=False)
    """Graphs without expressions, for all that only shows jobs or looks nodes up: to compile one takes longer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "graphs", GraphCache(self.read))
        object.__setattr__(self, "outlines", OutlineCache(self.read))

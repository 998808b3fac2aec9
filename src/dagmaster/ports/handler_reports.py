"""What a handler reports: progress and checkpoints while it runs, and its result."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Protocol

from dagmaster.ports.blob_uris import BlobUri
from dagmaster.ports.storage import BlobInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dagmaster.json_types import JsonObject

Artifact = str | PurePath | BlobUri | BlobInfo
"""What a checkpoint relies on: a URI or a path. What `publish`, `write` or `find` returned has a version,
too."""

_VERSIONS: Final = "dagmaster:artifact_versions"
"""The key under which the versions of artifacts are stored in the data of their checkpoint."""

_EARLIER: Final = "dagmaster:earlier_checkpoints"
"""The key under which earlier checkpoints are stored in the data of the newest one."""

MAX_EARLIER: Final = 8
MAX_EARLIER_CHARACTERS: Final = 256 * 1024
"""How many earlier checkpoints are kept, and how long all of them may be as JSON: each new one is stored with
them."""


@dataclass(slots=True)
class Progress:
    """How far a handler has come. Without a total: only that it is moving."""

    current: float
    total: float | None = None
    message: str = ""


@dataclass(slots=True)
class Checkpoint:
    """A point from which another attempt can resume. `data` is JSON; `artifacts` names what it relies on.

    The next attempt gets the checkpoint only if all of them still exist, in the same version where that is
    known. If not, it gets the newest of the `earlier` ones of which that is true.
    """

    phase: str
    data: dict[str, Any] = field(default_factory=dict)
    artifacts: Sequence[Artifact] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """The versions of artifacts, by name, where they are known."""
    earlier: tuple[Checkpoint, ...] = ()
    """Those that may be valid when this one is not, the newest first. They have no earlier ones
    themselves."""

    @property
    def history(self) -> tuple[Checkpoint, ...]:
        """Return this checkpoint and the earlier ones, the newest first."""
        return (replace(self, earlier=()), *self.earlier)

    def to_json(self) -> JsonObject:
        """Return the checkpoint as plain JSON data: artifacts by name, and the versions that are known."""
        names = [_name_of(artifact) for artifact in self.artifacts]
        versions: JsonObject = {**self.versions}
        versions |= {str(one.uri): one.version for one in self.artifacts if isinstance(one, BlobInfo)}
        body: JsonObject = {"phase": self.phase, "data": self.data, "artifacts": names}
        if versions:
            body["versions"] = versions
        if self.earlier:
            body["earlier"] = [one.to_json() for one in self.earlier]
        return body

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Checkpoint:
        earlier = tuple(map(cls.from_json, body.get("earlier", ())))
        return cls(body["phase"], body["data"], tuple(body["artifacts"]), body.get("versions", {}), earlier)

    @classmethod
    def from_stored(cls, body: dict[str, Any]) -> Checkpoint:
        """Return a checkpoint from its row: what has no column is in its data (see `data_to_store`)."""
        data = dict(body["data"])
        versions, earlier = data.pop(_VERSIONS, {}), data.pop(_EARLIER, ())
        return cls.from_json({**body, "data": data, "versions": versions, "earlier": earlier})


def data_to_store(checkpoint: dict[str, Any]) -> JsonObject:
    """Return the data of a checkpoint as stored, with the versions of its artifacts and the earlier ones."""
    data: JsonObject = checkpoint["data"]
    hidden = {_VERSIONS: checkpoint.get("versions"), _EARLIER: checkpoint.get("earlier")}
    return {**data, **{key: value for key, value in hidden.items() if value}}


def select_earlier(newest: Checkpoint, earlier: Iterable[Checkpoint]) -> tuple[Checkpoint, ...]:
    """Return the checkpoints that may be valid when newer ones are not: the newest of each phase that fit.

    One that relies on everything that a newer one relies on is not kept: it is stale whenever the newer one
    is. So a task without artifacts keeps none.
    """
    kept: list[Checkpoint] = []
    phases, requirements, characters = {newest.phase}, [_requirements(newest)], 0
    for checkpoint in earlier:
        required = _requirements(checkpoint)
        if checkpoint.phase in phases or any(newer <= required for newer in requirements):
            continue
        characters += len(json.dumps(checkpoint.to_json()))
        if len(kept) == MAX_EARLIER or characters > MAX_EARLIER_CHARACTERS:
            break
        kept.append(checkpoint)
        phases.add(checkpoint.phase)
        requirements.append(required)
    return tuple(kept)


def _requirements(checkpoint: Checkpoint) -> set[tuple[str, str | None]]:
    """Return the artifacts that a saved checkpoint relies on, each with its version where it is known."""
    return {(str(artifact), checkpoint.versions.get(str(artifact))) for artifact in checkpoint.artifacts}


def _name_of(artifact: Artifact) -> Any:
    """Return an artifact as text. What is no artifact stays as it is, and is rejected with the checkpoint."""
    if isinstance(artifact, BlobInfo):
        return str(artifact.uri)
    return str(artifact) if isinstance(artifact, PurePath | BlobUri) else artifact


@dataclass(slots=True)
class HandlerResult:
    """What a handler returns when a dict is not enough.

    `success=False` fails the attempt, which may be retried.
    """

    success: bool
    output: JsonObject = field(default_factory=dict)
    error_message: str | None = None
    metrics: dict[str, Any] = field(default_factory=dict)


class Reporter(Protocol):
    """Receives the reports of one context. Called on any thread."""

    def progress(self, progress: Progress) -> None:
        """Record how far the handler has come."""

    def checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        """Save a checkpoint and return what was saved."""

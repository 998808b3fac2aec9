"""What a handler reports: progress and checkpoints while it runs, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Protocol

from dagmaster.blob_uris import BlobUri
from dagmaster.ports.storage import BlobInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.json_types import JsonObject

Artifact = str | PurePath | BlobUri | BlobInfo
"""What a checkpoint relies on: a URI or a path. What `publish`, `write` or `find` returned has a version, too."""

_VERSIONS: Final = "dagmaster:artifact_versions"
"""The key under which the versions of artifacts are stored in the data of their checkpoint."""


@dataclass(slots=True)
class Progress:
    """How far a handler has come. Without a total: only that it is moving."""

    current: float
    total: float | None = None
    message: str = ""


@dataclass(slots=True)
class Checkpoint:
    """A point from which another attempt can resume. `data` is JSON; `artifacts` names what it relies on.

    The next attempt gets the checkpoint only if all of them still exist, in the same version where that is known.
    """

    phase: str
    data: dict[str, Any] = field(default_factory=dict)
    artifacts: Sequence[Artifact] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """The versions of artifacts, by name, where they are known."""

    def to_json(self) -> JsonObject:
        """Return the checkpoint as plain JSON data: artifacts by name, and the versions that are known."""
        names = [_name_of(artifact) for artifact in self.artifacts]
        versions: JsonObject = {**self.versions}
        versions |= {str(one.uri): one.version for one in self.artifacts if isinstance(one, BlobInfo)}
        body: JsonObject = {"phase": self.phase, "data": self.data, "artifacts": names}
        return {**body, "versions": versions} if versions else body

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Checkpoint:
        """Return a checkpoint from its JSON."""
        return cls(body["phase"], body["data"], tuple(body["artifacts"]), body.get("versions", {}))

    @classmethod
    def from_stored(cls, body: dict[str, Any]) -> Checkpoint:
        """Return a checkpoint from its row: the versions of its artifacts are in its data (see `data_to_store`)."""
        data = dict(body["data"])
        return cls(body["phase"], data, tuple(body["artifacts"]), data.pop(_VERSIONS, {}))


def data_to_store(checkpoint: dict[str, Any]) -> JsonObject:
    """Return the data of a checkpoint as it is stored, with the versions of its artifacts."""
    data: JsonObject = checkpoint["data"]
    return {**data, _VERSIONS: checkpoint["versions"]} if checkpoint.get("versions") else data


def _name_of(artifact: Artifact) -> Any:
    """Return an artifact as text. What is no artifact stays as it is, and is rejected with the checkpoint."""
    if isinstance(artifact, BlobInfo):
        return str(artifact.uri)
    return str(artifact) if isinstance(artifact, PurePath | BlobUri) else artifact


@dataclass(slots=True)
class HandlerResult:
    """What a handler returns when a dict is not enough. `success=False` fails the attempt, which may be retried."""

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

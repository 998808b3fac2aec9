"""Records of the handlers that workers have published."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from dagmaster.json_types import JsonObject
from dagmaster.records.record import INTERNAL, Record, Timestamp

INSTALLATION: Final = "installation"
"""The owner of what services with a connection to the database publish: no caller has such a name."""
_MAX_LEVELS: Final = 20
"""How deep parts of contracts are told apart."""
_OF_DEFINITION: Final = ("description", "module", "queue", "timeout_seconds", "retry", "params", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerChange(Record):
    """A contract that another caller than the owner published: it waits for `dagmaster handlers trust`.

    `differences`: the parts that differ from the contract, as JSON. None: the caller only wants to have the
    handler.
    """

    actor: str
    version: str
    proposed_at: Timestamp
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRecord(Record):
    """A handler in the version that live workers have, else in the last published one.

    `params` and `output` are JSON Schemas; null: not declared. `workers`: how many live workers have this
    version. `owner`: `installation`, or the caller that published it first. `is_trusted`: an administrator
    trusts the contract, or it is the installation's; the default queue of another one is not used.
    """

    name: str
    version: str
    aliases: tuple[str, ...]
    description: str
    module: str
    queue: str | None
    timeout_seconds: float | None
    retry: JsonObject | None
    params: JsonObject | None
    output: JsonObject | None
    workers: int
    other_versions: tuple[str, ...]
    """Newest first."""
    published_at: Timestamp
    owner: str = INSTALLATION
    is_trusted: bool = True
    changes: tuple[HandlerChange, ...] = ()
    definition: Mapping[str, Any] = field(default_factory=dict, metadata=INTERNAL)
    """What its worker published, made by `authoring.handler_definitions`."""

    @property
    def default_queue(self) -> str | None:
        """Return the queue of tasks that name none: that of a stranger's contract is not used."""
        return self.queue if self.is_trusted else None

    @property
    def is_usable(self) -> bool:
        """Return whether workflows are checked against the contract.

        A name with a dot is a function of the installation's code: what others publish of it says nothing.
        """
        return self.is_trusted or "." not in self.name

    @classmethod
    def of_definition(cls, definition: Mapping[str, Any], **stored: Any) -> Self:
        """Return the record of what a worker published. `stored`: the fields that are not part of it."""
        shown: dict[str, Any] = {name: definition.get(name) for name in _OF_DEFINITION}
        return cls(definition=definition, aliases=aliases_of(definition), **shown, **stored)


def aliases_of(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the other names of a handler, as a definition of any version has them."""
    aliases = definition.get("aliases")
    return tuple(aliases) if isinstance(aliases, list) else ()


def owned_names(name: str, owner: str, definition: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of a contract that are its owner's: only the installation has aliases."""
    return frozenset((name, *(aliases_of(definition) if owner == INSTALLATION else ())))


def usable(records: Iterable[HandlerRecord]) -> list[HandlerRecord]:
    """Return the handlers against whose contracts workflows are checked.

    A caller's whose name is an alias of the installation's does not count: the alias wins.
    """
    contracts = [record for record in records if record.is_usable]
    aliases = frozenset(
        alias for record in contracts if record.owner == INSTALLATION for alias in record.aliases
    )
    return [record for record in contracts if record.owner == INSTALLATION or record.name not in aliases]


def describe_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of two contracts that differ, as `params.title: "Size" → "Width"`."""
    return tuple(_differences(before, after, "", _MAX_LEVELS))


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str, levels: int
) -> Iterator[str]:
    keys = [*before, *(key for key in after if key not in before)]
    for key in keys:
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping) and levels:
            yield from _differences(old, new, f"{path}{key}.", levels - 1)
        elif old != new:
            yield f"{path}{key}: {_json(old)} → {_json(new)}"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)

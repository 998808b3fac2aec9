"""The work of one check of inputs: counted in steps, and stopped at a limit.

A schema and a value of a few hundred kilobytes can ask for the product of both. A size limits neither.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dagmaster.json_types import JsonValue

MAX_STEPS: Final = 2_000_000
"""Steps of one check. A step is one keyword of a schema on one value, a few microseconds."""
QUICK_STEPS: Final = 2_000
"""Steps that a server does on its event loop, at most: a few milliseconds. Most inputs need some dozens."""
QUICK_BATCH_STEPS: Final = 10 * QUICK_STEPS
"""Steps for all jobs that are stored in one statement, on the event loop."""
CHARACTERS_PER_STEP: Final = 64
"""Characters that are hashed, copied or shown in the time of a step."""


class CheckStopped(Exception):
    """A check has spent its budget."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the check was stopped after {limit:,} steps")
        self.limit = limit


class CheckBudget:
    """Steps that are left, and what a check computes once for each schema."""

    def __init__(self, limit: int = MAX_STEPS) -> None:
        self.limit = limit
        self.left = limit
        # By the identity of the list, which is kept: another one could get the same.
        self._allowed: dict[int, tuple[list[JsonValue], frozenset[str]]] = {}
        self._constants: dict[int, tuple[JsonValue, str]] = {}

    def spend(self, steps: int) -> None:
        """Take steps; raise `CheckStopped` if there are not as many left."""
        self.left -= steps
        if self.left < 0:
            raise CheckStopped(self.limit)

    def spend_text(self, characters: int) -> None:
        """Take the steps of work that grows with the length of a text."""
        self.spend(1 + characters // CHARACTERS_PER_STEP)

    def canonical(self, value: JsonValue) -> str:
        """Return the same text for values that are equal in JSON Schema: 1 and 1.0, but not 1 and true."""
        if isinstance(value, str):
            # Marked, so that no text equals the JSON of another value.
            self.spend_text(len(value))
            return f'"{value}'
        text = json.dumps(self._normal(value), sort_keys=True, ensure_ascii=False)
        self.spend_text(len(text))
        return text

    def allowed(self, values: list[JsonValue]) -> frozenset[str]:
        """Return the canonical texts of an `enum`, which are made once."""
        key = id(values)
        if key not in self._allowed:
            self._allowed[key] = values, frozenset(self.canonical(value) for value in values)
        return self._allowed[key][1]

    def constant(self, value: JsonValue) -> str:
        """Return the canonical text of a `const`, which is made once."""
        key = id(value)
        if key not in self._constants:
            self._constants[key] = value, self.canonical(value)
        return self._constants[key][1]

    def _normal(self, value: Any) -> Any:
        """Return a value with whole floats as integers, so that equal numbers have equal texts."""
        self.spend(1)
        if isinstance(value, dict):
            return {key: self._normal(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._normal(item) for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

"""The roots of paths, and the part of a path that identifies the value to load.

This module does not know which inputs, nodes or secrets exist: that is checked against a graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.engine.expressions.json_values import Path, path_text
from dagmaster.engine.expressions.parser import nearest
from dagmaster.errors import ExpressionInvalid

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# What expressions may start with, by place.
OUTPUTS: Final = frozenset({"inputs", "nodes", "job", "env"})
DECISION: Final = OUTPUTS | {"upstream"}
PARAMS: Final = DECISION | {"secrets"}

NODE_FIELDS = ("output", "outputs", "status", "error", "failed")
"""The fields of a node in expressions."""

_LENGTHS = {"inputs": 2, "nodes": 3, "upstream": 2, "job": 2, "env": 2, "secrets": 2}
_LAST_NAMES: dict[str, Sequence[str]] = {
    "nodes": NODE_FIELDS,
    "upstream": NODE_FIELDS,
    "outer": ("item", "index"),
}


def reference(keys: Path, *, roots: Collection[str], offset: int, goes_on: bool) -> Path:
    """Return the reference to load for a path.

    `goes_on`: a computed key follows, which may not be part of it.
    """
    root = str(keys[0])
    if root not in roots:
        raise ExpressionInvalid(f"there is no `{root}` here", offset=offset, hint=nearest(root, roots))
    if root == "inputs" and len(keys) == 1 and not goes_on:
        return keys
    length, names = _length(keys), _LAST_NAMES.get(root, ())
    if len(keys) < length:
        text = path_text(keys)
        if goes_on:
            raise ExpressionInvalid(f"the key after `{text}` must be literal", offset=offset)
        example = names[0] if names and len(keys) == length - 1 else "NAME"
        hint = f"continue the path, as in `{text}.{example}`"
        raise ExpressionInvalid(f"`{text}` is not a value by itself", offset=offset, hint=hint)
    if not all(isinstance(key, str) for key in keys[:length]):
        raise ExpressionInvalid(f"`{path_text(keys)}` has an index where it needs a name", offset=offset)
    last = str(keys[length - 1])
    if names and last not in names:
        message = f"`{path_text(keys[: length - 1])}` has no `{last}`"
        raise ExpressionInvalid(message, offset=offset, hint=nearest(last, names))
    return keys[:length]


def _length(keys: Path) -> int:
    if keys[0] == "outer":
        return 1 + next((index for index, key in enumerate(keys) if key != "outer"), len(keys))
    return _LENGTHS.get(str(keys[0]), 1)

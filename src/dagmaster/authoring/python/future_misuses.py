"""What Python would need the value of a future for, and the right way to write it."""

from __future__ import annotations

from typing import Final

_BRANCH: Final = (
    "branch with conditional(value, {'small': '< 10'}, default='large'), or decide inside a @task"
)
_EACH: Final = "use task.map(items) for each item, or take the whole list in a @task"
_COMPUTE: Final = "compute it in a @task, or with expression('{{ x + 1 }}', x=future)"
_FORMAT: Final = "write expression('text {{ x }}', x=future), or build the text in a @task"
MISUSES: Final[dict[str, tuple[str, str]]] = {
    "__bool__": ("`if`, `and`, `or` and `not`", _BRANCH),
    **dict.fromkeys(("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"), ("a comparison", _BRANCH)),
    "__contains__": ("`in`", _BRANCH),
    "__iter__": ("iteration", _EACH),
    "__reversed__": ("iteration", _EACH),
    "__len__": ("len()", _EACH),
    "__next__": ("next()", _EACH),
    **dict.fromkeys(("__setitem__", "__delitem__"), ("an assignment to its items", _COMPUTE)),
    **dict.fromkeys(
        (
            "__int__",
            "__float__",
            "__complex__",
            "__index__",
            "__round__",
            "__trunc__",
            "__floor__",
            "__ceil__",
        ),
        ("a conversion to a number", _COMPUTE),
    ),
    **dict.fromkeys(("__str__", "__format__", "__bytes__", "__fspath__"), ("text", _FORMAT)),
    **{
        f"__{prefix}{name}__": ("a computation", _COMPUTE)
        for name in (
            "add",
            "sub",
            "mul",
            "truediv",
            "floordiv",
            "mod",
            "pow",
            "divmod",
            "and",
            "or",
            "xor",
            "matmul",
        )
        for prefix in ("", "r")
    },
    **dict.fromkeys(("__neg__", "__pos__", "__abs__", "__invert__"), ("a computation", _COMPUTE)),
}
"""Methods that need the value, with what uses them and the right way to write it."""

METHODS: Final = {
    **dict.fromkeys(("keys", "values", "items"), ("`**`, dict() or .{}()", "name its keys: future['key']")),
    "get": (".{}()", "write future['key'].default(value)"),
}
"""Methods of other values that authors call on a future, with what they are and the right way to write it."""

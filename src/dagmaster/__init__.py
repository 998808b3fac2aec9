"""dagmaster runs durable workflows.

The public names and their modules are in `__init__.pyi`, where type checkers read them. They are imported on
first use, so that `import dagmaster` is fast.
"""

from __future__ import annotations

import importlib
import re
from functools import partial
from pathlib import Path
from typing import Any

_IMPORT = re.compile(r"^from (dagmaster\S*) import (\w+|\*)", re.MULTILINE)


def lazy_names(package: str) -> tuple[list[str], Any]:
    """Return `__all__` and `__getattr__` of a package of dagmaster with a stub that imports its names.

    What the stub imports below `isort: split` is there, and not in `__all__`.
    """
    stub = _read_stub(package)
    names = [name for _, name in _IMPORT.findall(stub.partition("# isort: split")[0])]
    return names, partial(_import_name, package, _modules_of(stub))


def _read_stub(package: str) -> str:
    folder = Path(__file__).parent.joinpath(*package.split(".")[1:])
    return (folder / "__init__.pyi").read_text(encoding="utf-8")


def _modules_of(stub: str) -> dict[str, str]:
    modules: dict[str, str] = {}
    for module, name in _IMPORT.findall(stub):
        modules |= _modules_of(_read_stub(module)) if name == "*" else {name: module}
    return modules


def _import_name(package: str, modules: dict[str, str], name: str) -> Any:
    if name not in modules:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    if modules[name] == package:
        return importlib.import_module(f"{package}.{name}")
    return getattr(importlib.import_module(modules[name]), name)


__all__, __getattr__ = lazy_names("dagmaster")


def __dir__() -> list[str]:
    return __all__

"""Fingerprints of the source of functions: a worker compares its own with that of the submitter.

A fingerprint covers the function alone, not what it calls. It is made of the source text and not of the
bytecode, which differs between versions of Python.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import textwrap
from typing import TYPE_CHECKING, Any, Final

from dagmaster.sdk.entrypoint_sources import loaded_function, read_source

if TYPE_CHECKING:
    from collections.abc import Callable

_MOCKS: Final = "dagmaster.sdk.handler_mocks"


def code_fingerprint(function: Callable[..., Any]) -> str:
    """Return a short hash of a function's source; "" if there is no source, as at a Python prompt.

    Its indentation and white space at line ends do not count. A task has the fingerprint of its function.
    """
    return _fingerprint(inspect.unwrap(function))


# The source file may change while the process runs: the first fingerprint stays.
@functools.lru_cache(maxsize=10_000)
def entrypoint_fingerprint(name: str) -> str:
    """Return the fingerprint of the function with this entrypoint, whose module is not imported for it.

    "" if its source is not here, or does not say which function the name is.
    """
    function = loaded_function(name)
    if function is not None:
        return code_fingerprint(function)
    source = read_source(name)
    return "" if source is None else _hash(source)


@functools.lru_cache(maxsize=10_000)
def _fingerprint(function: Callable[..., Any]) -> str:
    # What a test put in the place of a function is not another version of it.
    if getattr(function, "__module__", None) == _MOCKS:
        return ""
    try:
        return _hash(inspect.getsource(function))
    except (OSError, TypeError, IndentationError, SyntaxError):
        return ""


def _hash(source: str) -> str:
    lines = [line.rstrip() for line in textwrap.dedent(source).strip().splitlines()]
    return hashlib.sha256("\n".join(lines).encode(errors="surrogatepass")).hexdigest()[:16]

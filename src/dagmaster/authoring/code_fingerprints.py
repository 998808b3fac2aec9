"""Fingerprints of the source of functions: a worker compares its own with that of the submitter.

A fingerprint covers the function alone, not what it calls. It is made of the source text and not of the bytecode, which
differs between versions of Python.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def code_fingerprint(function: Callable[..., Any]) -> str:
    """Return a short hash of a function's source; "" if there is no source, as at a Python prompt.

    Its indentation and white space at line ends do not count. A task has the fingerprint of its function.
    """
    return _fingerprint(inspect.unwrap(function))


# The source file may change while the process runs: the first fingerprint stays.
@functools.lru_cache(maxsize=10_000)
def _fingerprint(function: Callable[..., Any]) -> str:
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError, IndentationError, SyntaxError):
        return ""
    lines = [line.rstrip() for line in textwrap.dedent(source).strip().splitlines()]
    return hashlib.sha256("\n".join(lines).encode(errors="surrogatepass")).hexdigest()[:16]

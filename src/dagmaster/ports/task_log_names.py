"""The names of the files with the logs of tasks: one for a node of a job, with all its attempts."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.\[\]-]")
_MAX_CHARACTERS: Final = 200
"""Of a part of a name. File systems allow 255 bytes."""


def log_file_name(job_id: str, node_id: str, graph_task_id: int | str | None = None) -> str:
    """Return the path of a log below its directory: `TASK.log` for graphs in code, else `JOB/NODE.log`.

    It has at most one folder, whatever the ids are, and different ids have different names.
    """
    if graph_task_id is not None:
        return f"{_safe(str(graph_task_id))}.log"
    return f"{_safe(job_id)}/{_safe(node_id)}.log"


def _safe(name: str) -> str:
    """Return a name as it is if it is safe; else a readable one with a digest."""
    is_safe = name and not name.startswith(".") and len(name) <= _MAX_CHARACTERS
    if is_safe and not _UNSAFE.search(name):
        return name
    digest = hashlib.sha256(name.encode(errors="backslashreplace")).hexdigest()[:16]
    # No safe name has this sign.
    return f"{_UNSAFE.sub('_', name).lstrip('.')[:_MAX_CHARACTERS]}~{digest}"

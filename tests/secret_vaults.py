"""The vault of tests whose jobs have secret inputs: its key is made once for a process."""

from __future__ import annotations

from dagmaster.adapters.secret_vault import memory_vault

VAULT = memory_vault()

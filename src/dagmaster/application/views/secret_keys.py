"""Views of the keys of secret inputs. They have the ids of keys, never a key."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKeyView(Record):
    """A key of secret inputs.

    `is_current`: new values are encrypted with it. `is_here`: this process has it. `jobs`, `tasks`: how
    many stored jobs and queued tasks need it; `signing_secrets`: of callbacks.
    """

    key_id: str
    is_current: bool
    is_here: bool
    jobs: int
    tasks: int
    signing_secrets: int

    @property
    def is_needed(self) -> bool:
        """Return whether a row cannot be read without it."""
        return bool(self.jobs or self.tasks or self.signing_secrets)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKeysView(Record):
    """The keys of secret inputs. `clear_jobs`, `clear_tasks`: rows that are not encrypted."""

    keys: tuple[SecretKeyView, ...]
    clear_jobs: int
    clear_tasks: int

"""The keys of secret inputs: their text, and where a process has them from."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dagmaster.errors import SecretsKeyMissing, SecretsKeyWrong
from dagmaster.host import atomic_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import IO

KEY_BYTES: Final = 32
_SEPARATOR: Final = re.compile(r"[\s,]+")
_OTHERS: Final = 0o077
"""The bits of a file's mode that others than its owner may have."""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """One key. Its id is public: it says nothing about the key."""

    id: str
    raw: bytes = field(repr=False)


def new_key() -> str:
    """Return the text of a new key."""
    return secrets.token_urlsafe(KEY_BYTES)


def parse_keys(text: str, where: str) -> tuple[SecretKey, ...]:
    """Return the keys in a text, in order; raise `SecretsKeyWrong` if one of them is not a key."""
    words = [word for word in _SEPARATOR.split(text) if word]
    return tuple(_parse(word, number, where) for number, word in enumerate(words, 1))


def _parse(word: str, number: int, where: str) -> SecretKey:
    try:
        raw = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise SecretsKeyWrong(
            f"key {number} in {where} is not a key for secret inputs: make one with `dagmaster"
            " secrets-key create`"
        )
    return SecretKey(hashlib.sha256(b"dagmaster secrets key id" + raw).hexdigest()[:12], raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Where a process has its keys from, newest first: the environment, a file, or a file that it makes."""

    text: str | None = field(default=None, repr=False)
    file: Path | None = None
    own_file: Path | None = None
    """Next to the data directory of an embedded database, which one user of one machine uses."""

    def load(self) -> Sequence[SecretKey]:
        """Return the keys; none if there are none yet. Raise `SecretsKeyWrong` if they cannot be used."""
        if self.text is not None and self.file is not None:
            raise SecretsKeyWrong(
                "DAGMASTER_SECRETS_KEY and DAGMASTER_SECRETS_KEY_FILE are both set: keep one of them"
            )
        if self.text is not None:
            return parse_keys(self.text, "DAGMASTER_SECRETS_KEY")
        if self.file is not None:
            return _read_file(self.file, is_required=True)
        return () if self.own_file is None else _read_file(self.own_file, is_required=False)

    @property
    def can_make(self) -> bool:
        return self.own_file is not None and self.text is None and self.file is None

    def describe_remedy(self) -> str:
        """Return what to do if there is no key, and the database needs one."""
        setting = "set DAGMASTER_SECRETS_KEY or DAGMASTER_SECRETS_KEY_FILE"
        if not self.can_make:
            return setting
        return f"there is no file {self.own_file}, which had it: restore it, or {setting}"

    def make(self) -> Sequence[SecretKey]:
        """Make a key for an embedded database; raise `SecretsKeyMissing` for another one."""
        if self.own_file is None or not self.can_make:
            raise SecretsKeyMissing

        def fill(file: IO[bytes]) -> None:
            os.fchmod(file.fileno(), 0o600)
            file.write(f"{new_key()}\n".encode())

        # Another process may be faster: then its key is the key.
        atomic_files.create(self.own_file, fill)
        return _read_file(self.own_file, is_required=True)


def _read_file(path: Path, *, is_required: bool) -> Sequence[SecretKey]:
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii")
    except FileNotFoundError as error:
        if is_required:
            raise SecretsKeyMissing(
                f"there is no file {path}: DAGMASTER_SECRETS_KEY_FILE names it"
            ) from error
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise SecretsKeyWrong(f"the key file {path} cannot be read: {type(error).__name__}") from error
    if mode & _OTHERS:
        raise SecretsKeyWrong(f"others can read the key file {path}: `chmod 600 {path}`")
    return parse_keys(text, str(path))

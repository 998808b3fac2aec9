"""The vault of secret inputs: AES-256-GCM with the keys of an installation.

What is encrypted for one input of one job cannot be decrypted as another one: both are associated data.
Two keys are derived from each key: one encrypts, one makes the prints by which equal values are found.
`cryptography` is imported when the first secret input is sealed or opened.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Final

from dagmaster.adapters.secret_keys import KeySource, SecretKey, new_key
from dagmaster.errors import SecretsKeyMissing, SecretsKeyWrong, SecretUnreadable, StatementFailed
from dagmaster.ports.secret_vault import SealedValue, read_sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.secret_vault import InputOwner, RegisteredKey, SecretKeyRegistry

_LOGGER: Final = logging.getLogger("dagmaster.secrets")
REFRESH_SECONDS: Final = 5.0
"""How long a process seals with the key that it found current."""
_NONCE_BYTES: Final = 12
_PRINT_BYTES: Final = 16
_BLOCK: Final = 32
"""Values are padded to a multiple of this: the length of a ciphertext says less about a password."""
_VERIFIED: Final = b"dagmaster secrets key"


class KeyVault:
    """Seals with the current key of the registry, and opens with all keys of its source.

    Without a registry, as of jobs in memory, the first key is the current one.
    """

    def __init__(
        self,
        source: KeySource,
        registry: SecretKeyRegistry | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._registry = registry
        self._clock = clock
        self._keys: dict[str, SecretKey] = {}
        self._current: SecretKey | None = None
        self._is_clear = False
        self._prepared_at = 0.0

    async def prepare(self) -> None:
        """Find the current key; register the first one of an installation, or make it."""
        if (self._current is not None or self._is_clear) and (
            self._registry is None or self._clock() < self._prepared_at + REFRESH_SECONDS
        ):
            return
        keys = self._load()
        if self._registry is None:
            self._current = next(iter(keys or self._remember(self._source.make())))
            return
        current = _current(await self._registry.keys())
        if current is None:
            if not (keys or self._source.can_make) and await self._registry.allows_clear():
                self._store_in_clear()
                return
            first = next(iter(keys or self._remember(self._source.make())))
            await self._registry.register_first(first.id, verifier_of(first))
            current = _current(await self._registry.keys())
            if current is None:
                raise SecretsKeyWrong
        self._is_clear = False
        self._current, self._prepared_at = self._verified(current), self._clock()

    async def check(self) -> None:
        """Raise if the database has a key, and this process does not have it."""
        self._load()
        if self._registry is None:
            return
        try:
            current = _current(await self._registry.keys())
        except StatementFailed:
            # A user without any right to it, such as a gateway's: it needs no key.
            return
        if current is not None:
            self._verified(current)

    def seal(self, owner: InputOwner, name: str, value: JsonValue) -> JsonValue:
        if self._is_clear:
            return value
        key = self._current
        if key is None:
            raise SecretsKeyMissing
        text = json.dumps(value)
        padded = text.ljust(-(-len(text) // _BLOCK) * _BLOCK).encode()
        nonce = os.urandom(_NONCE_BYTES)
        ciphertext = nonce + _cipher(key).encrypt(nonce, padded, _binding(owner.job_id, name))
        return SealedValue(key.id, _encode(ciphertext), _print(key, owner.workflow_id, name, value)).to_json()

    def earlier_prints(self, owner: InputOwner, name: str, value: JsonValue) -> Sequence[str]:
        others = [key for key in self._keys.values() if key != self._current]
        return [_print(key, owner.workflow_id, name, value) for key in others]

    def open(self, job_id: str, name: str, stored: Any) -> Any:
        sealed = read_sealed(stored)
        if sealed is None:
            return stored
        key = self._find(job_id, name, sealed.key_id)
        from cryptography.exceptions import InvalidTag

        try:
            raw = _decode(sealed.ciphertext)
            text = _cipher(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _binding(job_id, name))
        except (InvalidTag, ValueError) as error:
            raise SecretUnreadable(
                f"the stored value of secret input {name!r} of job {job_id} was changed, or is of"
                " another job or input"
            ) from error
        return json.loads(text)

    def is_current(self, stored: Any) -> bool:
        sealed = read_sealed(stored)
        return sealed is not None and self._current is not None and sealed.key_id == self._current.id

    def newest(self) -> tuple[str, str]:
        """Return the id of the newest key of this process, and its verifier; raise if there is no key."""
        keys = self._load()
        if not keys:
            raise SecretsKeyMissing
        return keys[0].id, verifier_of(keys[0])

    def key_ids(self) -> list[str]:
        """Return the ids of the keys of this process, newest first."""
        return [key.id for key in self._load()]

    def _store_in_clear(self) -> None:
        if not self._is_clear:
            _LOGGER.warning(
                "secret inputs are stored in clear, as before the upgrade: make a key with `dagmaster"
                " secrets-key create`, and set DAGMASTER_SECRETS_KEY_FILE for all processes"
            )
        self._is_clear, self._prepared_at = True, self._clock()

    def _find(self, job_id: str, name: str, key_id: str) -> SecretKey:
        if key_id not in self._keys:
            # The file may have been made or changed since.
            self._load()
        key = self._keys.get(key_id)
        if key is None:
            raise SecretUnreadable(
                f"secret input {name!r} of job {job_id} was encrypted with key {key_id}, which this"
                " process does not"
                " have: add it to DAGMASTER_SECRETS_KEY or DAGMASTER_SECRETS_KEY_FILE and resume the"
                " job, or, if it is"
                " lost, submit the job again"
            )
        return key

    def _load(self) -> Sequence[SecretKey]:
        return self._remember(self._source.load())

    def _remember(self, keys: Sequence[SecretKey]) -> Sequence[SecretKey]:
        self._keys |= {key.id: key for key in keys}
        return keys

    def _verified(self, registered: RegisteredKey) -> SecretKey:
        """Return the current key of the database; raise if this process does not have it."""
        if not self._keys:
            raise SecretsKeyMissing(
                f"secret inputs of this database are encrypted with key {registered.key_id}, and"
                f" this process has no key: {self._source.describe_remedy()}. If the key is lost, see"
                " `dagmaster secrets-key rotate --help`"
            )
        key = self._keys.get(registered.key_id)
        if key is None or not _is_verified(key, registered.verifier):
            have = ", ".join(self._keys)
            raise SecretsKeyWrong(
                f"secret inputs of this database are encrypted with key {registered.key_id}, and"
                f" this process has {have}: set DAGMASTER_SECRETS_KEY or DAGMASTER_SECRETS_KEY_FILE to"
                " it, or to several, newest first"
            )
        return key


def memory_vault() -> KeyVault:
    """Return a vault with a key that exists only in this process: for jobs in memory."""
    return KeyVault(KeySource(text=new_key()))


def verifier_of(key: SecretKey) -> str:
    """Return a text for the registry that only this key can read."""
    nonce = os.urandom(_NONCE_BYTES)
    return _encode(nonce + _cipher(key).encrypt(nonce, _VERIFIED, key.id.encode()))


def _is_verified(key: SecretKey, verifier: str) -> bool:
    from cryptography.exceptions import InvalidTag

    try:
        raw = _decode(verifier)
        text = _cipher(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], key.id.encode())
    except (InvalidTag, ValueError):
        return False
    return hmac.compare_digest(text, _VERIFIED)


def _current(registered: Sequence[RegisteredKey]) -> RegisteredKey | None:
    return next((key for key in registered if key.is_current), None)


def _cipher(key: SecretKey) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(_derive(key, b"seal"))


def _derive(key: SecretKey, purpose: bytes) -> bytes:
    return hmac.new(key.raw, b"dagmaster secret inputs " + purpose, hashlib.sha256).digest()


def _binding(job_id: str, name: str) -> bytes:
    return json.dumps([job_id, name]).encode()


def _print(key: SecretKey, workflow_id: str, name: str, value: JsonValue) -> str:
    text = json.dumps([workflow_id, name, value], sort_keys=True)
    return _encode(hmac.new(_derive(key, b"print"), text.encode(), hashlib.sha256).digest()[:_PRINT_BYTES])


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)

"""Secret inputs at rest: how their values are stored, and the vault that encrypts and decrypts them.

The value is encrypted where a job is made, and decrypted where a handler is called. In between it is a
`SealedValue`: a JSON object in place of the value. Of jobs of earlier versions the stored value is the
value itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from dagmaster.errors import SecretsKeyMissing, SecretUnreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.json_types import JsonObject, JsonValue

_SEALED: Final = "$sealed"
_PRINT: Final = "print"


class SealedValue(NamedTuple):
    """An encrypted value. `print`: equal for equal values of one input, and useless without the key."""

    key_id: str
    ciphertext: str
    print: str

    def to_json(self) -> JsonObject:
        return {_SEALED: f"{self.key_id}.{self.ciphertext}", _PRINT: self.print}


def read_sealed(stored: Any) -> SealedValue | None:
    """Return a stored value of a secret input as a sealed one; None if it is the value itself."""
    if not isinstance(stored, dict) or stored.keys() != {_SEALED, _PRINT}:
        return None
    text, print_ = stored[_SEALED], stored[_PRINT]
    if not isinstance(text, str) or not isinstance(print_, str):
        return None
    key_id, _, ciphertext = text.partition(".")
    return SealedValue(key_id, ciphertext, print_)


def identity_of(stored: Any) -> JsonValue:
    """Return what two equal values of an input have in common: the print of a sealed one, else the value."""
    sealed = read_sealed(stored)
    value: JsonValue = stored if sealed is None else {_PRINT: sealed.print}
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOwner:
    """The job whose inputs are sealed: what is encrypted for it cannot be decrypted for another one."""

    job_id: str
    workflow_id: str


class SecretVault(Protocol):
    """Encrypts and decrypts secret inputs."""

    async def prepare(self) -> None:
        """Find the key to seal with, now: another one may be current since the last time.

        Raise `SecretsKeyMissing` or `SecretsKeyWrong` if this process cannot seal.
        """

    async def check(self) -> None:
        """Raise `SecretsKeyMissing` or `SecretsKeyWrong` if the installation has a key, and not this process.

        A process whose database user may not ask, as one that only shows jobs, passes.
        """

    def seal(self, owner: InputOwner, name: str, value: JsonValue) -> JsonValue:
        """Return a value as it is stored, after `prepare`: in clear while an upgrade has no key yet."""

    def earlier_prints(self, owner: InputOwner, name: str, value: JsonValue) -> Sequence[str]:
        """Return the prints of a value with each key that is not the current one, in one order."""

    def open(self, job_id: str, name: str, stored: Any) -> Any:
        """Return the value of a stored one; raise `SecretUnreadable` if that is not possible."""

    def is_current(self, stored: Any) -> bool:
        """Return whether a stored value is sealed with the key that `prepare` found."""


class ClosedVault:
    """The vault of a process without keys: it reads what earlier versions stored, and nothing else."""

    async def prepare(self) -> None:
        """Raise `SecretsKeyMissing`: nothing can be sealed."""
        raise SecretsKeyMissing

    async def check(self) -> None:
        """Pass: this process knows no registry."""

    def seal(self, _owner: InputOwner, _name: str, _value: JsonValue) -> JsonValue:
        raise SecretsKeyMissing

    def earlier_prints(self, _owner: InputOwner, _name: str, _value: JsonValue) -> Sequence[str]:
        return ()

    def open(self, _job_id: str, name: str, stored: Any) -> Any:
        if read_sealed(stored) is None:
            return stored
        raise SecretUnreadable(
            f"the value of secret input {name!r} is encrypted, and this process has no key: set"
            " DAGMASTER_SECRETS_KEY or DAGMASTER_SECRETS_KEY_FILE"
        )

    def is_current(self, _stored: Any) -> bool:
        return False


def earlier_identities(
    vault: SecretVault, owner: InputOwner, names: frozenset[str], inputs: Mapping[str, JsonValue]
) -> list[JsonObject]:
    """Return the inputs as earlier requests had them: with the prints of each earlier key, and in clear."""
    prints = {name: vault.earlier_prints(owner, name, inputs[name]) for name in sorted(names & inputs.keys())}
    with_prints = [
        {**inputs, **{name: {_PRINT: print_} for name, print_ in zip(prints, of_key, strict=True)}}
        for of_key in zip(*prints.values(), strict=True)
    ]
    return [*with_prints, dict(inputs)]


async def seal_inputs(
    vault: SecretVault, owner: InputOwner, names: frozenset[str], inputs: Mapping[str, JsonValue]
) -> JsonObject:
    """Return the inputs of a new job as they are stored: secret ones sealed."""
    if names.isdisjoint(inputs):
        return dict(inputs)
    await vault.prepare()
    return {
        name: vault.seal(owner, name, value) if name in names else value for name, value in inputs.items()
    }


def open_inputs(
    vault: SecretVault, job_id: str, names: frozenset[str], inputs: Mapping[str, JsonValue]
) -> JsonObject:
    """Return stored inputs with their values; raise `SecretUnreadable` if one cannot be decrypted."""
    return {
        name: vault.open(job_id, name, value) if name in names else value for name, value in inputs.items()
    }


def readable_inputs(
    vault: SecretVault, job_id: str, names: frozenset[str], inputs: Mapping[str, JsonValue]
) -> JsonObject:
    """Return stored inputs with their values, without secret ones that cannot be decrypted."""
    if names.isdisjoint(inputs):
        return dict(inputs)
    readable: JsonObject = {}
    for name, value in inputs.items():
        try:
            readable[name] = vault.open(job_id, name, value) if name in names else value
        except (SecretUnreadable, SecretsKeyMissing):
            continue
    return readable


# ── Keys in the database ────────────────────────────────────────────────────────────────────────────────────


class RegisteredKey(NamedTuple):
    """A key that the database knows by its id. `verifier`: a text that only the key can read."""

    key_id: str
    verifier: str
    is_current: bool


class SecretKeyRegistry(Protocol):
    """The keys of an installation by their ids. It never has a key."""

    async def keys(self) -> Sequence[RegisteredKey]:
        """Return all registered keys."""

    async def allows_clear(self) -> bool:
        """Return whether there is no key yet, and there were secret inputs before there were keys."""

    async def register_first(self, key_id: str, verifier: str) -> None:
        """Register a key as the current one, unless there is a current one."""


class StoredSecrets(NamedTuple):
    """A row with secret inputs. `id`: of the job or task. `names`: the inputs that are declared secret."""

    id: str
    job_id: str
    workflow_id: str
    names: frozenset[str]
    text: str
    """The inputs of a job, the secrets of a task, or one signing secret, as JSON."""


class SecretKeyAdmin(SecretKeyRegistry, Protocol):
    """Changes the current key, and reads and rewrites the rows that are sealed, a batch at a time."""

    async def make_current(self, key_id: str, verifier: str) -> None:
        """Register a key if it is not registered, and make it the current one."""

    async def forget(self, key_id: str) -> None:
        """Remove a key that is not the current one."""

    async def jobs(self, *, after: str | None, limit: int) -> Sequence[StoredSecrets]:
        """Return jobs of workflows with secret inputs, oldest first."""

    async def tasks(self, *, after: str | None, limit: int) -> Sequence[StoredSecrets]:
        """Return queued tasks with secrets, oldest first."""

    async def signing_secrets(self, *, after: str | None, limit: int) -> Sequence[StoredSecrets]:
        """Return the secrets with which callbacks are signed, by their ids."""

    async def rewrite_signing_secret(self, row: StoredSecrets, text: str) -> None:
        """Replace a signing secret, if it is as it was read."""

    async def rewrite_job(self, row: StoredSecrets, text: str) -> None:
        """Replace the inputs of a job, if they are as they were read."""

    async def rewrite_task(self, row: StoredSecrets, text: str) -> None:
        """Replace the secrets of a task, if they are as they were read."""

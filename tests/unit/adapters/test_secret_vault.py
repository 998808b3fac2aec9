"""The vault of secret inputs, its keys, and the registry that tells a wrong key."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.adapters.secret_keys import KeySource, new_key, parse_keys
from dagmaster.adapters.secret_vault import REFRESH_SECONDS, KeyVault, memory_vault, verifier_of
from dagmaster.errors import SecretsKeyMissing, SecretsKeyWrong, SecretUnreadable
from dagmaster.ports.secret_vault import (
    ClosedVault,
    InputOwner,
    RegisteredKey,
    identity_of,
    read_sealed,
    readable_inputs,
    seal_inputs,
)

if TYPE_CHECKING:
    from pathlib import Path

OWNER = InputOwner(job_id="7", workflow_id="w")


class Registry:
    """Keys by their ids, in memory."""

    def __init__(self, *, is_upgraded: bool = False) -> None:
        self.is_upgraded = is_upgraded
        self.registered: list[RegisteredKey] = []
        self.reads = 0

    async def keys(self) -> list[RegisteredKey]:
        self.reads += 1
        return self.registered

    async def allows_clear(self) -> bool:
        return self.is_upgraded and not self.registered

    async def register_first(self, key_id: str, verifier: str) -> None:
        if not self.registered:
            self.registered.append(RegisteredKey(key_id, verifier, is_current=True))


def prepared(vault: KeyVault) -> KeyVault:
    asyncio.run(vault.prepare())
    return vault


def vault_of(*keys: str, registry: Registry | None = None) -> KeyVault:
    return KeyVault(KeySource(text=",".join(keys)), registry)


@pytest.mark.parametrize(
    "value", ["hunter2", "", 8675309421, None, True, {"a": ["ü", {"b": 1.5}]}, ["x"] * 100]
)
def test_a_sealed_value_comes_back_and_its_stored_form_does_not_show_it(value: Any):
    vault = prepared(memory_vault())
    stored = vault.seal(OWNER, "key", value)
    assert vault.open("7", "key", stored) == value
    assert vault.is_current(stored)
    assert "hunter2" not in f"{stored}"


def test_what_is_sealed_for_one_input_of_one_job_cannot_be_read_as_another():
    vault = prepared(memory_vault())
    stored = vault.seal(OWNER, "key", "hunter2")
    for job_id, name in (("8", "key"), ("7", "other")):
        with pytest.raises(SecretUnreadable, match="another job or input"):
            vault.open(job_id, name, stored)
    sealed = read_sealed(stored)
    assert sealed is not None
    changed = sealed._replace(
        ciphertext=("A" if sealed.ciphertext[0] != "A" else "B") + sealed.ciphertext[1:]
    )
    with pytest.raises(SecretUnreadable):
        vault.open("7", "key", changed.to_json())


def test_the_same_value_is_another_ciphertext_and_the_same_print():
    vault = prepared(memory_vault())
    one, two = vault.seal(OWNER, "key", "1234"), vault.seal(OWNER, "key", "1234")
    assert one != two
    assert identity_of(one) == identity_of(two)
    others = [
        vault.seal(OWNER, "key", "1235"),
        vault.seal(OWNER, "other", "1234"),
        vault.seal(InputOwner(job_id="7", workflow_id="v"), "key", "1234"),
        prepared(memory_vault()).seal(OWNER, "key", "1234"),
    ]
    assert all(identity_of(one) != identity_of(other) for other in others)


def test_the_length_of_a_short_value_does_not_show():
    vault = prepared(memory_vault())
    lengths = {len(f"{vault.seal(OWNER, 'key', 'x' * length)}") for length in range(30)}
    assert len(lengths) == 1


def test_a_value_of_an_earlier_version_is_read_as_it_is():
    for vault in (prepared(memory_vault()), ClosedVault()):
        assert vault.open("7", "key", "hunter2") == "hunter2"
        assert vault.open("7", "key", {"$sealed": 5, "print": "x"}) == {"$sealed": 5, "print": "x"}


def test_a_process_without_keys_seals_nothing_and_reads_nothing_sealed():
    closed = ClosedVault()
    with pytest.raises(SecretsKeyMissing):
        asyncio.run(seal_inputs(closed, OWNER, frozenset({"key"}), {"key": "x"}))
    stored = prepared(memory_vault()).seal(OWNER, "key", "hunter2")
    with pytest.raises(SecretUnreadable, match="DAGMASTER_SECRETS_KEY"):
        closed.open("7", "key", stored)
    assert readable_inputs(closed, "7", frozenset({"key"}), {"key": stored, "n": 1}) == {"n": 1}
    # Nothing is asked for a job without a secret input.
    assert asyncio.run(seal_inputs(closed, OWNER, frozenset({"key"}), {"n": 1})) == {"n": 1}


# ── Keys ──


def test_keys_are_read_in_order_and_their_ids_say_nothing():
    first, second = new_key(), new_key()
    for text in (f"{first},{second}", f"{first}\n{second}\n", f"  {first} , {second}"):
        ids = [key.id for key in parse_keys(text, "x")]
        assert len(set(ids)) == 2
        assert not any(one in first + second for one in ids)
    assert first not in repr(parse_keys(first, "x"))


@pytest.mark.parametrize("text", ["short", "k" * 41, "k" * 42 + "ü", "x" * 44, f"{'k' * 43} y"])
def test_what_is_not_a_key_is_refused_without_its_text(text: str):
    with pytest.raises(SecretsKeyWrong, match="secrets-key create") as refused:
        parse_keys(text, "DAGMASTER_SECRETS_KEY")
    assert text not in str(refused.value)


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path):
    file = tmp_path / "key"
    file.write_text(new_key())
    file.chmod(0o640)
    with pytest.raises(SecretsKeyWrong, match="chmod 600"):
        KeySource(file=file).load()
    file.chmod(0o600)
    assert len(KeySource(file=file).load()) == 1
    with pytest.raises(SecretsKeyMissing, match="there is no file"):
        KeySource(file=tmp_path / "none").load()
    with pytest.raises(SecretsKeyWrong, match="both set"):
        KeySource(file=file, text=new_key()).load()


def test_an_embedded_database_gets_a_private_key_file_when_the_first_secret_is_sealed(tmp_path: Path):
    source = KeySource(own_file=tmp_path / "data-secrets-key")
    registry = Registry()
    vault = KeyVault(source, registry)
    asyncio.run(vault.check())
    assert not list(tmp_path.iterdir())
    old_mask = os.umask(0)
    try:
        prepared(vault)
    finally:
        os.umask(old_mask)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    # Another process reads the same key.
    stored = vault.seal(OWNER, "key", "hunter2")
    assert KeyVault(source, registry).open("7", "key", stored) == "hunter2"
    # A file that is lost is not replaced by another key.
    file.unlink()
    with pytest.raises(SecretsKeyMissing, match=f"there is no file {file}.*--help"):
        asyncio.run(KeyVault(source, registry).prepare())


# ── The registry ──


def test_the_first_key_is_registered_and_a_wrong_one_is_noticed():
    registry, key = Registry(), new_key()
    asyncio.run(vault_of(key, registry=registry).check())
    assert registry.registered == []
    prepared(vault_of(key, registry=registry))
    ((key_id, _, is_current),) = registry.registered
    assert is_current
    asyncio.run(vault_of(new_key(), key, registry=registry).check())
    for wrong, error in (
        (vault_of(new_key(), registry=registry), SecretsKeyWrong),
        (KeyVault(KeySource(), registry), SecretsKeyMissing),
    ):
        for use in (wrong.check, wrong.prepare):
            with pytest.raises(error, match=key_id):
                asyncio.run(use())
    # A key with the right id that cannot read the verifier.
    registry.registered = [RegisteredKey(key_id, verifier_of(parse_keys(new_key(), "x")[0]), is_current=True)]
    with pytest.raises(SecretsKeyWrong):
        asyncio.run(vault_of(key, registry=registry).check())


def test_an_upgraded_installation_stores_values_in_clear_until_it_has_a_key(caplog, tmp_path: Path):
    registry, now = Registry(is_upgraded=True), 0.0
    without = KeyVault(KeySource(), registry, clock=lambda: now)
    for _ in range(2):
        assert prepared(without).seal(OWNER, "key", "hunter2") == "hunter2"
        assert without.open("7", "key", "hunter2") == "hunter2"
        now += REFRESH_SECONDS
    assert caplog.text.count("dagmaster secrets-key create") == 1
    # The embedded server makes its key at once.
    own = prepared(KeyVault(KeySource(own_file=tmp_path / "key"), Registry(is_upgraded=True)))
    assert read_sealed(own.seal(OWNER, "key", "hunter2"))
    sealed = prepared(vault_of(new_key(), registry=registry)).seal(OWNER, "key", "hunter2")
    assert read_sealed(sealed)
    # From now on it is needed.
    now += REFRESH_SECONDS
    with pytest.raises(SecretsKeyMissing, match="encrypted with key"):
        prepared(without)


def test_new_values_are_sealed_with_the_current_key_of_the_registry_and_old_ones_are_read():
    registry, old, new = Registry(), new_key(), new_key()
    now = [0.0]
    stored = prepared(vault_of(old, registry=registry)).seal(OWNER, "key", "x")
    vault = KeyVault(KeySource(text=f"{new},{old}"), registry, clock=lambda: now[0])
    prepared(vault)
    assert vault.is_current(vault.seal(OWNER, "key", "x"))
    assert identity_of(vault.seal(OWNER, "key", "x")) == identity_of(stored)
    (first,) = parse_keys(new, "x")
    registry.registered = [RegisteredKey(first.id, verifier_of(first), is_current=True)]
    reads = registry.reads
    assert vault.is_current(stored)
    prepared(vault)
    assert registry.reads == reads
    now[0] = REFRESH_SECONDS
    prepared(vault)
    assert not vault.is_current(stored)
    assert vault.open("7", "key", stored) == "x"


@pytest.mark.process
def test_nothing_is_imported_before_a_secret_input_occurs():
    code = (
        "import sys, dagmaster.bootstrap.secret_keys as keys, dagmaster.adapters.secret_vault as vault;"
        "vault.memory_vault(); print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

"""How signing secrets are sealed: as secret inputs are, bound to the id of the secret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from dagmaster.errors import SecretsKeyMissing
from dagmaster.ports.secret_vault import InputOwner, read_sealed

if TYPE_CHECKING:
    from dagmaster.ports.secret_vault import SecretVault

NAME: Final = "signing_secret"
"""What a signing secret is called where inputs have a name."""


def owner_of(secret_id: str) -> InputOwner:
    """Return what a signing secret is bound to. The id of no job looks like it."""
    return InputOwner(job_id=f"signing:{secret_id}", workflow_id=f"signing:{secret_id}")


async def seal_secret(vault: SecretVault, secret_id: str, secret: str) -> str:
    """Return a secret as it is stored; raise `SecretsKeyMissing` if it would be stored in clear."""
    await vault.prepare()
    sealed = vault.seal(owner_of(secret_id), NAME, secret)
    if read_sealed(sealed) is None:
        raise SecretsKeyMissing
    return json.dumps(sealed)


def open_secret(vault: SecretVault, secret_id: str, sealed: str) -> str:
    """Return the secret of a stored one; raise `SecretUnreadable` if that is not possible."""
    return str(vault.open(owner_of(secret_id).job_id, NAME, json.loads(sealed)))

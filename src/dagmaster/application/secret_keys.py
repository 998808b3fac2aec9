"""Administration of the keys of secret inputs: which rows need which key, and the change to the newest one.

A rotation may end at any point: each row is rewritten by itself, and the next one goes on with the rest.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.views.secret_keys import SecretKeysView, SecretKeyView
from dagmaster.errors import SecretUnreadable
from dagmaster.ports.secret_vault import InputOwner, read_sealed
from dagmaster.ports.signing_secrets import NAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from dagmaster.adapters.secret_vault import KeyVault
    from dagmaster.ports.secret_vault import SecretKeyAdmin, StoredSecrets

BATCH: Final = 200
CLEAR: Final = ""
"""The id under which values are counted that an earlier version stored as they are."""


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """The keys of this process, and the keys of the database."""

    vault: KeyVault
    admin: SecretKeyAdmin


async def check_keys(keys: SecretKeys) -> SecretKeysView:
    """Return which keys the database knows, how many rows need each, and which of them this process has."""
    counts: Counter[tuple[str, str]] = Counter()
    async for kind, row, inputs in _rows(keys.admin):
        counts.update(
            (kind, key_id) for key_id in {_key_id(inputs[name]) for name in row.names & inputs.keys()}
        )
    registered = {key.key_id: key.is_current for key in await keys.admin.keys()}
    own = keys.vault.key_ids()
    known = dict.fromkeys([*registered, *own, *sorted(key_id for _, key_id in counts if key_id != CLEAR)])
    return SecretKeysView(
        keys=tuple(
            SecretKeyView(
                key_id=key_id,
                is_current=registered.get(key_id, False),
                is_here=key_id in own,
                jobs=counts["job", key_id],
                tasks=counts["task", key_id],
                signing_secrets=counts["signing_secret", key_id],
            )
            for key_id in known
        ),
        clear_jobs=counts["job", CLEAR],
        clear_tasks=counts["task", CLEAR],
    )


async def rotate_keys(keys: SecretKeys, *, is_lost: bool = False) -> SecretKeysView:
    """Make the newest key of this process the current one, and encrypt all rows with it.

    `is_lost`: the current key is lost; what only it can read stays unreadable. Raise `SecretsKeyMissing` or
    `SecretsKeyWrong` if this process does not have the current key, and it is not said to be lost.
    """
    key_id, verifier = keys.vault.newest()
    if not is_lost:
        await keys.vault.check()
    await keys.admin.make_current(key_id, verifier)
    await keys.vault.prepare()
    async for kind, row, inputs in _rows(keys.admin):
        renewed = _renewed(keys.vault, row, inputs)
        if renewed == inputs:
            continue
        if kind == "job":
            await keys.admin.rewrite_job(row, json.dumps(renewed))
        elif kind == "signing_secret":
            await keys.admin.rewrite_signing_secret(row, json.dumps(renewed[NAME]))
        else:
            await keys.admin.rewrite_task(row, json.dumps({**json.loads(row.text), "inputs": renewed}))
    view = await check_keys(keys)
    for key in view.keys:
        if not (key.is_current or key.is_needed):
            await keys.admin.forget(key.key_id)
    return view


async def _rows(admin: SecretKeyAdmin) -> AsyncIterator[tuple[str, StoredSecrets, Mapping[str, Any]]]:
    """Yield every row with secret inputs: its kind, the row, and its inputs.

    Tasks come after jobs: turns make them of these.
    """
    for kind, read in (("job", admin.jobs), ("task", admin.tasks), ("signing_secret", admin.signing_secrets)):
        after = None
        while rows := await read(after=after, limit=BATCH):
            for row in rows:
                document = json.loads(row.text)
                yield kind, row, _inputs(kind, document)
            after = rows[-1].id


def _inputs(kind: str, document: Any) -> Mapping[str, Any]:
    if kind == "signing_secret":
        return {NAME: document}
    inputs: Mapping[str, Any] = document if kind == "job" else document["inputs"]
    return inputs


def _renewed(vault: KeyVault, row: StoredSecrets, inputs: Mapping[str, Any]) -> dict[str, Any]:
    owner = InputOwner(job_id=row.job_id, workflow_id=row.workflow_id)

    def renew(name: str, stored: Any) -> Any:
        if name not in row.names or vault.is_current(stored):
            return stored
        try:
            return vault.seal(owner, name, vault.open(row.job_id, name, stored))
        except SecretUnreadable:
            return stored

    return {name: renew(name, stored) for name, stored in inputs.items()}


def _key_id(stored: Any) -> str:
    sealed = read_sealed(stored)
    return CLEAR if sealed is None else sealed.key_id

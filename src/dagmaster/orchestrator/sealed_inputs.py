"""The secret inputs of a job that was just loaded, sealed with the current key."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.engine.expressions.secret_parts import secret_names
from dagmaster.errors import SecretsKeyMissing, SecretsKeyWrong, SecretUnreadable
from dagmaster.ports.secret_vault import InputOwner

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.secret_vault import SecretVault


async def with_current_seals(vault: SecretVault, graph: Graph, claimed: ClaimedJob) -> ClaimedJob:
    """Return a loaded job with its secret inputs sealed with the current key, for its tasks.

    Its row stays as it is: `dagmaster secrets-key rotate` rewrites rows. What cannot be decrypted stays
    as it is, and the tasks that use it fail.
    """
    names = secret_names(graph.inputs)
    inputs = claimed.inputs if names else {}
    if names.isdisjoint(inputs):
        return claimed
    try:
        await vault.prepare()
    except (SecretsKeyMissing, SecretsKeyWrong):
        return claimed
    owner = InputOwner(job_id=claimed.row.id, workflow_id=graph.workflow_id)

    def renewed(name: str, stored: JsonValue) -> JsonValue:
        if name not in names or vault.is_current(stored):
            return stored
        try:
            return vault.seal(owner, name, vault.open(owner.job_id, name, stored))
        except SecretUnreadable:
            return stored

    current = {name: renewed(name, stored) for name, stored in inputs.items()}
    if current != inputs:
        claimed.new = replace(claimed.new, inputs=json.dumps(current))
    return claimed

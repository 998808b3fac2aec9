"""`dagmaster keys list`: the state of each key."""

from __future__ import annotations

import pytest

from dagmaster.application.views import ApiKeyView
from dagmaster.cli.commands.keys import _state

DAY = 86_400.0
NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("expires_at", "revoked_at", "state"),
    [
        (None, None, "valid"),
        (NOW + 90 * DAY, None, "until YYYY-MM-DD"),
        (NOW + DAY, None, "until YYYY-MM-DD HH:MM"),
        (NOW - 1, None, "expired"),
        (NOW - 1, NOW - 2, "revoked"),
    ],
)
def test_a_key_is_valid_expires_has_expired_or_is_revoked(expires_at, revoked_at, state):
    view = ApiKeyView(
        key_id="1",
        name="ci",
        scopes=("read",),
        created_at=0.0,
        created_by="ada",
        expires_at=expires_at,
        revoked_at=revoked_at,
        last_used_at=None,
    )
    text = _state(view, NOW)
    assert (text.split()[0], len(text)) == (state.split()[0], len(state))

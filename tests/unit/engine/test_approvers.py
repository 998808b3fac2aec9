"""Who may answer an approval: names with and without a namespace."""

from __future__ import annotations

import pytest

from dagmaster.client.system import current_user
from dagmaster.engine.approvals_and_waits import may_answer
from dagmaster.engine.graph import ApprovalSpec
from dagmaster.ports.api_keys import Namespace, actor_of
from dagmaster.testing.factories import approval


@pytest.mark.parametrize(
    ("approvers", "by", "is_allowed"),
    [
        ("", "anyone", True),
        ("anna", "anna", True),
        ("anna", "oidc:anna", True),
        ("anna", "key:anna", False),
        ("anna", "settings:anna", False),
        ("key:anna", "key:anna", True),
        ("key:anna", "anna", False),
        ("key:anna", "oidc:anna", False),
        # A provider names a person as a key is named.
        ("key:anna", "oidc:key:anna", False),
        ("oidc:anna", "oidc:anna", True),
        ("oidc:anna", "anna", False),
        ("anna", None, False),
        ("anna bob", "bob", True),
    ],
)
def test_a_key_named_like_an_approver_does_not_approve(approvers, by, is_allowed):
    spec = approval(approvers=approvers)("a")
    assert isinstance(spec, ApprovalSpec)
    assert may_answer(spec, by) is is_allowed


def test_a_user_whose_name_looks_like_a_key_is_a_user(monkeypatch):
    assert actor_of(Namespace.USER, "anna") == "anna"
    assert actor_of(Namespace.USER, "a:b") == "a:b"
    assert actor_of(Namespace.USER, "key:ci") == "user:key:ci"
    assert actor_of(Namespace.KEY, "key:ci") == "key:key:ci"
    monkeypatch.setenv("LOGNAME", "oidc:anna")
    assert current_user() == "user:oidc:anna"

"""Errors about the key that encrypts secrets, and about what it encrypted."""

from __future__ import annotations

from dagmaster.errors.base import Category, DagmasterError


class SecretsKeyMissing(DagmasterError):
    """Secret inputs are encrypted, and this process has no key: set DAGMASTER_SECRETS_KEY(_FILE)."""

    code = "secrets_key_missing"
    category = Category.CONFLICT


class SecretsKeyWrong(DagmasterError):
    """The key for secret inputs is not the one of this database."""

    code = "secrets_key_wrong"
    category = Category.CONFLICT


class SecretUnreadable(DagmasterError):
    """The value of a secret input cannot be decrypted."""

    code = "secret_unreadable"
    category = Category.CONFLICT

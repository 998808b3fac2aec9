"""Errors about callbacks, the endpoints that they go to, and what they are signed with."""

from __future__ import annotations

from dagmaster.errors.base import Category, DagmasterError


class CallbackUrlInvalid(DagmasterError):
    """The address cannot be one of callbacks."""

    code = "callback_url_invalid"
    category = Category.INVALID
    http_status = 422


class CallbackNotFound(DagmasterError):
    """There is no such callback."""

    code = "callback_not_found"
    category = Category.NOT_FOUND


class EndpointNotFound(DagmasterError):
    """No callback goes to this endpoint, or it is paused, or not paused, already."""

    code = "endpoint_not_found"
    category = Category.NOT_FOUND


class SigningSecretNotFound(DagmasterError):
    """There is no such signing secret."""

    code = "signing_secret_not_found"
    category = Category.NOT_FOUND


class SigningSecretsInUse(DagmasterError):
    """Two signing secrets of this kind are active: revoke one, or wait until it expires."""

    code = "signing_secrets_in_use"
    category = Category.CONFLICT

"""The settings of the key that encrypts secret inputs."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field, SecretStr


class SecretInputSettings(BaseModel):
    """The key that encrypts secret inputs."""

    secrets_key: SecretStr | None = Field(
        default=None,
        description="The key that encrypts secret inputs, or several, newest first, with commas between them:"
        " `dagmaster secrets-key create` makes one. Every process that submits, orchestrates or runs jobs"
        " with secret inputs needs it. Default: with the embedded PostgreSQL in data directory X, the file"
        " X-secrets-key.",
    )
    secrets_key_file: Path | None = Field(
        default=None,
        description="A file with these keys instead, one a line, newest first, which only its owner may read"
        " (0600).",
    )

"""`dagmaster callbacks secrets`: what callbacks are signed with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import click
from rich.table import Table

from dagmaster.application.callbacks import KEYS_PATH
from dagmaster.application.signing_secrets import (
    DEFAULT_OVERLAP_HOURS,
    MAX_OVERLAP_HOURS,
    create_signing_secret,
    list_signing_secrets,
    revoke_signing_secret,
)
from dagmaster.cli.commands.jobs_control import sender
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.render.text import local_time
from dagmaster.cli.system import Part, open_session
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.records.callbacks import SecretKind
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, print_table

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable

    from dagmaster.application.views import SigningSecretRecord
    from dagmaster.client.system import System

T = TypeVar("T")


@click.group()
def secrets() -> None:
    """Make, list and revoke what callbacks are signed with.

    A tenant without any gets a key pair with its first callback; its public key is at the server's
    /.well-known/webhook-keys. They are encrypted with the key of the installation (`dagmaster secrets-key`).
    """


@secrets.command()
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in SecretKind]),
    default=SecretKind.HMAC.value,
    show_default=True,
    help="hmac: a secret that the receiver shares; ed25519: a key pair.",
)
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="Whose callbacks it signs.")
@click.option(
    "--overlap-hours",
    type=click.FloatRange(0, MAX_OVERLAP_HOURS),
    default=DEFAULT_OVERLAP_HOURS,
    show_default=True,
    help="How long the secret that it replaces signs as well.",
)
@json_option
@data_dir_option
def create(
    *, kind: str, tenant: str, overlap_hours: float, as_json: bool, data_dir: pathlib.Path | None
) -> int:
    """Create a secret. It is shown once; the one before it signs as well for a while, so nothing is rejected.

    \b
    Examples:
      dagmaster callbacks secrets create
      dagmaster callbacks secrets create --kind ed25519 --overlap-hours 72
    """
    view = _run(
        data_dir,
        lambda system: system.call(
            create_signing_secret,
            SecretKind(kind),
            origin=ChangeOrigin(actor=sender()),
            tenant=tenant,
            overlap_hours=overlap_hours,
        ),
    )
    if as_json:
        echo_json(view.to_dict())
    elif view.secret is not None:
        echo(f"secret {view.secret_id} of {view.tenant}. It is not shown again:", err=True)
        echo(view.secret)
    else:
        echo(f"key pair {view.secret_id} of {view.tenant}; the public key is at {keys_path(view)}:", err=True)
        echo(view.public_key or "")
    return COMPLETED


@secrets.command("list")
@click.option("--tenant", help="Of this tenant only.")
@json_option
@data_dir_option
def list_command(*, tenant: str | None, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """List secrets without what they are, and where public keys are."""
    records = _run(data_dir, lambda system: system.call(list_signing_secrets, tenant=tenant))
    if as_json:
        echo_json([record.to_dict() for record in records])
        return COMPLETED
    if not records:
        echo("no signing secrets yet: the first callback makes a key pair", err=True)
        return COMPLETED
    table, now = Table(box=None, pad_edge=False), time.time()
    for column in ("secret", "tenant", "kind", "created", "state", "public keys at"):
        table.add_column(column, no_wrap=column != "created", overflow="fold")
    for record in records:
        place = keys_path(record) if record.public_key is not None else ""
        row = (record.secret_id, record.tenant, record.kind.value, local_time(record.created_at))
        table.add_row(*row, _state(record, now), place)
    print_table(table)
    return COMPLETED


@secrets.command()
@click.argument("secret_id", metavar="SECRET")
@json_option
@data_dir_option
def revoke(secret_id: str, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Revoke a secret: within seconds nothing is signed with it."""
    record = _run(
        data_dir,
        lambda system: system.call(revoke_signing_secret, secret_id, origin=ChangeOrigin(actor=sender())),
    )
    if as_json:
        echo_json(record.to_dict())
    else:
        echo(f"revoked secret {record.secret_id} of {record.tenant}", err=True)
    return COMPLETED


def keys_path(record: SigningSecretRecord) -> str:
    """Return where the public keys of a tenant are read."""
    return KEYS_PATH if record.tenant == DEFAULT_TENANT else f"{KEYS_PATH}/{record.key_set}"


def _state(record: SigningSecretRecord, now: float) -> str:
    if record.revoked_at is not None:
        return "revoked"
    if record.expires_at is None:
        return "active"
    return f"until {local_time(record.expires_at)}" if now < record.expires_at else "expired"


def _run(data_dir: pathlib.Path | None, work: Callable[[System], Awaitable[T]]) -> T:
    with open_session(data_dir) as session:
        return session.run(work, migrate=True, part=Part.CALLBACKS)

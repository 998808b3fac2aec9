"""`dagmaster partners`: help a partner to integrate."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import click

from dagmaster.cli.main import COMPLETED, FAILED
from dagmaster.sdk.command_line import json_option
from dagmaster.sdk.terminal import echo, echo_json, style

if TYPE_CHECKING:
    import httpx

    from dagmaster.application.partner_check import Answer, PartnerCheck

TIMEOUT_SECONDS: Final = 15.0


@click.group()
def partners() -> None:
    """Help a partner to integrate."""


@partners.command(
    epilog="Exit codes: 0 every sample was judged well, 1 at least one was not, 2 a wrong secret."
)
@click.argument("url")
@click.option(
    "--secret",
    envvar="DAGMASTER_WEBHOOK_SECRET",
    required=True,
    help="What the receiver verifies with: whsec_… . Default: DAGMASTER_WEBHOOK_SECRET.",
)
@json_option
def check(url: str, *, secret: str, as_json: bool) -> int:
    """Send sample callbacks to a receiver, and check what it answers.

    They are valid, repeated, tampered with, replayed, unsigned, or signed during a rotation: a receiver takes
    the good ones and refuses the bad ones. It asks neither a server nor a database.

    \b
    Example:
      dagmaster partners check http://127.0.0.1:8000/callbacks --secret whsec_...
    """
    from dagmaster.application.partner_check import check_partner

    if not secret.startswith("whsec_"):
        raise click.UsageError("--secret: a shared secret begins with whsec_")

    async def run() -> list[PartnerCheck]:
        import httpx

        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as http:

            async def send(headers: dict[str, str], body: bytes) -> Answer:
                return await _post(http, url, headers, body)

            return await check_partner(send, secret, now=time.time())

    try:
        checks = asyncio.run(run())
    except ValueError as error:
        raise click.UsageError(f"--secret: {error}") from None
    if as_json:
        echo_json([_document(one) for one in checks])
    elif all(one.status is None for one in checks) and len({one.problem for one in checks}) == 1:
        echo(f"{url}: {checks[0].problem}. Start the receiver, or correct the address", err=True)
    else:
        for one in checks:
            mark = style("failed", fg="red") if one.problem else style("ok", fg="green")
            echo(f"{one.name:<22} {mark}{f'  {one.problem}' if one.problem else ''}")
    return FAILED if any(one.problem for one in checks) else COMPLETED


async def _post(http: httpx.AsyncClient, url: str, headers: dict[str, str], body: bytes) -> Answer:
    import httpx

    from dagmaster.application.partner_check import Answer

    begun = time.monotonic()
    try:
        answer = await http.post(url, headers=headers, content=body)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Answer(None, time.monotonic() - begun, str(error) or type(error).__name__)
    return Answer(answer.status_code, time.monotonic() - begun)


def _document(one: PartnerCheck) -> dict[str, object]:
    return {"name": one.name, "status": one.status, "seconds": round(one.seconds, 3), "problem": one.problem}

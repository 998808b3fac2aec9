"""Connections to hosts that callers name: resolved once, and to the address that was checked.

A name that leads to this machine, to a private network or to the metadata of a cloud is refused, whatever it
led to a moment before. The certificate is checked for the name. There are no proxies and no redirects.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from dagmaster.ports.callback_urls import is_public

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

MAX_ADDRESSES: Final = 4
"""How many addresses of a name are tried."""


class AddressRefused(OSError):
    """The host leads to an address that is not public."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name, in the order of the resolver."""
    rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


@cache
def _default_tls() -> ssl.SSLContext:
    """Return the context of this machine's authorities: it takes 20 ms to load them."""
    return ssl.create_default_context()


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedConnections:
    """Opens connections. `allows_loopback`: also to this machine."""

    allows_loopback: bool = False
    resolve: Resolve = resolve
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host; raise `AddressRefused` if one of them is not public.

        One is enough: an attacker mixes a private address with public ones, and waits for its turn.
        """
        candidates = list(await self.resolve(host, port))
        for text in candidates:
            if not self._is_allowed(text):
                raise AddressRefused("the host leads to an address that is not public")
        if not candidates:
            raise OSError("the host has no address")
        return candidates[:MAX_ADDRESSES]

    def _is_allowed(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return is_public(address) or (self.allows_loopback and address.is_loopback)

    @contextlib.asynccontextmanager
    async def open(
        self, host: str, port: int, *, is_secure: bool
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Connect to the first address that answers, and close at the end."""
        addresses = await self.addresses(host, port)
        context = (self.tls or _default_tls()) if is_secure else None
        for position, address in enumerate(addresses):
            try:
                # The address, never the name: nothing asks the resolver again.
                reader, writer = await asyncio.open_connection(
                    address, port, ssl=context, server_hostname=host if is_secure else None
                )
                break
            except ssl.SSLError:
                raise
            except OSError:
                if position == len(addresses) - 1:
                    raise
        else:  # pragma: no cover - there is at least one address
            raise OSError("the host has no address")
        try:
            yield reader, writer
        finally:
            # Not closed politely: nobody waits for what a receiver may still send.
            writer.transport.abort()

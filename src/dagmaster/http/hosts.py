"""Which hosts a request may name: another one is that of a site that has let its name lead here.

A page of such a site could read what a server without this check answers to it (DNS rebinding). Allowed are
names and addresses of this machine, the address on which the request arrives, and what the settings name.
Probes of load balancers are answered whatever they name: they tell nothing but the state.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import HostRejected
from dagmaster.http import problems
from dagmaster.http.request_limits import PROBES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

ANY: Final = "*"
_POLICY: Final = 1008


class AllowedHosts:
    """Wraps the application. `hosts`: what the settings allow; `*` for any."""

    def __init__(
        self, app: Callable[[Message, Receive, Send], Awaitable[None]], hosts: Collection[str]
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._allows(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            # Before it is accepted: the handshake is answered with 403.
            await send({"type": "websocket.close", "code": _POLICY})
        else:
            error = HostRejected(
                f"this server is not {_host_of(scope)[:100] or 'named by the request'}: add the name to"
                " DAGMASTER_ALLOWED_HOSTS, if clients reach it so"
            )
            await problems.of_error(error)(scope, receive, send)

    def _allows(self, scope: Message) -> bool:
        host = _host_of(scope)
        if ANY in self._hosts or host in self._hosts or scope["path"] in PROBES:
            return True
        server = scope.get("server")
        return _is_this_machine(host) or (server is not None and host == server[0])


def _host_of(scope: Message) -> str:
    """Return the host that a request names, without the port and in lower case."""
    text = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    name, _, rest = text.strip().lower().partition("]")
    if name.startswith("["):
        return name[1:] if not rest or rest.startswith(":") else ""
    return name.partition(":")[0].rstrip(".")


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""Which addresses callbacks may have, by their text alone. Where a name leads is checked at each connect."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from dagmaster.errors import CallbackUrlInvalid
from dagmaster.records.requests import MAX_CALLBACK_URL

_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_VISIBLE: Final = re.compile(r"[!-~]+")
# What a resolver may take for a number: 2130706433, 0x7f.1, 0177.0.0.1.
_NUMERIC: Final = re.compile(r"(0x[0-9a-f]*|[0-9]+)")
_PRIVATE_SUFFIXES: Final = (
    *("localhost", "local", "internal", "localdomain", "home.arpa", "intranet", "lan", "corp"),
)
_MAX_HOST: Final = 253
_MIN_LABELS: Final = 2


class CallbackAddress(NamedTuple):
    """An address in its parts. `target`: path and query. `authority`: host and port, as the header has."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_secure else 80) else f"{host}:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://{self.authority}"


def parse_callback_url(url: str, *, allows_loopback: bool = False) -> CallbackAddress:
    """Return the parts of an address; raise `CallbackUrlInvalid` about one that callbacks may not have.

    `allows_loopback`: also this machine, and without TLS there.
    """
    _check_text(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise CallbackUrlInvalid(f"callback_url is not an address: {error}"[:200]) from None
    host, is_secure = (parts.hostname or "").lower(), parts.scheme == "https"
    if parts.scheme not in {"https", "http"} or not parts.netloc:
        raise CallbackUrlInvalid("callback_url is an https address")
    if "@" in parts.netloc:
        raise CallbackUrlInvalid("callback_url has no user name or password: signatures say who sends it")
    if port == 0 or parts.netloc.endswith(":"):
        raise CallbackUrlInvalid("callback_url has a port from 1 to 65535, or none")
    _check_host(host, parts.netloc, is_secure=is_secure, allows_loopback=allows_loopback)
    path = parts.path or "/"
    target = f"{path}?{parts.query}" if parts.query else path
    return CallbackAddress(parts.scheme, host, port or (443 if is_secure else 80), target)


def _check_text(url: str) -> None:
    if not 1 <= len(url) <= MAX_CALLBACK_URL:
        raise CallbackUrlInvalid(f"callback_url has 1 to {MAX_CALLBACK_URL} characters")
    # Also no backslash: some programs read it as a slash.
    if _VISIBLE.fullmatch(url) is None or "\\" in url:
        raise CallbackUrlInvalid(
            "callback_url has ASCII characters without spaces and backslashes; write a name with other"
            " letters as xn--…"
        )
    if "#" in url:
        raise CallbackUrlInvalid("callback_url has no fragment (#): no server sees one")


def _check_host(host: str, netloc: str, *, is_secure: bool, allows_loopback: bool) -> None:
    is_loopback = allows_loopback and is_loopback_name(host)
    if not is_secure and not is_loopback:
        raise CallbackUrlInvalid("callback_url is an https address: callbacks are not sent in clear")
    if is_loopback:
        return
    if netloc.startswith("["):
        check_literal(host)
        return
    if host.endswith("."):
        raise CallbackUrlInvalid("the host of callback_url ends with a dot: leave it out")
    labels = host.split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        if not all(_NUMERIC.fullmatch(label) for label in labels):
            raise CallbackUrlInvalid("the host of callback_url is not a name: its last part is a number")
        check_literal(host)
        return
    if len(host) > _MAX_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise CallbackUrlInvalid("the host of callback_url is not a name in the DNS")
    if len(labels) < _MIN_LABELS or any(f".{host}".endswith(f".{suffix}") for suffix in _PRIVATE_SUFFIXES):
        raise CallbackUrlInvalid("the host of callback_url is a name that is not public")


def check_literal(host: str) -> None:
    """Raise `CallbackUrlInvalid` unless a host is an address as it is usually written, and public."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # Numbers in other writings, as 0x7f000001 or 127.1, are addresses to some resolvers.
        raise CallbackUrlInvalid("the host of callback_url is a number, and not a public address") from None
    if not is_public(address):
        raise CallbackUrlInvalid("the host of callback_url is an address that is not public")


def is_loopback_name(host: str) -> bool:
    """Return whether a host is this machine by its text."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# What `is_global` allows, in some version of Python, or what leads into such a network through a translator.
_REFUSED: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            # This network, private, shared (CGNAT), loopback, link-local with the metadata of clouds,
            # protocol assignments, documentation, 6to4 relays, benchmarks, multicast, reserved, broadcast.
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24"),
            *("192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            *("224.0.0.0/4", "240.0.0.0/4"),
            # The host of virtual machines in Azure, which is in a public range.
            "168.63.129.16/32",
            # The unspecified address, loopback, IPv4 in IPv6 in its forms, NAT64; discarded, Teredo and
            # ORCHID; documentation, 6to4, routing; unique local with the metadata of AWS, link-local,
            # site-local, multicast.
            *("::/8", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32"),
            *("2002::/16", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
        ),
    )
)
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an address is of the public internet, and nothing translates it into another."""
    if getattr(address, "scope_id", None) is not None or not address.is_global:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return not any(address in network for network in _REFUSED if network.version == address.version)

"""Keys, tokens and sessions that are not valid: counted, and limited for each address, in bounded memory."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from dagmaster.errors import TooManyFailures
from dagmaster.http.rate_limits import RateLimiter

if TYPE_CHECKING:
    from dagmaster.telemetry.prometheus import ProcessMetrics

_NETWORK_BITS: Final = 64
"""One customer has at least this much of IPv6: its addresses count as one."""


class FailedLogins:
    """What addresses have sent that was not valid. `per_minute`: how much each of them may; 0: any number.

    The address is that of the connection, or the one that a trusted proxy names (`--trusted-proxies`).
    """

    def __init__(self, per_minute: int, metrics: ProcessMetrics) -> None:
        self._limiter = RateLimiter(per_minute / 60.0, per_minute) if per_minute else None
        self._metrics = metrics

    def add(self, address: str) -> None:
        """Count a credential that was not valid."""
        self._metrics.count("dagmaster_http_credentials_rejected_total", "invalid")
        if self._limiter is not None:
            self._limiter.take(_network(address))

    def check(self, address: str) -> None:
        """Raise `TooManyFailures` if an address has sent too many: the next one is not looked up."""
        if self._limiter is None:
            return
        allowance = self._limiter.peek(_network(address))
        if allowance.wait_seconds > 0:
            self._metrics.count("dagmaster_http_credentials_rejected_total", "throttled")
            raise TooManyFailures(
                "this address has sent too many keys or tokens that are not valid"
                f" (DAGMASTER_FAILED_LOGINS): try again in {allowance.wait_seconds:.0f} s",
                retry_after_seconds=allowance.wait_seconds,
            )


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        # A socket of IPv6 names clients of IPv4 so.
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _NETWORK_BITS), strict=False))

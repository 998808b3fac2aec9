"""Database URLs in settings: checked, built from parts, masked, and the secrets in them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

MASK: Final = "***"
_HOST: Final = r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:@,]*)(:[0-9]*)?"
_HOSTS: Final = rf"{_HOST}(,{_HOST})*"


def mask_url(url: str) -> str:
    """Return a database URL with its password masked; mask the whole URL if it cannot be parsed reliably."""
    scheme, mark, rest = url.partition("://")
    if not mark or not re.fullmatch(r"[a-z+]{1,32}", scheme):
        return MASK
    try:
        netloc = urlsplit(url).netloc
    except ValueError:
        return MASK
    # The last @: an unquoted / ? # in a password would confuse a URL parser.
    users, at, location = rest.rpartition("@")
    if not at and not re.fullmatch(_HOSTS, netloc):
        return MASK
    user, colon, _ = users.partition(":")
    location = re.sub(
        r"([?&][^=&]*(?:pass|secret|key|token)[^=&]*=)[^&]*", rf"\1{MASK}", location, flags=re.IGNORECASE
    )
    return f"{scheme}://{user}{colon and f':{MASK}'}{at}{location}"


def build_url(parts: dict[str, str]) -> str:
    """Return the URL of a database: of a host, and optionally a port, a user, a password and a database."""
    user = quote(parts.get("user", ""), safe="")
    if "password" in parts:
        user += f":{quote(parts['password'], safe='')}"
    host, port = parts["host"].strip(), parts.get("port", "").strip()
    path = quote(parts.get("database", ""), safe="")
    at = f"{user}@" if user else ""
    if host.startswith("/"):
        # A directory with a socket.
        return f"postgresql://{at}/{path}?host={quote(host, safe='/')}" + (f"&port={port}" if port else "")
    host = f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
    return f"postgresql://{at}{host}{port and f':{port}'}/{path}"


def check_url(url: str) -> str:
    """Return a valid URL; raise ValueError without quoting it: it may contain a password."""
    scheme, mark, rest = url.partition("://")
    # SQLAlchemy's form names a driver: postgresql+asyncpg://
    if not mark or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        raise ValueError("must be written postgresql://user:password@host/database")
    try:
        parts = urlsplit(f"postgresql://{rest}")
    except ValueError:
        parts = None
    if (
        parts is None
        or "@" in parts.path + parts.fragment
        or not re.fullmatch(_HOSTS, parts.netloc.rpartition("@")[2])
    ):
        raise ValueError(
            "cannot be parsed: the port must be a number, and / ? # @ : in a password are written %2F %3F %23"
            " %40 %3A"
        )
    return f"postgresql://{rest}"


def secrets_in(text: str) -> set[str]:
    """Return a secret value, and the passwords inside it if it is a URL."""
    _, mark, rest = text.partition("://")
    if not mark:
        return {text}
    secrets = {text}
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    for users in (rest.rpartition("@")[0], authority.rpartition("@")[0]):
        secrets |= {users.partition(":")[2], unquote(users.partition(":")[2])}
    query = parse_qsl(rest.partition("?")[2])
    return secrets | {
        value for name, value in query if re.search("pass|secret|key|token", name, re.IGNORECASE)
    }

"""What answers a call: the functions of `application` here, or a server over HTTP.

A caller names a function of `application` and its arguments. Locally the function is called; a server is
asked by the method of the client that has the same name and arguments, and answers with the same views.
"""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from dagmaster.ports.api_keys import Namespace, actor_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.client.async_client import AsyncClient

P = ParamSpec("P")
T = TypeVar("T")
LOCAL_ARGUMENTS: Final = frozenset({"sent_by", "submitted_by", "origin", "now"})
"""Arguments of functions that a server takes from the key and from its own clock."""


class System(Protocol):
    """What answers calls."""

    def call(self, operation: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of `application`, without its first argument."""


@dataclass(slots=True)
class LocalSystem:
    """The functions of `application` on their first argument: the application, or another part of it."""

    app: Any

    def call(self, operation: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function."""
        return operation(self.app, *args, **kwargs)


@dataclass(slots=True)
class RemoteSystem:
    """The functions of `application` as the methods of a client. The key says who asks."""

    client: AsyncClient

    def call(self, operation: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask the server."""
        arguments = {name: value for name, value in kwargs.items() if name not in LOCAL_ARGUMENTS}
        answer: T = getattr(self.client, operation.__name__)(*args, **arguments)
        return answer


def current_user() -> str:
    """Return the name of the user; in a container, where it may have none, the user id."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return actor_of(Namespace.USER, name)

"""What the compiler has to know of handlers: their code is here, or only their published definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dagmaster.engine.retry import RetryPolicy


class HandlerFacts(Protocol):
    """One handler: the defaults of its tasks, and the types of its params and output."""

    @property
    def name(self) -> str:
        """Return its name."""

    @property
    def queue(self) -> str | None:
        """Return the queue of tasks that name none."""

    @property
    def timeout_seconds(self) -> float | None:
        """Return the timeout of tasks that name none."""

    @property
    def retry(self) -> RetryPolicy | None:
        """Return the retry policy of tasks that name none."""

    @property
    def params_model(self) -> type[BaseModel] | None:
        """Return the model that literal params are checked against; None if they are not typed."""

    def known_params(self) -> frozenset[str] | None:
        """Return the accepted params; None if any are accepted."""

    def required_params(self) -> frozenset[str]:
        """Return the required params."""

    def output_keys(self) -> frozenset[str] | None:
        """Return the keys of the output; None if untyped or open."""


class HandlerCatalog(Protocol):
    """Handlers by name or alias."""

    @property
    def default_queue(self) -> str | None:
        """Return the queue of handlers that name none."""

    @property
    def python_queue(self) -> str | None:
        """Return the queue of Python workflows' tasks that name none; without it, `default_queue` applies."""

    @property
    def missing_hint(self) -> str:
        """Return what to do about a handler that is not here."""

    def find(self, name: str) -> HandlerFacts | None:
        """Return the handler with this name or alias, or None."""

    def names(self) -> list[str]:
        """Return the names of all handlers, in order, without aliases."""

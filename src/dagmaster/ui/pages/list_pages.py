"""What lists have in common: filters that stand in the address, rows, and the way to other pages."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from dagmaster.text_format import format_count
from dagmaster.ui.pages.addresses import with_query

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """What the address asks for, as text: it is shown again as it was typed."""

    address: ClassVar[str]

    def path(self, **changes: str) -> str:
        texts = {part.name: getattr(self, part.name) for part in fields(self)}
        return with_query(self.address, **texts | changes)

    @property
    def is_filtered(self) -> bool:
        return self.path() != self.address


Q = TypeVar("Q", bound=ListQuery)
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage(Generic[Q, R]):
    """A page of a list. `problem`: why the filters cannot be used; `cursor`: None on the first page."""

    noun: ClassVar[str]
    query: Q
    rows: tuple[R, ...]
    cursor: str | None
    next_cursor: str | None
    problem: str = ""

    @property
    def title(self) -> str:
        return f"{self.noun.capitalize()}s"

    @property
    def summary(self) -> str:
        return f"{format_count(len(self.rows), self.noun)} on this page"

    @property
    def first(self) -> str:
        """Return the address of the first page; empty on the first page."""
        return "" if self.cursor is None else self.query.path()

    @property
    def next(self) -> str:
        """Return the address of the next page; empty on the last page."""
        return "" if self.next_cursor is None else self.query.path(cursor=self.next_cursor)


@dataclass(frozen=True, slots=True)
class StatusChoice:
    """A status to filter by."""

    status: str
    value: str
    is_chosen: bool


def status_choices(statuses: Iterable[StrEnum], chosen: Collection[str]) -> tuple[StatusChoice, ...]:
    return tuple(StatusChoice(one.value, one.value.lower(), one.value.lower() in chosen) for one in statuses)

"""Which contracts the check of a text gets."""

from __future__ import annotations

import asyncio

import pytest

from dagmaster.application.commands.validation import documents_for
from dagmaster.ports.handler_contracts import HandlerOffer
from dagmaster.records.handlers import INSTALLATION
from dagmaster.sdk.handler_definitions import define_handler
from tests.unit.application.memory_application import memory_application

NAMES = ("greet", "greet.all", "all", "far-away", "far", "größe", 'a "b" c')


class SearchedText(str):
    """A text that counts how often it is searched."""

    __slots__ = ("searches",)

    def __contains__(self, part: object) -> bool:
        self.searches = getattr(self, "searches", 0) + 1
        return isinstance(part, str) and super().__contains__(part)


def contracts_for(text: str) -> set[str]:
    """Return the handlers whose whole contract the check of a text gets; it has the names of all."""

    async def main() -> set[str]:
        app = memory_application()
        await app.client.contracts.offer(
            HandlerOffer(INSTALLATION, [define_handler(name=name, version="1") for name in NAMES])
        )
        documents = await documents_for(app, text)
        assert {document["name"] for document in documents} == set(NAMES)
        return {document["name"] for document in documents if "version" in document}

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("nodes: {a: {handler: greet}}", {"greet"}),
        ('{"nodes":{"a":{"handler":"greet.all"}}}', {"greet.all"}),
        ('{"handler":far-away,x: all}', {"far-away", "all"}),
        ("handler: größe", {"größe"}),
        ("handler: 'a \"b\"\n  c'", {'a "b" c'}),
        ("handler: greeting", set()),
        ('handler: "gre\\\n  et"', set(NAMES)),
    ],
)
def test_the_check_of_a_text_gets_the_contracts_that_it_may_name(text: str, names: set[str]):
    assert contracts_for(text) == names


def test_a_text_is_not_searched_for_each_handler():
    text = SearchedText("handler: greet")
    contracts_for(text)
    assert text.searches == 1

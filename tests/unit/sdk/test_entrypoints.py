"""Functions that are tasks by their names, and names that are not allowed."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster import entrypoint_of, handler, registry_for, task, workflow
from dagmaster.engine.served_handlers import has_handler
from dagmaster.errors import HandlerInvalid, HandlerNotFound
from dagmaster.sdk.handler_registry import Registry, discover

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGE = """
from os import getcwd, system
from json import dumps
import os
from shop.pricing import discount
from dagmaster import handler, task, workflow

async def load(day: int, parts: list[str] | None = None) -> None: ...
def positional(x, /): ...
def _private(): ...
class Store:
    def method(self): ...
LIMIT = 3
lazy = lambda: 1

@handler("shop.stock")
def named_otherwise(): return {}

@task
def decorated(): ...

@workflow
def flow(): decorated()
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    folder = tmp_path / "shop"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / "pricing.py").write_text("def discount(price: float) -> float: return price / 2\n")
    (folder / "deep" / "__init__.py").touch()
    (folder / "deep" / "down.py").write_text(
        "from dagmaster import task\ndef reach(): ...\n@task(version=7)\ndef marked(): ...\n"
    )
    (folder / "broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield discover(["shop"], entry_points=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def test_a_function_of_an_allowed_module_is_a_task_with_its_annotations(shop: Registry):
    spec = shop.get("shop.load")
    assert (spec.name, spec.version, spec.queue, spec.returns_json) == ("shop.load", "1", None, True)
    assert spec.known_params() == frozenset({"day", "parts"})
    assert spec.required_params() == {"day"}
    assert shop.get("shop.load") is spec
    assert "shop.load" in shop
    # A function that the package took from a submodule of its own.
    assert shop.get("shop.discount").known_params() == frozenset({"price"})
    # Handlers are listed; functions that tasks may name are not.
    assert shop.names() == ["shop.decorated", "shop.stock"]


def test_a_file_that_is_named_by_its_path_and_by_its_name_is_one(tmp_path, monkeypatch):
    (tmp_path / "twice_named.py").write_text("def load(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = discover([str(tmp_path / "twice_named.py"), "twice_named"], entry_points=False)
    try:
        assert registry.get("twice_named.load").name == "twice_named.load"
    finally:
        del sys.modules["twice_named"]


def test_submodules_of_a_package_are_imported_when_a_name_needs_them(shop: Registry):
    assert "shop.deep.down" not in sys.modules
    assert shop.needs_import("shop.deep.down.reach")
    assert shop.find("shop.deep.down.reach", imports=False) is None
    assert shop.get("shop.deep.down.reach").name == "shop.deep.down.reach"
    assert not shop.needs_import("shop.deep.down.marked")
    assert shop.get("shop.deep.down.marked").version == "7"
    assert not shop.needs_import("elsewhere.reach")
    assert not Registry().overlay(shop).needs_import("shop.deep.down.reach")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("shop.os.system", "'shop.os' of 'shop.os.system' cannot be imported: ModuleNotFoundError"),
        ("shop.system", "is not a function: it is a builtin_function_or_method"),
        ("shop.dumps", "is a function of the module 'json', which is not allowed here"),
        ("shop.Store", "is not a function: it is a class"),
        ("shop.os", "is not a function: it is a module"),
        ("shop.LIMIT", "is not a function: it is a int"),
        ("shop.flow", "is not a function: it is a Workflow"),
        ("shop.named_otherwise", "is the handler 'shop.stock': use that name"),
        ("shop.positional", "parameter 'x' cannot be given by name"),
        ("shop.laod", "the module 'shop' has no function 'laod': did you mean 'load'"),
        ("shop.Store.method", "'shop.Store' of 'shop.Store.method' cannot be imported"),
        ("shop.broken.run", "'shop.broken' of 'shop.broken.run' cannot be imported: ZeroDivisionError"),
        ("shop.deep.down.missing", "the module 'shop.deep.down' has no function 'missing'"),
        ("os.system", r"the module 'os' is not allowed here \(--handlers allows functions of shop\)"),
        ("shopping.load", r"the module 'shopping' is not allowed here"),
        ("shop.__init__.load", "^there is no handler 'shop.__init__.load'"),
        ("shop._private", "^there is no handler 'shop._private'"),
        ("shop", "^there is no handler 'shop'"),
    ],
)
def test_a_name_that_is_not_allowed_is_answered_with_the_reason(shop: Registry, name: str, reason: str):
    for registry in (shop, Registry().overlay(shop)):
        assert registry.find(name) is None
        assert name not in registry
        with pytest.raises(HandlerNotFound, match=reason):
            registry.get(name)


def test_a_worker_registers_functions_and_packages_and_knows_which_need_a_process(shop: Registry):
    served = Registry().overlay(shop).served_names()
    assert set(served) == {
        "shop.decorated", "shop.discount", "shop.lazy", "shop.load", "shop.positional", "shop.stock", "shop.*",
    }  # fmt: skip
    assert has_handler(served, "shop.deep.down.reach")
    assert not has_handler(served, "shop.deep.down.reach", by_package=False)
    assert not has_handler(served, "shopping.load")
    assert shop.names_matching(lambda _spec: False) == {"shop.discount", "shop.lazy", "shop.positional"}


def test_built_in_modules_and_installed_packages_have_no_entrypoints():
    registry = discover(["dagmaster.handlers.examples"])
    assert not registry.entrypoints
    assert not registry.allows("dagmaster.handlers.examples.anything")


def test_a_file_is_the_module_of_its_stem_and_two_of_one_stem_are_ambiguous(tmp_path: Path):
    files = [tmp_path / "one" / "rain.py", tmp_path / "two" / "rain.py"]
    for number, file in enumerate(files):
        file.parent.mkdir()
        file.write_text(f"def both(): ...\ndef only_{number}(): ...\n")
    registry = discover(map(str, files), entry_points=False)
    assert registry.get("rain.only_0").name == "rain.only_0"
    assert registry.get("rain.only_1").name == "rain.only_1"
    with pytest.raises(
        HandlerNotFound, match=r"'rain\.both' is ambiguous: .*one/rain\.py and .*two/rain\.py"
    ):
        registry.get("rain.both")


# ── Names of functions ──


def plain() -> None: ...


@task
def marked() -> None: ...


@handler("other.name")
def named() -> None: ...


@workflow
def flow() -> None:
    marked()


def test_the_entrypoint_of_a_function_is_its_module_and_name(monkeypatch: pytest.MonkeyPatch):
    assert entrypoint_of(plain) == f"{__name__}.plain"
    assert entrypoint_of(marked) == f"{__name__}.marked"
    assert entrypoint_of(named) == "other.name"
    assert entrypoint_of("my_app.tasks.load") == "my_app.tasks.load"
    monkeypatch.setattr(plain, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/jobs/nightly-run.py", raising=False)
    assert entrypoint_of(plain) == "nightly_run.plain"
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    assert entrypoint_of(plain) == "__main__.plain"


@pytest.mark.parametrize(
    "value",
    [
        "load",
        "",
        "my app.load",
        "app._load",
        "app.",
        "a." * 70 + "b",
        print,
        partial(plain),
        Registry,
        flow,
        3,
    ],
)
def test_what_cannot_be_named_is_no_entrypoint(value: Any):
    with pytest.raises(HandlerInvalid, match="is not an entrypoint"):
        entrypoint_of(value)


def test_a_registry_for_functions_of_a_script_has_them_under_given_names(shop: Registry):
    def local(count: int) -> list[int]:
        return [count]

    registry = registry_for(
        {"script.local": local, "script.marked": marked}, ["shop"], default_queue="default"
    )
    assert registry.get("script.local").known_params() == frozenset({"count"})
    assert registry.get("script.marked").returns_json
    assert registry.get("shop.load").name == "shop.load"
    assert registry.default_queue == "default"
    assert shop.find("script.local") is None

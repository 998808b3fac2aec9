"""The registry, and where handlers come from."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest

from dagmaster.errors import HandlerInvalid, HandlerNotFound
from dagmaster.sdk.handler_registry import (
    Registry,
    discover,
    handler,
)

# ── the registry ──────────────────────────────────────────────────────────────────────────────────────────────────────


@handler("tiles.cut", aliases=["cut_tiles"])
def cut() -> None: ...


@handler("tiles.join")
def join() -> None: ...


def test_a_registry_knows_names_and_aliases():
    registry = Registry([join, cut])
    assert registry.names() == ["tiles.cut", "tiles.join"]
    assert [spec.name for spec in registry] == registry.names()
    assert len(registry) == 2
    assert "cut_tiles" in registry
    assert "paste" not in registry
    assert registry.get("cut_tiles") is registry.get("tiles.cut")
    assert registry.find("paste") is None


def test_a_registry_before_others_has_both_and_its_own_are_meant():
    @handler("cut_tiles", version="9")
    def double() -> None: ...

    both = Registry([double]).overlay(Registry([join, cut]))
    assert both.names() == [spec.name for spec in both] == ["cut_tiles", "tiles.cut", "tiles.join"]
    assert len(both) == 3
    assert "tiles.join" in both
    assert (both.get("cut_tiles").function, both.get("tiles.cut").function) == (double, cut)
    assert both.versions() == {"cut_tiles": "9", "tiles.cut": "1", "tiles.join": "1"}
    assert both.names_matching(lambda spec: spec.function is cut) == {"tiles.cut"}
    with pytest.raises(HandlerNotFound, match=r"did you mean 'tiles\.join'"):
        both.get("tiles.joint")


def test_an_unknown_handler_is_answered_with_the_nearest_name():
    with pytest.raises(HandlerNotFound, match=r"'tiles\.cutt': did you mean 'tiles\.cut'"):
        Registry([join, cut]).get("tiles.cutt")


def test_a_name_is_misspelt_in_a_similar_module_alone():
    @handler("raster.list_files")
    def list_files() -> None: ...

    registry = Registry(
        [list_files, *[handler(f"other.step_{number}")(lambda: None) for number in range(20)]]
    )
    with pytest.raises(HandlerNotFound) as raised:
        registry.get("tiles.list_tiles")
    assert "raster" not in str(raised.value)
    with pytest.raises(HandlerNotFound, match=r"did you mean 'raster\.list_files'"):
        registry.get("rastr.list_file")


def test_an_entrypoint_is_no_misspelt_name_without_a_module():
    @handler("fail")
    def fail() -> None: ...

    registry = Registry([fail])
    with pytest.raises(HandlerNotFound) as raised:
        registry.get("fail.gp")
    assert "did you mean" not in str(raised.value)
    with pytest.raises(HandlerNotFound, match="did you mean 'fail'"):
        registry.get("fial")


def test_the_same_function_twice_is_one_handler():
    registry = Registry([cut, cut])
    assert len(registry) == 1


@pytest.mark.parametrize("taken", ["tiles.cut", "cut_tiles"])
def test_two_functions_cannot_have_one_name(taken):
    @handler(taken)
    def other() -> None: ...

    registry = Registry([cut])
    with pytest.raises(HandlerInvalid, match=rf"'{taken}': .*\.cut \(.*:\d+\) and .*other \(.*:\d+\)"):
        registry.register(other)
    assert registry.get(taken).function is cut


# ── discovery ─────────────────────────────────────────────────────────────────────────────────────────────────────────

GOOD = """
from __future__ import annotations
from pydantic import BaseModel
from dagmaster.sdk.handler_registry import handler

@handler("greet")
def greet(params: Params) -> dict:
    return {"hello": params.name}

class Params(BaseModel):
    name: str

unrelated = object()
"""


def test_handlers_are_found_in_a_file(tmp_path):
    file = tmp_path / "my_handlers.py"
    file.write_text(GOOD)
    registry = discover([str(file), str(file)], entry_points=False)
    assert registry.names() == ["greet"]
    assert registry.get("greet").known_params() == frozenset({"name"})


def test_handlers_are_found_in_a_module(tmp_path, monkeypatch):
    (tmp_path / "found_by_name.py").write_text(GOOD)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert discover(["found_by_name"], entry_points=False).names() == ["greet"]


def test_handlers_are_found_through_entry_points(monkeypatch):
    asked = []

    class Point:
        name, module, dist = "examples", "dagmaster.handlers.examples", None

    def entry_points(*, group):
        asked.append(group)
        return [Point]

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    assert "echo" in discover([])
    assert asked == ["dagmaster.handlers"]
    assert len(discover([], entry_points=False)) == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("raise SystemExit", "cannot be imported: SystemExit"),
        ("def f(:", "cannot be imported: SyntaxError"),
        ("import not_installed_here", "install 'not_installed_here'"),
        ("x = 1", r"has no handlers: decorate a function with @handler\(\)"),
        (
            "from dagmaster.sdk.handler_registry import handler\nhandler('no good')",
            "'no good' is not a name",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path, text, sentence):
    file = tmp_path / "bad_handlers.py"
    file.write_text(text)
    before = set(sys.modules)
    with pytest.raises(HandlerInvalid, match=rf"bad_handlers\.py.*{sentence}"):
        discover([str(file)], entry_points=False)
    assert [
        name for name in set(sys.modules) - before if "bad_handlers" in name and "has no" not in sentence
    ] == []


@pytest.fixture
def working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return tmp_path


def test_a_module_below_the_working_directory_can_be_named(working_directory):
    (working_directory / "lies_here").mkdir()
    (working_directory / "lies_here" / "inside.py").write_text(GOOD)
    assert len(discover(["lies_here.inside"], entry_points=False)) == 1
    assert sys.path[-1] == str(working_directory)


def test_a_module_that_is_not_found_is_answered_with_how_to_name_one(working_directory):
    with pytest.raises(HandlerInvalid, match=r"'nowhere\.at_all' cannot be imported.*or as a path"):
        discover(["nowhere.at_all"], entry_points=False)
    # The installed package of that name comes first.
    (working_directory / "click").mkdir()
    (working_directory / "click" / "mine.py").write_text(GOOD)
    with pytest.raises(HandlerInvalid, match=r"write \./click/mine\.py"):
        discover(["click.mine"], entry_points=False)


def test_a_file_may_import_its_neighbour(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour_of_file.py").write_text(GOOD)
    (tmp_path / "importing.py").write_text("from neighbour_of_file import greet")
    assert len(discover([str(tmp_path / "importing.py")], entry_points=False)) == 1
    # No file of the folder hides an installed package.
    assert sys.path[-1] == str(tmp_path)


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(HandlerInvalid, match="there is no file"):
        discover([str(tmp_path / "gone.py")], entry_points=False)


ANNOUNCING = """
from dagmaster.sdk.handler_registry import LazyHandler
__handlers__ = {"far.away": LazyHandler("far_away", "3", ("far",))}
"""
FAR_AWAY = """
from dagmaster import handler

@handler("far.away", version="3", aliases=["far"])
def far_away() -> dict:
    return {}
"""


@pytest.fixture
def announcing(tmp_path, monkeypatch):
    (tmp_path / "announcing.py").write_text(ANNOUNCING)
    (tmp_path / "far_away.py").write_text(FAR_AWAY)
    monkeypatch.syspath_prepend(tmp_path)
    yield discover(["announcing"], entry_points=False)
    for name in ("announcing", "far_away"):
        sys.modules.pop(name, None)


def test_what_is_announced_is_known_before_it_is_imported(announcing):
    assert (announcing.names(), len(announcing)) == (["far.away"], 1)
    assert "far" in announcing
    assert announcing.versions() == {"far.away": "3", "far": "3"}
    assert announcing.names_matching(lambda _: False) == {"far.away", "far"}
    assert "far_away" not in sys.modules
    assert announcing.get("far").name == "far.away"
    assert (announcing.names(), len(announcing)) == (["far.away"], 1)
    assert announcing.versions() == {"far.away": "3", "far": "3"}
    assert announcing.names_matching(lambda _: False) == frozenset()
    with pytest.raises(HandlerNotFound, match="far"):
        announcing.get("fer")


def test_all_handlers_include_the_announced_ones(announcing):
    assert [spec.name for spec in announcing] == ["far.away"]


def test_a_name_that_is_announced_is_taken(announcing):
    @handler("far")
    async def another() -> None:
        """Be another."""

    with pytest.raises(HandlerInvalid, match=r"two handlers have the name 'far': one of far_away and"):
        announcing.register(another)

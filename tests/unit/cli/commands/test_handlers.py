"""`dagmaster handlers`: params are shown, and parsed as the handler declares them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dagmaster.cli.commands.handlers import handlers


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(handlers, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_show_prints_values_ranges_and_defaults():
    output = " ".join(invoke("show", "raster.create_cog").split())
    assert "compression DEFLATE | ZSTD | LZW | LERC | NONE, default DEFLATE Lossless." in output
    assert (
        "tile_size integer, 64 to 4096, a multiple of 16, default 512 Block width and height in pixels."
        in output
    )
    assert "target_crs string, required A code such as EPSG:3857" in " ".join(
        invoke("show", "raster.reproject").split()
    )
    assert "not declared" in invoke("show", "echo")


TAKES = """
from dagmaster import HandlerContext, handler

@handler("typed", queue="q")
async def typed(year: str, count: int, maybe: str | None = "x", any: dict | str | None = None) -> dict:
    return {"year": year, "count": count, "maybe": maybe, "any": any}

@handler("untyped", queue="q")
async def untyped(ctx: HandlerContext) -> dict:
    return dict(ctx.params)
"""


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("typed", ["year=2020", "count=3"], {"year": "2020", "count": 3, "maybe": "x", "any": None}),
        (
            "typed",
            ["year=true", "count=3", "maybe=null", 'any={"a": 1}'],
            {"year": "true", "count": 3, "maybe": None, "any": {"a": 1}},
        ),
        ("untyped", ["year=2020", "b=text"], {"year": 2020, "b": "text"}),
    ],
)
def test_a_param_is_text_if_the_handler_declares_text_and_else_json(
    tmp_path, monkeypatch, name, params, expected
):
    monkeypatch.setenv("DAGMASTER_BLOB_DIR", str(tmp_path / "home"))
    (tmp_path / "takes.py").write_text(TAKES)
    pairs = [argument for pair in params for argument in ("-p", pair)]
    assert json.loads(invoke("test", name, "--handlers", str(tmp_path / "takes.py"), *pairs)) == expected

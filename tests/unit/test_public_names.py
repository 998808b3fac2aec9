"""What the package offers by name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dagmaster
import dagmaster.orchestration
import dagmaster.session
import dagmaster.testing

PUBLIC, _ = dagmaster.lazy_names("dagmaster")
SESSION, _ = dagmaster.lazy_names("dagmaster.session")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "module",
    [dagmaster, dagmaster.orchestration, dagmaster.session, dagmaster.testing],
    ids=lambda module: module.__name__,
)
def test_every_public_name_is_there(module):
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = module.nothing_like_it


def test_the_surface_is_small_and_has_what_the_tutorials_import():
    assert len(PUBLIC) <= 40
    files = [ROOT / "README.md", *ROOT.glob("docs/tutorial/*.md"), *ROOT.glob("examples/*.py")]
    imports = [
        name
        for file in files
        for names in re.findall(r"from dagmaster import (\([^)]*\)|.*)", file.read_text())
        for name in re.findall(r"\w+", names)
    ]
    assert len(imports) > 40
    assert set(imports) <= set(PUBLIC)


def test_names_that_were_at_the_top_are_still_imported_from_there():
    stub = Path(dagmaster.__file__).with_suffix(".pyi").read_text()
    _, _, kept = stub.partition("# isort: split")
    names = {*re.findall(r" as (\w+)", kept), *SESSION}
    assert {"map", "get_job", "compile_file", "Context"} <= names
    assert all(hasattr(dagmaster, name) for name in names)
    assert not names & set(PUBLIC) - set(SESSION)


@pytest.mark.process
def test_importing_the_package_imports_nothing_else_of_it():
    code = "import sys, dagmaster; print(*[name for name in sys.modules if name.startswith('dagmaster')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["dagmaster"]


@pytest.mark.process
def test_what_a_python_workflow_needs_imports_no_web_framework_and_no_data_library():
    """Importing `dagmaster` itself imports nothing: these are the names that an author's module starts with."""
    code = """
import sys
from dagmaster import Future, any_of, conditional, expression, fan_out, task, wait, workflow

@task
def one() -> int:
    return 1

@workflow
def flow():
    return one()

flow.compile()
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    heavy = {
        "asyncpg",
        "click",
        "fastapi",
        "geopandas",
        "httpx",
        "numpy",
        "osgeo",
        "pandas",
        "pyarrow",
        "rasterio",
        "rich",
        "starlette",
    }
    assert not modules & heavy
    ours = {name.split(".")[1] for name in modules if name.startswith("dagmaster.")}
    assert not ours & {
        "adapters",
        "application",
        "bootstrap",
        "cli",
        "http",
        "local",
        "orchestrator",
        "store",
        "worker",
    }

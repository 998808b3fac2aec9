"""What the package offers by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dagmaster
import dagmaster.orchestration
import dagmaster.testing


@pytest.mark.parametrize(
    "module", [dagmaster, dagmaster.orchestration, dagmaster.testing], ids=lambda module: module.__name__
)
def test_every_public_name_is_there(module):
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = module.nothing_like_it


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

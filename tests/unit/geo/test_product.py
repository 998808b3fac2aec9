"""What the geospatial product adds: every name is one of its own, and importing the product loads none of them."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from dagmaster.geo import PRODUCT
from dagmaster.sdk.products import load, products

TARGETS = [*PRODUCT.services.values(), *(one.target for one in PRODUCT.commands.values()), PRODUCT.blob_users]


def test_it_is_a_product_of_this_installation():
    assert PRODUCT in products()


@pytest.mark.parametrize("target", TARGETS)
def test_what_it_names_exists(target):
    assert target.startswith("dagmaster.geo.")
    assert callable(load(target))


@pytest.mark.parametrize("module", PRODUCT.handlers)
def test_its_modules_have_handlers(module):
    assert importlib.import_module(module).__handlers__


@pytest.mark.process
def test_the_command_line_imports_nothing_inside_it():
    code = "import sys, dagmaster.cli.main; print(*(one for one in sys.modules if one.startswith('dagmaster.geo')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["dagmaster.geo"]

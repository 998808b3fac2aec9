"""What the package offers by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dagmaster
import dagmaster.testing


@pytest.mark.parametrize("module", [dagmaster, dagmaster.testing], ids=lambda module: module.__name__)
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

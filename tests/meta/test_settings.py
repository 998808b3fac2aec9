"""Every setting has an effect: some code outside of the settings reads it."""

from __future__ import annotations

import re
from pathlib import Path

from dagmaster.ports.storage import ZONES
from dagmaster.settings import PARAM_DEFAULTS, Settings

SOURCE = Path(__file__).parents[2] / "src" / "dagmaster"


def test_every_setting_is_read_somewhere():
    texts = [
        path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py") if path.parent.name != "settings"
    ]
    source = "\n".join(texts)
    read = {*re.findall(r"settings(?:\([^()]*(?:\([^()]*\))?[^()]*\))?(?:\.settings)?\.(\w+)", source)}
    # Read by a list of names.
    if "for name in PARAM_DEFAULTS" in source:
        read |= {*PARAM_DEFAULTS}
    if 'getattr(settings, f"{zone}_url")' in source:
        read |= {f"{zone}_url" for zone in ZONES}
    # Read before there are settings: by the process that starts the embedded server.
    read |= {name.lower() for name in re.findall(r'environ\.get\("DAGMASTER_(\w+)"', source)}
    # The limits of other settings depend on it.
    timing = (SOURCE / "settings" / "timing.py").read_text(encoding="utf-8")
    read |= {*re.findall(r'info\.data\.get\("(\w+)"', timing)}
    assert set(Settings.model_fields) - read == set()

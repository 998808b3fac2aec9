"""All settings, from `DAGMASTER_…` environment variables: `groups` has them, `reading` reads them."""

from __future__ import annotations

from dagmaster.settings.database_urls import MASK, mask_url
from dagmaster.settings.groups import GROUPS, PARAM_DEFAULTS, PREFIX, Settings
from dagmaster.settings.reading import (
    SECRET_PREFIX,
    SettingsReport,
    SettingView,
    aliases_set,
    load_settings,
    read_settings,
    secret_values,
    show_settings,
)

__all__ = [
    "GROUPS",
    "MASK",
    "PARAM_DEFAULTS",
    "PREFIX",
    "SECRET_PREFIX",
    "SettingView",
    "Settings",
    "SettingsReport",
    "aliases_set",
    "load_settings",
    "mask_url",
    "read_settings",
    "secret_values",
    "show_settings",
]

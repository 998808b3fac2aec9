"""Published migrations: databases have run them, so that what differs from them now would never be applied there."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import pytest

VERSIONS = files("dagmaster.store.postgres.migrations") / "versions"
PUBLISHED = {
    "v0001_initial.sql": "a1a999d8373fcb3ffca0c114c9db3a145c63a9dc084c26118baac0694157e2a5",
    "v0001_downgrade.sql": "376523ee3a64e15d2ebb8715f53669bfb6262eba4849cadb26d0d7aa2679b7f6",
    "v0002_names_and_reads.sql": "127ad207e010164fb43e1027c9c6484d5e632b2317340209ea38698a3826f367",
    "v0002_downgrade.sql": "4024ae669158c1944b654124d31f164d84ddd6be4e83d8cad315b51b7b266353",
    "v0003_isolation_and_starts.sql": "82c37c06432e235eea68fb8dab6cd1ceba15ff5d208838b5ec22a104c3d968c4",
    "v0003_downgrade.sql": "7dda129373ad91f1976222f8d69703a1eefd32c058eb495a2bcddec89da292d7",
}
"""The scripts of released versions, with their SHA-256. A release adds its own."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_migration_never_changes(name):
    digest = hashlib.sha256((VERSIONS / name).read_bytes()).hexdigest()
    assert digest == PUBLISHED[name], "put the change into a new migration"

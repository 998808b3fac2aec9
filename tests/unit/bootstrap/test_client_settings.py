"""Commands on a database read the same settings with and without the model of all settings."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from dagmaster.bootstrap.client_settings import ClientSettings, load_client_settings
from dagmaster.errors import SettingsInvalid
from dagmaster.settings import Settings, load_settings

NAMES = [field.name for field in dataclasses.fields(ClientSettings)]
PLAIN = [
    {},
    {"DAGMASTER_DATA_DIR": "/srv/data"},
    {"DAGMASTER_DATABASE_URL": ""},
    {"DAGMASTER_URL": "https://dagmaster.example", "DAGMASTER_KEY": "dm_secret"},
    {"DAGMASTER_DATABASE_URL": "postgresql://ada:secret@db.example:5432/jobs?sslmode=require"},
    {"DAGMASTER_DATABASE_URL": "postgresql:///dagmaster?host=/run/data/socket&port=5432&user=dagmaster"},
    {"DAGMASTER_SECRET_KEY": "x", "DATABASE_URL": "postgresql://not.meant/for-us"},
]
VALIDATED = [
    {"DAGMASTER_WORKER_LEASE_SECONDS": "9"},
    {"DAGMASTER_DATABASE_POOLED": "true", "DAGMASTER_DATABASE_URL": "postgresql://pool/x"},
    {"DAGMASTER_DATABASE_URL": "postgresql+asyncpg://ada@db/jobs"},
    {"DAGMASTER_DATABASE_URL": "postgresql://ada:p%40ss@db/jobs"},
    {"DAGMASTER_ALLOWED_ENV": "HOME"},
]


def values(settings: ClientSettings | Settings) -> dict[str, object]:
    """Return the settings by name, with secrets in clear."""
    read = {name: getattr(settings, name) for name in NAMES}
    return {
        name: value.get_secret_value() if hasattr(value, "get_secret_value") else value
        for name, value in read.items()
    }


@pytest.fixture
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*Settings.model_fields, "test_run"]:
        monkeypatch.delenv(f"DAGMASTER_{name.upper()}", raising=False)
    for name, value in request.param.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("environment", PLAIN, indirect=True)
@pytest.mark.usefixtures("environment")
def test_a_location_alone_is_read_without_the_model_and_gives_the_same_settings():
    settings = load_client_settings()
    assert isinstance(settings, ClientSettings)
    assert values(settings) == values(load_settings())
    assert "secret" not in repr(settings)


@pytest.mark.parametrize("environment", VALIDATED, indirect=True)
@pytest.mark.usefixtures("environment")
def test_any_other_setting_is_validated_by_the_model():
    settings = load_client_settings()
    assert isinstance(settings, Settings)
    assert settings == load_settings()


@pytest.mark.parametrize(
    "environment",
    [{"DAGMASTER_DATABASE_URL": "mysql://x/y"}, {"DAGMASTER_POLL_SECONDS": "soon"}],
    indirect=True,
)
@pytest.mark.usefixtures("environment")
def test_an_invalid_setting_is_an_error_even_if_the_command_does_not_use_it():
    with pytest.raises(SettingsInvalid):
        load_client_settings()


@pytest.mark.process
def test_what_commands_import_to_read_jobs_has_neither_pydantic_nor_the_compiler():
    code = """if True:
        import sys
        import dagmaster.application.queries.fleet, dagmaster.application.queries.job_detail, dagmaster.bootstrap
        import dagmaster.authoring.graph_outline, dagmaster.cli.system, dagmaster.store.embedded.server
        import dagmaster.application.queries.events_and_logs, dagmaster.application.queries.workflows
        import dagmaster.store.postgres.fleet, dagmaster.store.postgres.read_store
        print([name for name in ("pydantic", "jinja2", "yaml", "jsonschema", "alembic") if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.process
def test_a_command_through_a_server_imports_no_driver_and_one_on_a_database_no_client():
    code = """if True:
        import sys
        import dagmaster.application.queries.jobs, dagmaster.bootstrap.client_settings, dagmaster.cli.system
        print([name for name in ("httpx", "asyncpg", "pydantic") if name in sys.modules])
        import dagmaster.client.async_client
        print([name for name in ("asyncpg", "pydantic", "fastapi", "jsonschema", "yaml") if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]"]

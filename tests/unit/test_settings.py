"""Settings: what is read, from where, what is told about it, and what is never shown."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.errors import SettingsInvalid
from dagmaster.settings import (
    GROUPS,
    MASK,
    Settings,
    load_settings,
    mask_url,
    read_settings,
    secret_values,
    show_settings,
)
from dagmaster.settings.aliases import ALIASES
from dagmaster.store.embedded.server import default_data_dir

CANARY = "c4n4ry-s3cret"


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch):
    for name in list(os.environ):
        if (
            name.upper().startswith("DAGMASTER_")
            or name == "PGPASSWORD"
            or name in {alias.name for alias in ALIASES}
        ):
            monkeypatch.delenv(name)


@pytest.fixture
def environment(monkeypatch):
    def set_all(**names: str) -> None:
        for name, value in names.items():
            monkeypatch.setenv(name, value)

    return set_all


def shown(*, services: bool = False) -> dict[str, tuple[object, str]]:
    return {row.name: (row.value, row.source) for row in show_settings(read_settings(services=services))}


def test_without_any_variable_every_setting_is_a_default():
    assert {source for _, source in shown(services=True).values()} == {"default"}


def test_only_services_read_the_names_of_the_sources(environment):
    environment(DATABASE_URL="postgresql://db/one", WORKER_QUEUE="heavy", POLL_INTERVAL_SEC="3")
    plain, services = load_settings(), load_settings(services=True)
    assert (plain.database_url, plain.queues, plain.poll_seconds) == (None, (), 1.0)
    assert services.database_url is not None
    assert services.database_url.get_secret_value() == "postgresql://db/one"
    assert (services.queues, services.poll_seconds) == (("heavy",), 3.0)


def test_a_name_of_dagmaster_wins_over_a_name_of_the_sources(environment):
    environment(DAGMASTER_POLL_SECONDS="2", POLL_INTERVAL_SEC="3")
    reading = read_settings(services=True)
    assert reading.settings.poll_seconds == 2.0
    assert reading.origins["poll_seconds"] == "DAGMASTER_POLL_SECONDS"
    assert reading.unused == ("POLL_INTERVAL_SEC is overridden by DAGMASTER_POLL_SECONDS.",)


def test_of_two_names_for_one_setting_the_upper_one_of_the_table_wins(environment):
    environment(DAG_WORKER_QUEUE="of-the-orchestrator", WORKER_QUEUE="of-the-worker")
    reading = read_settings(services=True)
    assert reading.settings.queues == ("of-the-worker",)
    assert reading.unused == ("DAG_WORKER_QUEUE is overridden by WORKER_QUEUE.",)


def test_every_name_of_the_sources_does_something_or_says_why_not(monkeypatch):
    for alias in ALIASES:
        assert bool(alias.setting) != bool(alias.instead), alias.name
        assert not alias.setting or alias.setting in Settings.model_fields
    for alias in [alias for alias in ALIASES if alias.instead]:
        monkeypatch.setenv(alias.name, CANARY)
        (details,) = read_settings(services=True).unused
        monkeypatch.delenv(alias.name)
        assert details.startswith(f"{alias.name} is known and not used: ")
        assert CANARY not in details


def test_the_parts_of_an_address_are_put_together_and_the_password_is_quoted(environment):
    environment(POSTGRES_HOST="db", POSTGRES_PORT="5433", POSTGRES_USER="me@corp", POSTGRES_DB="jobs")
    environment(POSTGRES_PASSWORD="p@ss/w:o?r#d %41")
    reading = read_settings(services=True)
    assert reading.settings.database_url is not None
    parts = urlsplit(reading.settings.database_url.get_secret_value())
    assert (parts.hostname, parts.port, parts.path) == ("db", 5433, "/jobs")
    assert (unquote(parts.username or ""), unquote(parts.password or "")) == ("me@corp", "p@ss/w:o?r#d %41")
    assert shown(services=True)["database_url"] == (
        "postgresql://me%40corp:***@db:5433/jobs",
        "POSTGRES_HOST + POSTGRES_PORT + POSTGRES_USER + POSTGRES_PASSWORD + POSTGRES_DB",
    )


@pytest.mark.parametrize(
    ("host", "url"),
    [("::1", "postgresql://[::1]/d"), ("/run/pg", "postgresql:///d?host=/run/pg"), ("h", "postgresql://h/d")],
)
def test_a_host_may_be_a_name_an_address_or_the_directory_of_a_socket(environment, host, url):
    environment(POSTGIS_HOST=host, POSTGIS_DATABASE="d")
    settings = load_settings(services=True)
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == url


def test_a_whole_address_wins_over_its_parts(environment):
    environment(DATABASE_URL="postgresql://a/x", POSTGRES_HOST="b")
    reading = read_settings(services=True)
    assert reading.origins["database_url"] == "DATABASE_URL"
    assert reading.unused == ("POSTGRES_HOST is overridden by DATABASE_URL.",)


def test_a_password_without_a_host_makes_no_address(environment):
    environment(POSTGRES_PASSWORD=CANARY)
    reading = read_settings(services=True)
    assert reading.settings.database_url is None
    assert reading.unused == ("POSTGRES_PASSWORD is set and not used: there is no POSTGRES_HOST.",)


def test_the_drivers_name_in_an_address_is_dropped(environment):
    environment(DATABASE_URL="postgresql+psycopg://u:p@db/jobs")
    settings = load_settings(services=True)
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == "postgresql://u:p@db/jobs"


def test_all_wrong_settings_are_reported_at_once_each_with_its_variable(environment):
    environment(DAGMASTER_CONCURRENCY="many", DAGMASTER_DRAIN_SECONDS="-1", ORPHAN_THRESHOLD_SEC="0")
    environment(DAGMASTER_DATABASE_POOLED="perhaps", DAGMASTER_DATABASE_URL="mysql://u:p@h/d")
    with pytest.raises(SettingsInvalid) as details:
        load_settings(services=True)
    assert str(details.value).splitlines() == [
        "DAGMASTER_DATABASE_URL must be written postgresql://user:password@host/database.",
        "DAGMASTER_DATABASE_POOLED must be true or false, not 'perhaps'.",
        "ORPHAN_THRESHOLD_SEC must be more than 0, not '0'.",
        "DAGMASTER_DRAIN_SECONDS must be at least 0, not '-1'.",
        "DAGMASTER_CONCURRENCY must be a whole number, not 'many'.",
    ]


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("DAGMASTER_LOG_FORMAT", "xml", "must be text or json, not 'xml'."),
        ("DAGMASTER_ADMIN_KEY", "short", "must have at least 32 characters."),
        ("DAGMASTER_LOG_LEVEL", "loud", "must be debug, info, warning or error, not 'loud'."),
        ("RUN_MODE", "cron", "must be orchestrator, worker, server, gateway or relay, not 'cron'."),
        ("DAGMASTER_RASTER_TILE_SIZE", "100", "must be a multiple of 16, not '100'."),
        (
            "DAGMASTER_VECTOR_TARGET_CRS",
            "4326",
            "must be written AUTHORITY:CODE, such as EPSG:4326, not '4326'.",
        ),
        ("DAGMASTER_DEFAULT_QUEUE", "q" * 200, "must have at most 128 characters, not"),
        ("LEASE_TTL_SEC", "9.9", "must be 10 to 300 s: a shorter lease ends in a pause of the process"),
        ("DAGMASTER_WORKER_LEASE_SECONDS", "301", "must be 5 to 300 s: a shorter lease ends in a pause"),
        ("DAGMASTER_METRICS_KEY", "short-secret", "must have at least 20 characters."),
        (
            "HEARTBEAT_INTERVAL_SEC",
            "8",
            "must be at most half of DAGMASTER_ORCHESTRATOR_LEASE_SECONDS (15 s), not '8'.",
        ),
        (
            "WORKER_HEARTBEAT_INTERVAL",
            "30",
            "must be at most half of DAGMASTER_WORKER_LEASE_SECONDS (6 s), not '30'.",
        ),
    ],
)
def test_a_value_that_is_not_allowed_is_answered_with_what_is(environment, variable, value, problem):
    environment(**{variable: value})
    with pytest.raises(SettingsInvalid) as error:
        load_settings(services=True)
    assert str(error.value).startswith(f"{variable} {problem}")


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("RUN_MODE", "Worker", ("run_mode", "worker")),
        ("ORCHESTRATOR_URL", "http://server:8420/", ("orchestrator_url", "http://server:8420")),
        ("WORKER_URL", "https://worker/base", ("worker_url", "https://worker/base")),
        ("WORKER_QUEUE", "heavy", ("queues", ("heavy",))),
        ("DAG_WORKER_QUEUE", "heavy", ("queues", ("heavy",))),
        ("POLL_INTERVAL_SEC", "3", ("poll_seconds", 3.0)),
        ("ORPHAN_THRESHOLD_SEC", "120", ("orchestrator_lease_seconds", 120.0)),
        ("LEASE_TTL_SEC", "30", ("orchestrator_lease_seconds", 30.0)),
        ("ORPHAN_SCAN_INTERVAL_SEC", "60", ("orchestrator_scan_seconds", 60.0)),
        ("HEARTBEAT_INTERVAL_SEC", "7", ("orchestrator_heartbeat_seconds", 7.0)),
        ("PULSE_INTERVAL_SEC", "7", ("orchestrator_heartbeat_seconds", 7.0)),
        ("LEASE_ACQUIRE_DELAY_SEC", "2", ("reconnect_max_seconds", 2.0)),
        ("LEASE_ACQUIRE_RETRIES", "3", ("start_retries", 3)),
        ("WORKER_HEARTBEAT_INTERVAL", "3", ("worker_heartbeat_seconds", 3.0)),
        ("WORKER_TASK_TIMEOUT", "60", ("task_timeout_seconds", 60.0)),
        ("WORKER_MAX_RETRIES", "5", ("task_max_retries", 5)),
        ("JOB_DEFAULT_TIMEOUT", "86400", ("job_timeout_seconds", 86400.0)),
    ],
)
def test_a_name_of_the_sources_sets_its_setting(environment, name, value, setting):
    environment(**{name: value})
    reading = read_settings(services=True)
    assert (getattr(reading.settings, setting[0]), reading.origins) == (setting[1], {setting[0]: name})


def test_the_sources_own_intervals_fit_together(environment):
    # Their documents: 30 s and 120 s for jobs, 10 s and 30 s for the lease of an orchestrator.
    environment(HEARTBEAT_INTERVAL_SEC="30", ORPHAN_THRESHOLD_SEC="120", ORPHAN_SCAN_INTERVAL_SEC="60")
    settings = load_settings(services=True)
    assert (settings.orchestrator_heartbeat_seconds, settings.orchestrator_lease_seconds) == (30.0, 120.0)


def test_every_setting_is_in_one_group_and_shown_once():
    names = [name for model in GROUPS.values() for name in model.model_fields]
    assert sorted(names) == sorted(Settings.model_fields)
    assert [row.name for row in show_settings(read_settings())] == names


def test_a_wrong_setting_does_not_hide_the_right_ones(environment):
    environment(DAGMASTER_CONCURRENCY="many", DAGMASTER_QUEUES="a, b,")
    reading = read_settings()
    assert reading.settings.queues == ("a", "b")
    assert reading.settings.concurrency == Settings.model_fields["concurrency"].default
    assert list(reading.problems) == ["concurrency"]


def test_an_empty_variable_is_an_unset_one(environment):
    environment(DAGMASTER_CONCURRENCY="", DAGMASTER_DATABASE_URL="", DAGMASTER_CONCURENCY="", DATABASE_URL="")
    reading = read_settings(services=True)
    assert (reading.origins, reading.problems, reading.typos, reading.unused) == ({}, {}, (), ())


def test_a_variable_that_is_no_setting_is_reported_with_the_nearest_name(environment):
    environment(
        DAGMASTER_CONCURENCY="3",
        DAGMASTER_XYZZY="1",
        DAGMASTER_SECRET_TOKEN=CANARY,
        DAGMASTER_POSTGRES_USER="x",
    )
    reading = read_settings()
    assert reading.typos == (
        "DAGMASTER_CONCURENCY is not a setting: did you mean DAGMASTER_CONCURRENCY?",
        "DAGMASTER_XYZZY is not a setting.",
    )
    assert reading.secrets == ("TOKEN",)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://me:pw@db:5432/jobs", "postgresql://me:***@db:5432/jobs"),
        ("postgresql://me@db/jobs", "postgresql://me@db/jobs"),
        ("postgresql://me:pw@a:1,b:2/jobs", "postgresql://me:***@a:1,b:2/jobs"),
        ("postgresql://me@tenant:pw@db/jobs", "postgresql://me:***@db/jobs"),
        ("postgresql:///jobs?host=/run/x&user=me", "postgresql:///jobs?host=/run/x&user=me"),
        (
            "postgresql://db/jobs?password=pw&sslpassword=pw",
            "postgresql://db/jobs?password=***&sslpassword=***",
        ),
        ("host=db password=pw", MASK),
        ("postgresql://me:[pw", MASK),
    ],
)
def test_an_address_shows_user_host_and_database_and_no_password(url, masked):
    assert mask_url(url).replace("me@tenant", "me") == masked


@given(st.text(alphabet="ab@/?#:%[]=&.", max_size=8))
def test_no_password_however_it_is_written_is_shown(rest):
    # The canary may stand anywhere in what a user took for a password.
    for password in (f"{CANARY}{rest}", f"{rest}{CANARY}"):
        assert CANARY not in mask_url(f"postgresql://user:{password}@host/db")


@pytest.mark.parametrize("services", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        f"postgresql://u:{CANARY}@h/d",
        f"postgresql://u:x/{CANARY}@h/d",
        f"postgresql://u:{CANARY}@h:port/d",
        f"mysql://u:{CANARY}@h/d",
        f"host=h password={CANARY}",
        CANARY,
    ],
)
@pytest.mark.parametrize("name", ["DAGMASTER_DATABASE_URL", "DAGMASTER_DATABASE_DIRECT_URL", "DATABASE_URL"])
def test_nothing_that_is_reported_about_settings_has_a_secret_in_it(environment, name, value, services):
    environment(**{name: value, "DAGMASTER_SECRET_X": CANARY, "SERVICE_BUS_CONNECTION_STRING": CANARY})
    reading = read_settings(services=services)
    assert CANARY not in f"{reading} {show_settings(reading)}"
    try:
        load_settings(services=services)
    except SettingsInvalid as error:
        assert CANARY not in f"{error!r} {error.__cause__} {error.__context__}"  # noqa: PT017 - it may also fit
    assert any(CANARY in secret for secret in secret_values())


def test_a_password_is_known_as_a_secret_quoted_and_not(environment):
    environment(DAGMASTER_DATABASE_URL="postgresql://u:p%40ss@h/d?sslpassword=other")
    assert {"p%40ss", "p@ss", "other"} <= secret_values()


def test_the_default_data_directory_is_documented():
    path = str(default_data_dir()).replace(str(Path.home() / ".local"), "~/.local")
    assert path in str(Settings.model_fields["data_dir"].description)


def test_tests_may_use_shorter_leases(environment):
    environment(DAGMASTER_SHORT_LEASES="1", LEASE_TTL_SEC="2", DAGMASTER_WORKER_LEASE_SECONDS="0.5")
    settings = load_settings(services=True)
    assert (settings.orchestrator_lease_seconds, settings.worker_lease_seconds) == (2.0, 0.5)

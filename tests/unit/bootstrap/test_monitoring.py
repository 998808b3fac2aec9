"""The port of metrics: off unless it is set, on loopback unless it has a key, and a sentence if it is taken."""

from __future__ import annotations

import subprocess
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from pydantic import SecretStr

from dagmaster.bootstrap.monitoring import open_metrics_port
from dagmaster.errors import SettingsInvalid
from dagmaster.settings import Settings


@pytest.mark.process
def test_without_a_port_nothing_of_prometheus_is_imported():
    assert open_metrics_port(Settings()) is None
    code = (
        "import sys, dagmaster.cli.commands.services, dagmaster.bootstrap.monitoring, dagmaster.orchestrator.service,"
        " dagmaster.worker.service; sys.exit(any(name.startswith(('prometheus', 'opentelemetry')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_metrics_are_served_on_loopback_and_a_taken_port_is_named():
    metrics = open_metrics_port(Settings(), 0)
    assert metrics is not None
    port = metrics.port
    try:
        metrics.count("dagmaster_jobs_failed_total", "flow")
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b'dagmaster_jobs_failed_total{workflow="flow"} 1.0' in answer.read()
        with pytest.raises(SettingsInvalid, match=f"metrics cannot be served at 127.0.0.1:{port}"):
            open_metrics_port(Settings(metrics_port=port))
    finally:
        metrics.close()


def test_an_address_that_others_reach_needs_a_key_and_a_key_is_checked():
    key = "a-key-of-scrapers-0123456789"
    with pytest.raises(SettingsInvalid, match="set DAGMASTER_METRICS_KEY"):
        open_metrics_port(Settings(metrics_port=9_421, metrics_host="0.0.0.0"))
    metrics = open_metrics_port(Settings(metrics_key=SecretStr(key)), 0)
    assert metrics is not None
    try:
        metrics.count("dagmaster_jobs_failed_total", "flow")
        url = f"http://127.0.0.1:{metrics.port}/metrics"
        for header in (None, "Bearer", f"Bearer {key}x", key, "Bearer é"):
            with pytest.raises(HTTPError) as caught:
                urlopen(Request(url, headers={} if header is None else {"Authorization": header}))
            assert (caught.value.code, caught.value.read()) == (401, b"")
        with urlopen(Request(url, headers={"Authorization": f"Bearer {key}"})) as answer:
            assert b"dagmaster_jobs_failed_total" in answer.read()
    finally:
        metrics.close()

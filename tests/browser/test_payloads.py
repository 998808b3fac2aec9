"""Nothing that a user writes becomes markup or a script: 200 payloads in every field, each page loaded once."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from dagmaster.ports.api_keys import Scope
from dagmaster.sdk.handler_registry import Registry, handler
from dagmaster.ui.navigation import NAVIGATION, Mode
from dagmaster.ui.site import Site, page_scopes
from dagmaster.worker.task_log_capture import capture
from tests.browser.payloads import ANSI, PAYLOADS, PRINTABLE, pack
from tests.browser.visitor import Visitor
from tests.unit.http.loopback import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Dialog, Page

    from tests.unit.http.loopback import Loopback

ALL = "\n".join(PAYLOADS)
HALVES = pack(PAYLOADS, 4_000)  # texts of a workflow have at most 4,096 characters
ITEMS = pack(PRINTABLE, 700)
# No queue has these characters. To HTML, a slash separates as a space does.
QUEUES = pack(tuple(re.sub(r"[\s,*]", "/", payload) for payload in PRINTABLE), 128)


async def plant(item: Any = None, text: str = "") -> dict[str, Any]:
    """Return, print and raise payloads."""
    print("\n".join([*ANSI, *ITEMS]))  # noqa: T201 - the log of the task
    if item is not None and item["number"] % 2:
        raise ValueError(item["name"])
    return {"text": text, "bbox": [0, 0, 1, 1], **{payload: payload for payload in PAYLOADS}}


plant.__doc__ = ALL
PLANT = handler("plant", queue=QUEUES[0])(plant)
FLOW = {
    "workflow_id": "planted",
    "name": HALVES[0][:256],
    "description": HALVES[0],
    "tags": list(PRINTABLE[:100]),
    "inputs": {
        "text": {"type": "string", "description": HALVES[1], "default": ALL},
        "choice": {"type": "string", "enum": list(PAYLOADS), "default": PAYLOADS[0]},
        "tiles": {"type": "array", "default": []},
    },
    "nodes": {
        "first": {
            "handler": "plant",
            "description": HALVES[0],
            "params": {"text": "{{ inputs.text }}"},
            "next": "tiles",
        },
        "tiles": {
            "type": "fan_out",
            "description": HALVES[1],
            "source": "{{ inputs.tiles }}",
            "tolerate_failures": "100%",
            "task": {"handler": "plant", "params": {"item": "{{ item }}"}, "retry": {"max_attempts": 1}},
            "next": ["ask_0", "ask_1", "signal"],
        },
        **{
            f"ask_{number}": {
                "type": "approval",
                "description": half,
                "message": half.replace("{%", "").replace("{#", ""),
            }
            for number, half in enumerate(HALVES)
        },
        "signal": {"type": "wait", "description": HALVES[1], "signal": QUEUES[1]},
    },
    "outputs": {"text": "{{ inputs.text }}"},
}
FAILING = {
    "workflow_id": "failing",
    "inputs": {"tiles": {"type": "array", "default": []}},
    "nodes": {
        "tiles": {
            "type": "fan_out",
            "source": "{{ inputs.tiles }}",
            "task": {"handler": "plant", "params": {"item": "{{ item }}"}, "retry": {"max_attempts": 1}},
        }
    },
}
TILES = [
    {"number": number, "name": text, "bbox": [number, 0, number + 1, 1], text[:60]: text}
    for number, text in enumerate(ITEMS)
]
# What must never be: handlers of events, addresses that run scripts, elements that no page has, scripts of others.
TAGS = """a article aside body button canvas circle code code-editor dag-graph datalist dd defs del desc details dialog div
    dl dt ellipse fieldset form g h1 h2 h3 head header html input job-map job-timeline kbd label legend li line link log-view
    main marker meta nav noscript ol optgroup option output p path pattern pre progress rect script section select small
    i ins span strong summary svg table tbody td text textarea tfoot th thead time title tr ul use img figure figcaption
    polyline polygon caption footer hr samp"""
INTRUDERS = r"""(tags) => [...document.querySelectorAll("*")].flatMap((element) => {
    const name = element.localName;
    const shown = element.outerHTML.slice(0, 200);
    const problems = tags.split(/\s+/).includes(name) ? [] : [`element ${name}: ${shown}`];
    const assets = document.documentElement.dataset.assets;
    if (name === "script" && !element.getAttribute("src")?.startsWith(`${assets}/`)) problems.push(`script: ${shown}`);
    if (name === "img" && !/^\/(ui\/static|api)\//.test(element.getAttribute("src"))) problems.push(`image: ${shown}`);
    if (name === "meta" && element.httpEquiv) problems.push(`meta: ${shown}`);
    for (const { name: attribute, value } of element.attributes) {
        if (/^on|^srcdoc$|^ping$/i.test(attribute)) problems.push(`attribute ${attribute}: ${shown}`);
        if (/^(href|src|action|formaction|xlink:href|data)$/i.test(attribute)) {
            const url = new URL(value || ".", location.href);
            if (url.origin !== location.origin && url.protocol !== "blob:") problems.push(`address ${value}: ${shown}`);
        }
        if (/^(id|class|name|style)$/.test(attribute) && /pwned/.test(value)) problems.push(`attribute ${attribute}: ${shown}`);
    }
    return problems;
})"""


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    """Return a server for payloads."""
    with serve(Registry([PLANT]), Site(Mode.DEV)) as loopback:
        yield loopback


@pytest.fixture(scope="module")
def jobs(server: Loopback) -> dict[str, str]:
    """Plant all payloads, or as many as it can hold, in every field that a user fills; return two jobs."""
    visitor = Visitor(None, server)  # type: ignore[arg-type]
    for flow in (FLOW, {**FLOW, "version": 2, "name": "planted", "tags": list(PRINTABLE[100:200])}, FAILING):
        answer = visitor.api.post("/api/v1/workflows", json={"text": json.dumps(flow)})
        assert answer.status_code == 201, answer.text
    key = server.make_key(Scope.ADMIN, Scope.WORK, name=pack(PRINTABLE, 64)[0])
    for name in pack(PRINTABLE, 64)[1:]:
        server.make_key(Scope.READ, name=name)
    visitor.api.headers["Authorization"] = f"Bearer {key}"
    for host, queue in zip(pack(PRINTABLE, 250), QUEUES, strict=False):
        worker = {
            "host": host,
            "version": host[:64],
            "queues": [queue],
            "handlers": [{"name": "planted.remote", "description": ALL[:2_000], "queue": queue}],
        }
        answer = visitor.api.post("/api/v1/workers", json=worker)
        assert answer.status_code == 201, answer.text
    names, ids = pack(PRINTABLE, 128), pack(PRINTABLE, 64)
    batch = [
        {
            "workflow_id": "failing",
            "name": name,
            "correlation_id": ids[number % len(ids)],
            "inputs": {"tiles": []},
        }
        for number, name in enumerate(names)
    ]
    answer = visitor.api.post("/api/v1/jobs/batch", json={"jobs": batch})
    assert answer.status_code < 300, answer.text
    named = {"name": names[0], "correlation_id": ids[0]}
    job_ids = {}
    for workflow, status in (("planted", "WAITING"), ("failing", "FAILED")):
        body = {"workflow_id": workflow, "inputs": {"tiles": TILES}, **named}
        with capture():
            answer = visitor.api.post("/api/v1/jobs", json=body)
            assert answer.status_code == 202, answer.text
            job_ids[workflow] = answer.json()["job_id"]
            visitor.until(job_ids[workflow], status)
    visitor.close(None)
    return job_ids


def watch(page: Page, origin: str) -> list[str]:
    """Return a list that gets what happens in the browser: dialogs, scripts, violations of the policy, requests to others."""
    reports: list[str] = []
    page.expose_function("report", lambda text: reports.append(text))  # noqa: PLW0108 - no method of a builtin
    page.add_init_script("""
        window.pwned = () => window.report("pwned");
        addEventListener("securitypolicyviolation", (event) => {
            window.report(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
        });
    """)

    def dismiss(dialog: Dialog) -> None:
        reports.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", dismiss)
    page.on(
        "request",
        lambda one: None if one.url.startswith(("blob:", "data:", origin)) else reports.append(one.url),
    )
    return reports


def test_no_payload_becomes_markup_or_runs_on_any_page(visitor: Visitor, jobs: dict[str, str]):
    page = visitor.page(None)
    reports = watch(page, visitor.server.url)
    waiting, failed = (f"/ui/jobs/{jobs[name]}" for name in ("planted", "failing"))
    tabs = ["", "/timeline", "/nodes?open=tiles", "/events?children=1", "/values", "/logs", "/map"]
    paths = [
        *[item.path for item in NAVIGATION if ("GET", item.path) in page_scopes()],
        "/ui/jobs?text=%3Cscript%3Epwned()%3C/script%3E&workflow_id=%22%3E%3Cimg%20src=x%20onerror=pwned()%3E",
        "/ui/%3Cscript%3Epwned()%3C/script%3E",
        "/ui/login?next=/ui/%22%3E%3Cscript%3Epwned()%3C/script%3E",
        *[waiting + tab for tab in tabs],
        *[failed + tab for tab in tabs],
        f"{waiting}/nodes/ask_0",
        f"{waiting}/nodes/ask_1",
        f"{waiting}/nodes/signal",
        f"{waiting}/nodes/first",
        f"{waiting}/cancel",
        f"{failed}/resume",
        f"{failed}/nodes/tiles__1",
        *[
            f"/ui/workflows/planted{tab}"
            for tab in ("", "/graph", "/definition", "/versions?before=1&after=2")
        ],
        "/ui/submit?workflow_id=planted",
        "/ui/editor?workflow_id=planted",
    ]
    problems: list[str] = []

    def look(path: str) -> None:
        page.evaluate(
            "() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))"
        )
        problems.extend(f"{path}: {problem}" for problem in [*page.evaluate(INTRUDERS, TAGS), *reports])
        reports.clear()

    for path in paths:
        page.goto(path)
        look(path)
    page.goto(failed)
    page.get_by_role("link", name="First failure").click()
    expect(page.get_by_role("dialog", name="Node")).to_contain_text(ITEMS[1][:200])
    look("drawer")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Resume").click()
    expect(page.get_by_role("dialog", name="Resume")).to_be_visible()
    look("dialog")
    assert problems == []
    visitor.problems.clear()  # 404 is one of the pages


def test_payloads_are_shown_as_they_were_written(visitor: Visitor, jobs: dict[str, str]):
    page = visitor.page(f"/ui/jobs/{jobs['planted']}/values")
    inputs = json.loads(page.get_by_label("Inputs").last.inner_text())
    assert inputs["text"] == ALL
    page.goto(f"/ui/jobs/{jobs['planted']}/logs")
    expect(page.locator(".log-line", has_text=ITEMS[0]).first).to_be_visible()
    page.goto(f"/ui/jobs/{jobs['planted']}/nodes/ask_1")
    expect(page.locator(".callout-lead")).to_have_text(HALVES[1], use_inner_text=True)
    page.goto("/ui/jobs?workflow_id=failing")
    assert set(page.locator("tr[data-job] a.title").all_inner_texts()) <= set(pack(PRINTABLE, 128))

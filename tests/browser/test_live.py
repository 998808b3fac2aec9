"""Live updates: a snapshot and deltas on one connection, resumed without gap or repeat."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.browser.elements import MOUNT

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.visitor import Visitor

RECORD = """async ([connect, ...args]) => {
    const live = await import(`${document.documentElement.dataset.assets}/live.js`);
    window.messages = [];
    const names = ["snapshot", "delta", "tasks", "end"].flatMap((type) => [`job-${type}`, `list-${type}`]);
    for (const name of [...names, "live-state"]) {
        document.addEventListener(name, ({ detail }) => window.messages.push([name, structuredClone(detail)]));
    }
    window.connection = live[connect](...args);
}"""
FAKE_SOURCE = """() => {
    window.sources = [];
    window.EventSource = class extends EventTarget {
        static CLOSED = 2;
        constructor(url) { super(); this.url = String(url); this.readyState = 1; window.sources.push(this); }
        close() { this.readyState = 2; }
        send(type, data, lastEventId = "") { this.dispatchEvent(Object.assign(new MessageEvent(type, { data: JSON.stringify(data), lastEventId }))); }
    };
}"""
HIDE = """(isHidden) => {
    Object.defineProperty(document, "hidden", { get: () => isHidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def connect(page: Page, function: str, *args: str) -> None:
    page.evaluate(RECORD, [function, *args])


def messages(page: Page, name: str) -> list[Any]:
    details: list[Any] = page.evaluate(
        "(name) => messages.filter((one) => one[0] === name).map((one) => one[1])", name
    )
    return details


def wait_for(page: Page, name: str, condition: str = "true") -> None:
    """Wait for a message whose `detail` has a property."""
    page.wait_for_function(
        f"(name) => messages.some(([type, detail]) => type === name && ({condition}))", arg=name, polling=50
    )


def approve(visitor: Visitor, job_id: str) -> None:
    answer = visitor.api.post(f"/api/v1/jobs/{job_id}/nodes/ask/approve", json={})
    assert answer.status_code < 300, answer.text


def test_a_job_comes_as_a_snapshot_and_deltas_until_it_has_finished(visitor: Visitor):
    job_id = visitor.submit("hello")
    visitor.until(job_id, "WAITING")
    page = visitor.page("/ui/workflows")
    connect(page, "connectJob", job_id)
    wait_for(page, "job-snapshot")
    (snapshot,) = messages(page, "job-snapshot")
    assert (snapshot["job_id"], snapshot["nodes"]["ask"]["status"]) == (job_id, "WAITING")
    approve(visitor, job_id)
    wait_for(page, "live-state", "detail.state === 'closed'")
    deltas = messages(page, "job-delta")
    seen = [event["seq"] for delta in deltas for event in delta["events"]]
    last = visitor.job(job_id)["event_seq"]
    assert seen == list(range(snapshot["event_seq"] + 1, last + 1))
    assert deltas[-1]["job"]["status"] == "COMPLETED"
    assert [state["state"] for state in messages(page, "live-state")] == ["live", "closed"]
    assert messages(page, "live-state")[-1]["reason"] == messages(page, "job-end")[-1]["reason"] == "finished"


def test_a_hidden_tab_has_no_connection_and_misses_nothing(visitor: Visitor):
    job_id = visitor.submit("hello")
    visitor.until(job_id, "WAITING")
    page = visitor.page("/ui/workflows")
    connect(page, "connectJob", job_id)
    wait_for(page, "job-snapshot")
    page.evaluate(HIDE, True)
    approve(visitor, job_id)
    visitor.until(job_id, "COMPLETED")
    assert messages(page, "job-delta") == []
    with page.expect_request(re.compile(r"/stream\?last_event_id=\d+")):
        page.evaluate(HIDE, False)
    wait_for(page, "live-state", "detail.state === 'closed'")
    (snapshot,) = messages(page, "job-snapshot")
    seen = [event["seq"] for delta in messages(page, "job-delta") for event in delta["events"]]
    assert seen == list(range(snapshot["event_seq"] + 1, visitor.job(job_id)["event_seq"] + 1))


def test_a_server_that_comes_back_continues_where_it_was(visitor: Visitor):
    job_id = visitor.submit("hello")
    visitor.until(job_id, "WAITING")
    page = visitor.page("/ui/workflows")
    connect(page, "connectJob", job_id)
    wait_for(page, "job-snapshot")
    visitor.server.restart()
    wait_for(page, "live-state", "detail.state === 'stale'")
    approve(visitor, job_id)
    wait_for(page, "live-state", "detail.state === 'closed'")
    (snapshot,) = messages(page, "job-snapshot")
    seen = [event["seq"] for delta in messages(page, "job-delta") for event in delta["events"]]
    assert seen == list(range(snapshot["event_seq"] + 1, visitor.job(job_id)["event_seq"] + 1))
    visitor.problems.clear()  # the connection that was cut off is in the console


def test_a_network_that_is_cut_off_shows_since_when_the_page_is_stale(visitor: Visitor):
    job_id = visitor.submit("hang")
    page = visitor.page("/ui/workflows")
    connect(page, "connectJob", job_id)
    wait_for(page, "job-snapshot")
    page.context.set_offline(True)
    wait_for(page, "live-state", "detail.state === 'stale' && detail.since instanceof Date")
    page.context.set_offline(False)
    page.wait_for_function(
        "() => messages.filter(([type]) => type === 'live-state').at(-1)[1].state === 'live'"
    )
    page.evaluate("connection.close()")
    visitor.api.post(f"/api/v1/jobs/{job_id}/cancel", json={})
    visitor.problems.clear()  # the network that was cut off is in the console


def test_a_key_that_is_not_valid_any_more_leads_to_the_login(visitor: Visitor):
    page = visitor.page("/ui/workflows")
    page.route("**/api/v1/jobs/7/stream", lambda route: route.fulfill(status=401))
    page.route("**/api/v1/jobs/7", lambda route: route.fulfill(status=401))
    connect(page, "connectJob", "7")
    # The page leaves at once: what it recorded is gone with it.
    expect(page).to_have_url(re.compile("/ui/login.next=%2Fui%2Fworkflows"))
    visitor.problems.clear()  # 401 is in the console


def test_a_job_that_is_deleted_ends_the_connection(visitor: Visitor):
    page = visitor.page("/ui/workflows")
    connect(page, "connectJob", "123456")
    wait_for(page, "live-state", "detail.state === 'closed' && detail.reason === 'removed'")
    visitor.problems.clear()  # 404 is in the console


def test_deltas_of_one_frame_are_one_event(visitor: Visitor):
    page = visitor.page("/ui/workflows")
    page.evaluate(FAKE_SOURCE)
    connect(page, "connectJob", "7")
    page.evaluate("""() => {
        const job = (status) => ({ job_id: "7", status });
        sources[0].send("snapshot", { job_id: "7", status: "RUNNING", nodes: {} }, "1");
        sources[0].send("delta", { job: job("RUNNING"), events: [{ seq: 2 }], nodes: { a: { status: "RUNNING" } } }, "2");
        sources[0].send("delta", { job: job("RUNNING"), events: [{ seq: 3 }], nodes: { a: { status: "COMPLETED" }, b: { status: "RUNNING" } } }, "3");
        sources[0].send("tasks", { tasks: [] });
        sources[0].send("delta", { job: job("COMPLETED"), events: [{ seq: 4 }], nodes: {} }, "4");
    }""")
    wait_for(page, "job-delta", "detail.job.status === 'COMPLETED'")
    first, second = messages(page, "job-delta")
    assert [event["seq"] for event in first["events"]] == [2, 3]
    assert {node: view["status"] for node, view in first["nodes"].items()} == {
        "a": "COMPLETED",
        "b": "RUNNING",
    }
    assert [event["seq"] for event in second["events"]] == [4]
    assert [name for name, _ in page.evaluate("messages")] == [
        "job-snapshot",
        "job-delta",
        "job-tasks",
        "job-delta",
    ]


def test_a_tab_has_one_connection(visitor: Visitor):
    page = visitor.page("/ui/workflows")
    page.evaluate(FAKE_SOURCE)
    connect(page, "connectJob", "7")
    connect(page, "connectList", "status=running")
    states = page.evaluate("sources.map((source) => [new URL(source.url).pathname, source.readyState])")
    assert states == [["/api/v1/jobs/7/stream", 2], ["/api/v1/stream", 1]]
    assert page.evaluate("new URL(sources[1].url).search") == "?status=running"


def test_a_list_comes_as_a_snapshot_and_what_changes(visitor: Visitor):
    page = visitor.page("/ui/workflows")
    connect(page, "connectList")
    wait_for(page, "list-snapshot")
    job_id = visitor.submit("tiles")
    page.wait_for_function(
        """(id) => messages.some(([name, detail]) => name === "list-delta" && detail.jobs.some((job) => job.job_id === id && job.status === "COMPLETED"))""",
        arg=job_id,
        polling=50,
    )


def test_a_change_of_a_job_reaches_its_graph_and_its_timeline(visitor: Visitor):
    job_id = visitor.submit("tiles", count=6)
    page = visitor.page("/ui/workflows")
    source = f"/api/v1/jobs/{job_id}/graph"
    page.evaluate(MOUNT, ["dag-graph", {"src": source, "job-id": job_id}, "graph-ready"])
    connect(page, "connectJob", job_id)
    expect(page.locator(".dag-node[data-status=COMPLETED]")).to_have_count(3)
    expect(page.get_by_role("button", name="List the children of clip")).to_have_text("6 · 6 ok")
    page.evaluate(MOUNT, ["job-timeline", {"src": f"/api/v1/jobs/{job_id}/timeline"}, "timeline-ready"])
    assert page.evaluate("document.querySelector('job-timeline').laneCount") == 9


def test_the_page_of_a_finished_job_shows_the_statuses_of_its_graph_and_opens_a_node(visitor: Visitor):
    job_id = visitor.submit("tiles", count=4, fails=True)
    visitor.until(job_id, "FAILED")
    page = visitor.page(f"/ui/jobs/{job_id}")
    expect(page.locator(".dag-node[data-status=FAILED]")).to_have_count(1)
    page.get_by_role("button", name="plan,").click()
    expect(page.get_by_role("dialog", name="Node").get_by_role("heading", name="plan")).to_be_visible()

"""What users write is text on every page: 200 payloads in every field, no dialog, no injected node, no CSP report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Dialog, Page

    from tests.browser.visitor import Visitor

RUN = "window.injected=1"
TEMPLATES = (
    "<script>{0}</script>",
    "<img src=x onerror={0}>",
    "<svg onload={0}>",
    "<svg><script>{0}</script></svg>",
    '"><script>{0}</script>',
    "'><img src=x onerror={0}>",
    "</title><script>{0}</script>",
    "</pre></textarea><script>{0}</script>",
    '<iframe srcdoc="<script>parent.{0}</script>"></iframe>',
    '<a href="javascript:{0}">x</a>',
    "javascript:{0}//",
    "{{{{ {0} }}}}",
    "{{% raw %}}{0}{{% endraw %}}",
    "${{{0}}}",
    "<style>*{{background:url(javascript:{0})}}</style>",
    "<math><mtext><img src=x onerror={0}></mtext></math>",
    "<details open ontoggle={0}>",
    "<body onload={0}>",
    "<input autofocus onfocus={0}>",
    "&lt;script&gt;{0}&lt;/script&gt;",
)
VARIANTS = ("{}", "{} ", "x{}", "{}\u202e", "\u2028{}", "🌍{}", "%3Cx%3E{}", "\\u003c{}", "&#60;{}", "A" * 20 + "{}")
PAYLOADS = [variant.format(template.format(RUN)) for template in TEMPLATES for variant in VARIANTS]


def printable(text: str) -> str:
    """Return a text as it may be a name."""
    return "".join(character for character in text if character.isprintable()).strip()


def test_no_payload_is_more_than_text_on_any_page(visitor: Visitor):
    assert len(PAYLOADS) == 200
    jobs = [
        {
            "workflow_id": "text",
            "name": printable(text)[:128],
            "correlation_id": printable(text)[:64],
            "inputs": {"text": text},
        }
        for text in PAYLOADS
    ]
    for batch in (jobs[:100], jobs[100:]):
        answer = visitor.api.post("/api/v1/jobs/batch", json={"jobs": batch})
        assert {result["outcome"] for result in answer.json()} == {"accepted"}, answer.text
    everything = "\n".join(PAYLOADS)
    bad = visitor.submit("text", text=everything, fails=True)
    visitor.until(bad, "FAILED")
    paths = [
        f"/ui/jobs/{bad}{tab}" for tab in ("", "/timeline", "/nodes", "/events", "/values", "/logs", "/map", "/resume")
    ]
    paths += [f"/ui/jobs/{bad}/nodes/{node}" for node in ("say", "crash")]
    paths += ["/ui/", f"/ui/jobs?text={RUN}", "/ui/jobs?correlation_id=%3Cscript%3E", "/ui/%3Cscript%3E"]
    page = visitor.page("/ui/jobs?workflow_id=text")
    dialogs: list[str] = []

    def on_dialog(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", on_dialog)
    while True:
        _check(page)
        following = page.get_by_role("link", name="Next page")
        if not following.count():
            break
        following.click()
    for path in paths:
        page.goto(path)
        _check(page)
    page.goto(f"/ui/jobs/{bad}")
    page.get_by_role("link", name="First failure").click()
    expect(page.get_by_role("dialog", name="Node").get_by_role("heading", name="crash")).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("<script")
    expect(page.locator(".palette-list li").first).to_be_visible()
    _check(page)
    assert dialogs == []
    visitor.problems[:] = [problem for problem in visitor.problems if "404" not in problem]


def _check(page: Page) -> None:
    page.wait_for_load_state("load")
    nodes = page.evaluate(
        "[...document.querySelectorAll('script:not([src]), iframe, math, style, [onerror], [onload], [onfocus], [ontoggle],"
        ' a[href^="javascript:"], img:not([src^="/ui/static"])\')].map((node) => node.outerHTML.slice(0, 200))'
    )
    assert nodes == [], page.url
    assert page.evaluate("window.injected") is None, page.url

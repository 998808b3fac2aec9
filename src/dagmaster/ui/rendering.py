"""Renders pages: Jinja2 with autoescape, where an unknown name is an error, and the headers of every page.

A template reads `page`, `shell` and macros of `partials/`, nothing else. A request with `X-Fragment` gets one
block of the template, by default its content: for drawers, dialogs and lists that are updated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from dagmaster.application.api_keys import allows
from dagmaster.ports.api_keys import Scope
from dagmaster.ui.navigation import FEATURES, TERMS, navigation_for
from dagmaster.ui.notices import clear_notice, take_notice
from dagmaster.ui.sessions import session_key, token_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from dagmaster.ports.api_keys import Caller
    from dagmaster.ui.assets import Assets
    from dagmaster.ui.navigation import Feature, Mode, NavigationSection, Terms
    from dagmaster.ui.notices import Notice
    from dagmaster.ui.site import Site

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " font-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
THEMES: Final = ("light", "dark")
FRAGMENT: Final = "X-Fragment"
_BLOCK: Final = "content"
_MACROS: Final = (
    "icon.html",
    "status_badge.html",
    "times.html",
    "lists.html",
    "nodes.html",
    "charts.html",
    "members.html",
)


class Titled(Protocol):
    """A page: a frozen dataclass with a title."""

    @property
    def title(self) -> str:
        """Return what the tab of the browser shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The shell of a page. `token`: what every form of the viewer's session contains."""

    title: str
    path: str
    user: str
    token: str
    can_operate: bool
    can_submit: bool
    can_administer: bool
    navigation: tuple[NavigationSection, ...]
    mode: Mode
    terms: Terms
    features: frozenset[Feature]
    theme: str
    version: str
    notice: Notice | None

    def is_current(self, path: str) -> bool:
        """Return whether an item of the navigation is the page, or what the page belongs to."""
        return self.path == path or (path != "/ui/" and self.path.startswith(f"{path}/"))

    def offers(self, path: str) -> bool:
        """Return whether the navigation has a page: it is served, and the viewer may see it."""
        return any(item.path == path for section in self.navigation for item in section.items)

    def has(self, feature: str) -> bool:
        return feature in self.features


def make_environment(assets: Assets) -> Environment:
    environment = Environment(
        loader=PackageLoader("dagmaster.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    # What macros need and no page has. `ui` has the macros: a fragment is rendered without the imports of its
    # template.
    macros = SimpleNamespace()
    environment.globals.update(assets=assets.base, status_look=status_look, ui=macros)
    for name in _MACROS:
        vars(macros).update(vars(environment.get_template(f"partials/{name}").module))
    return environment


def render(request: Request, template: str, page: Titled, *, status: int = 200) -> Response:
    """Return a page, or the content of it, as the caller of a request sees it."""
    site: Site = request.app.state.site
    shell = make_shell(request, page.title)
    names = {"page": page, "shell": shell}
    loaded = site.templates.get_template(template)
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-store", "Vary": FRAGMENT}
    if is_fragment(request):
        block = loaded.blocks.get(fragment_of(request)) or loaded.blocks[_BLOCK]
        content = "".join(block(loaded.new_context(names)))
        return HTMLResponse(content, status, headers)
    response = HTMLResponse(loaded.render(names), status, headers)
    if shell.notice is not None:
        clear_notice(response)
    return response


def is_fragment(request: Request) -> bool:
    """Return whether a script of a page asks for a part of it."""
    return FRAGMENT in request.headers


def fragment_of(request: Request) -> str:
    """Return the name of the part that a script asks for: a block of the template, else the whole content."""
    return request.headers.get(FRAGMENT, "")


def make_shell(request: Request, title: str) -> Shell:
    site: Site = request.app.state.site
    viewer: Caller | None = getattr(request.state, "caller", None)
    key = session_key(request)
    theme = request.cookies.get("dagmaster_theme", "")
    scopes = frozenset[Scope]() if viewer is None else viewer.scopes
    return Shell(
        title=title,
        path=request.url.path,
        user="" if viewer is None else viewer.name,
        token="" if key is None or viewer is None else token_of(key),
        can_operate=allows(scopes, Scope.OPERATE),
        can_submit=allows(scopes, Scope.SUBMIT),
        can_administer=allows(scopes, Scope.ADMIN),
        navigation=() if viewer is None else navigation_for(scopes, site.served_to(viewer)),
        mode=site.mode,
        terms=TERMS[site.mode],
        features=FEATURES[site.mode],
        theme=theme if theme in THEMES else "",
        version=site.version,
        notice=take_notice(request),
    )


@dataclass(frozen=True, slots=True)
class StatusLook:
    """How a status looks: a word, an icon and one of seven tones. `static/statuses.json` is the table."""

    word: str
    icon: str
    tone: str


_LOOKS: Final = {
    name: StatusLook(**look)
    for name, look in json.loads(
        files("dagmaster.ui").joinpath("static", "statuses.json").read_text(encoding="utf-8")
    ).items()
}


def status_look(status: str) -> StatusLook:
    """Return the look of a status; one of a newer version has no tone."""
    return _LOOKS.get(str(status)) or StatusLook(str(status).lower(), "circle", "pending")

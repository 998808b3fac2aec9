/** The drawer at the side: a node without leaving the page. Links in it with data-drawer stay in it. */

import { icon, make } from "./dom.js";
import { fetchFragment } from "./fragments.js";

const SKELETON_MS = 120;
let drawer = null;
let opener = null;

/** Open the page of a node in the drawer. */
export async function openDrawer(href) {
  if (!drawer) build();
  if (!drawer.open) opener = document.activeElement;
  drawer.dataset.href = href;
  drawer.querySelector("[data-page]").href = href;
  const body = drawer.querySelector(".drawer-body");
  const waiting = setTimeout(() => body.replaceChildren(...[1, 2, 3].map(() => make("div", { className: "panel panel-body skeleton" }))), SKELETON_MS);
  drawer.show();
  try {
    const content = await fetchFragment(href);
    if (drawer.dataset.href !== href) return;
    body.replaceChildren(...document.adoptNode(content).childNodes);
  } catch {
    body.replaceChildren(make("p", { className: "muted" }, "The server cannot be reached. What is shown on the page stays."));
  } finally {
    clearTimeout(waiting);
  }
  const title = body.querySelector("[data-title]");
  drawer.querySelector("strong").textContent = title ? title.dataset.title : "Node";
  drawer.scrollTop = 0;
  drawer.querySelector("[data-close]").focus({ preventScroll: true });
}

/** Close the drawer; return whether it was open. */
export function closeDrawer() {
  if (!drawer?.open) return false;
  drawer.close();
  opener?.focus?.({ preventScroll: true });
  return true;
}

function build() {
  const close = make("button", { type: "button", className: "button button-quiet button-icon", ariaLabel: "Close", data: { "data-close": "" } }, icon("close"));
  const page = make("a", { className: "button button-quiet", data: { "data-page": "" } }, icon("external"), "Page");
  const head = make("div", { className: "drawer-head" }, make("strong"), make("div", { className: "actions" }, page, close));
  drawer = make("dialog", { className: "drawer", ariaLabel: "Node" }, head, make("div", { className: "drawer-body" }));
  close.addEventListener("click", closeDrawer);
  document.body.append(drawer);
}

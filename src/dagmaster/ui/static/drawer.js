/**
 * The drawer at the side: a node without leaving the page. Links in it with data-drawer stay in it. It is refreshed when
 * the stream of the job says that something became of the node (`job-delta`, `job-tasks`).
 */

import { icon, make } from "./dom.js";
import { fetchFragment } from "./fragments.js";
import { replaceContent } from "./refresh.js";

const SKELETON_MS = 120;
const REFRESH_MS = 300;
let drawer = null;
let opener = null;
let timer = 0;
let latest = null;

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

/** Refresh the drawer soon if a message of the stream is about its node, or about a child of it. */
function follow({ detail }) {
  const shown = drawer.querySelector("[data-node-page]")?.dataset.nodePage;
  if (drawer.open && isAbout(detail, shown)) timer ||= setTimeout(refresh, REFRESH_MS);
}

/** Return whether a delta or a list of tasks is about a node or its children. */
export function isAbout({ events = [], tasks = [] }, nodeId) {
  return [...events, ...tasks].some(({ node_id: id }) => id === nodeId || id?.startsWith(`${nodeId}__`));
}

async function refresh() {
  timer = 0;
  const { href } = drawer.dataset;
  const asked = (latest = {});
  const content = await fetchFragment(href).catch(() => null);
  if (asked !== latest) return;
  if (content && drawer.open && drawer.dataset.href === href) replaceContent(drawer.querySelector(".drawer-body"), content);
}

function build() {
  const close = make("button", { type: "button", className: "button button-quiet button-icon", ariaLabel: "Close", data: { "data-close": "" } }, icon("close"));
  const page = make("a", { className: "button button-quiet", data: { "data-page": "" } }, icon("external"), "Page");
  const head = make("div", { className: "drawer-head" }, make("strong"), make("div", { className: "actions" }, page, close));
  drawer = make("dialog", { className: "drawer", ariaLabel: "Node" }, head, make("div", { className: "drawer-body" }));
  close.addEventListener("click", closeDrawer);
  document.body.append(drawer);
  for (const type of ["job-delta", "job-tasks"]) document.addEventListener(type, follow);
}

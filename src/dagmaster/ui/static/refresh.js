/** Refreshes the regions of a page (data-refresh) with what the server renders now; keeps focus, selection, what is open and what is being written. */

import { fetchFragment } from "./fragments.js";

const MIN_MS = 1000;
let last = 0;
let timer = 0;
let isBusy = false;

/** Refresh soon: at once, but not more often than once a second. */
export function refreshSoon() {
  if (timer) return;
  timer = setTimeout(run, Math.max(0, last + MIN_MS - Date.now()));
}

async function run() {
  if (isBusy || document.hidden) {
    timer = setTimeout(run, MIN_MS);
    return;
  }
  isBusy = true;
  last = Date.now();
  timer = 0;
  try {
    replaceRegions(await fetchFragment(location.href));
  } catch {
    // The server is away: what is shown stays, the banner says so, and the stream asks again when it is back.
  } finally {
    isBusy = false;
  }
}

function replaceRegions(content) {
  for (const region of document.querySelectorAll("[data-refresh]")) {
    const next = content.querySelector(`[data-refresh="${region.dataset.refresh}"]`);
    if (next) replaceContent(region, next);
  }
  document.dispatchEvent(new CustomEvent("page-refreshed"));
}

/** Replace what is in a region, unless somebody writes there. */
export function replaceContent(region, next) {
  if ([...region.querySelectorAll("textarea, input:not([type=hidden], [type=checkbox])")].some(isInUse)) return;
  const focused = region.contains(document.activeElement) ? locate(document.activeElement) : null;
  const checked = new Set([...region.querySelectorAll("input:checked")].map((input) => input.value));
  const nameOf = (details) => details.id || details.textContent;
  const opened = new Set([...region.querySelectorAll("details[open]")].map(nameOf));
  for (const input of next.querySelectorAll("input[type=checkbox]")) input.checked ||= checked.has(input.value);
  for (const details of next.querySelectorAll("details")) details.open ||= opened.has(nameOf(details));
  region.replaceChildren(...document.adoptNode(next).childNodes);
  if (focused) region.querySelector(focused)?.focus({ preventScroll: true });
}

const isInUse = (field) => field === document.activeElement || field.value !== field.defaultValue;

function locate(node) {
  if (node.id) return `#${CSS.escape(node.id)}`;
  if (node.getAttribute("href")) return `a[href="${CSS.escape(node.getAttribute("href"))}"]`;
  return node.value ? `[value="${CSS.escape(node.value)}"]` : null;
}

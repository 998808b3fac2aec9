/**
 * The shell of every page: what ticks, what is clicked, what is shown for a moment.
 * It touches the header, the sidebar, the toasts and elements with data-… attributes; elements have modules of their own.
 */

import { startClock } from "./times.js";
import { toggleTheme } from "./theme.js";
import { showToast } from "./toasts.js";

const RETRY_SECONDS = 5;

const ACTIONS = {
  menu: toggleMenu,
  refresh: () => location.reload(),
  reload: () => location.reload(),
  theme: toggleTheme,
};

function start() {
  for (const node of document.querySelectorAll("[data-action][hidden]")) node.hidden = !(node.dataset.action in ACTIONS);
  document.addEventListener("click", onClick);
  startClock();
  showNotice();
  if (document.querySelector("[data-retry]")) setTimeout(() => location.reload(), RETRY_SECONDS * 1000);
  if (location.hash.startsWith("#key=")) loginAgain();
}

function onClick(event) {
  const action = event.target.closest("[data-action]");
  if (action && action.dataset.action in ACTIONS) {
    event.preventDefault();
    ACTIONS[action.dataset.action](action);
    return;
  }
  openRow(event);
}

/** Open what a row of a table is about, unless something in it was clicked, or text is selected. */
function openRow(event) {
  const row = event.target.closest("tr[data-href]");
  if (!row || event.target.closest("a, button, input, label, summary") || String(getSelection())) return;
  const link = row.querySelector(`a[href="${CSS.escape(row.dataset.href)}"]`) ?? row.querySelector("a");
  if (event.ctrlKey || event.metaKey) open(row.dataset.href, "_blank", "noopener");
  else link?.click();
}

function toggleMenu() {
  const shell = document.querySelector(".shell");
  shell.dataset.menu = shell.dataset.menu === "open" ? "closed" : "open";
}

/** Show what a change led to as a toast. Without scripts it stays above the page. */
function showNotice() {
  const notice = document.querySelector("[data-notice]");
  if (!notice) return;
  const tone = ["failed", "warning"].find((name) => notice.classList.contains(`tone-${name}`)) ?? "ok";
  showToast(notice.textContent.trim(), tone);
  notice.remove();
}

/** Use the key of the address, although there is a session: it may be of another server on this machine. */
function loginAgain() {
  location.replace(`/ui/login${location.hash}`);
}

start();

/**
 * The shell of every page: what ticks, what is clicked, which keys do what, and whether the server is there.
 * It touches the header, the sidebar, the toasts and elements with data-… attributes; elements have their own modules.
 */

import { openDialog } from "./dialogs.js";
import { closeDrawer, openDrawer } from "./drawer.js";
import { goToLogin } from "./fragments.js";
import { openPalette } from "./palette.js";
import { refreshSoon } from "./refresh.js";
import { showHelp, startShortcuts } from "./shortcuts.js";
import { toggleTheme } from "./theme.js";
import { startClock } from "./times.js";
import { showToast } from "./toasts.js";

const RETRY_SECONDS = 5;
const DRAWER_WIDTH = 760;

const ACTIONS = {
  menu: toggleMenu,
  palette: showPalette,
  refresh: () => location.reload(),
  reload: () => location.reload(),
  theme: toggleTheme,
};

function start() {
  // Tabs scroll sideways on a narrow screen.
  document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  for (const node of document.querySelectorAll("[data-action][hidden]")) node.hidden = !(node.dataset.action in ACTIONS);
  document.addEventListener("click", onClick);
  document.addEventListener("live-state", onLiveState);
  startClock();
  startShortcuts({
    palette: showPalette,
    escape: onEscape,
    keys: { r: ACTIONS.refresh, t: toggleTheme, "/": focusSearch, f: toggleFollow },
  });
  showNotice();
  // It exists on https and on this machine only. What it is for works at the next visit.
  navigator.serviceWorker?.register(new URL("offline-worker.js", import.meta.url), { scope: "/ui/" }).catch(() => {});
  if (document.querySelector("[data-retry]")) setTimeout(() => location.reload(), RETRY_SECONDS * 1000);
  if (location.hash.startsWith("#login=")) location.replace(`/ui/login${location.hash}`);
}

function onClick(event) {
  const action = event.target.closest("[data-action]");
  if (action && action.dataset.action in ACTIONS) {
    event.preventDefault();
    ACTIONS[action.dataset.action](action);
    return;
  }
  // A new tab or window is the browser's.
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const link = event.target.closest("a[data-drawer], [data-dialog]");
  if (link?.matches("a[data-drawer]") && innerWidth > DRAWER_WIDTH) {
    event.preventDefault();
    openDrawer(link.href);
  } else if (link?.matches("[data-dialog]")) {
    event.preventDefault();
    openDialog(link.href ?? formUrl(link));
  } else {
    openRow(event);
  }
}

/** Return where a button of a form with the method GET leads. */
function formUrl(button) {
  const fields = new URLSearchParams(new FormData(button.form));
  fields.append(button.name, button.value);
  return `${button.form.getAttribute("action")}?${fields}`;
}

/** Open what a row of a table is about, unless something in it was clicked, or text is selected. */
function openRow(event) {
  const row = event.target.closest("tr[data-href]");
  if (!row || event.target.closest("a, button, input, label, summary") || String(getSelection())) return;
  row.querySelector("a.title")?.click();
}

function onEscape(event) {
  if (document.querySelector("dialog.modal[open]")) return;
  if (closeDrawer() || closeMenu()) event.preventDefault();
}

function showPalette() {
  if (document.querySelector("dialog.modal[open]")) return;
  openPalette([["Refresh", ACTIONS.refresh], ["Light or dark", toggleTheme], ["Show keys", showHelp], ["Log out", () => document.querySelector("[action='/ui/logout']")?.requestSubmit()]]);
}

function focusSearch() {
  const search = document.querySelector("[data-search]");
  if (search) search.focus();
  else showPalette();
}

/** Follow the log, or show the whole graph: what the page has. */
function toggleFollow() {
  document.querySelector(".log-follow")?.click();
  document.querySelector("dag-graph")?.fit?.();
}

function toggleMenu() {
  const shell = document.querySelector(".shell");
  shell.dataset.menu = shell.dataset.menu === "open" ? "closed" : "open";
}

function closeMenu() {
  const shell = document.querySelector(".shell[data-menu=open]");
  if (shell) shell.dataset.menu = "closed";
  return Boolean(shell);
}

/** Show what a change led to as a toast. Without scripts it stays above the page. */
function showNotice() {
  const notice = document.querySelector("[data-notice]");
  if (!notice) return;
  const tone = ["failed", "warning"].find((name) => notice.classList.contains(`tone-${name}`)) ?? "ok";
  showToast(notice.textContent.trim(), tone);
  notice.remove();
}

/** Show whether what is on the page is live; if the server is gone, say since when, and return by itself. */
function onLiveState({ detail: { state, since, reason } }) {
  if (reason === "key_rejected") return goToLogin();
  const mark = document.querySelector("[data-live]");
  mark.hidden = state === "closed";
  mark.dataset.state = state;
  mark.textContent = state === "live" ? "live" : "not live";
  const banner = document.querySelector("[data-banner]");
  const isGone = state === "stale" && reason !== "hidden";
  if (!isGone && !banner.hidden) refreshSoon();
  banner.hidden = !isGone;
  if (reason === "removed") {
    banner.hidden = false;
    banner.textContent = `This job was removed. The page shows what it knew at ${since.toLocaleTimeString()}.`;
  }
  if (isGone) banner.textContent = `The server cannot be reached. This page shows what it knew at ${since.toLocaleTimeString()}, and continues by itself.`;
  return undefined;
}

start();

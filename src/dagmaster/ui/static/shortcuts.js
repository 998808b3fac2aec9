/**
 * Keys: g and a letter goes to a page, / searches, j and k move through rows, Enter opens, ? shows all of them.
 * Single keys can be turned off (WCAG 2.1.4); the choice is kept in the browser. Ctrl-K always works.
 */

import { icon, make } from "./dom.js";
import { showModal } from "./dialogs.js";

const STORED = "dagmaster-shortcuts";
const SEQUENCE_MS = 1200;
const HELP = [
  ["r", "Refresh"], ["/", "Search"], ["j", "Next row"], ["k", "Row before"], ["Enter", "Open the row"],
  ["f", "Follow the log, or fit the graph"], ["t", "Light or dark"], ["?", "This help"], ["Esc", "Close"], ["Ctrl K", "Go to anything"],
];
let isAfterG = 0;

/** Return whether single keys are on. */
export function areOn() {
  return localStorage.getItem(STORED) !== "off";
}

/** Listen to keys. `commands`: what a key does, by key. */
export function startShortcuts(commands) {
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      commands.palette();
      return;
    }
    if (event.key === "Escape") {
      commands.escape(event);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || !areOn() || event.defaultPrevented) return;
    const command = findCommand(event, commands);
    if (command) {
      event.preventDefault();
      command();
    }
  });
}

function findCommand({ key }, commands) {
  if (isAfterG && Date.now() - isAfterG < SEQUENCE_MS) {
    isAfterG = 0;
    const link = document.querySelector(`[data-keys="g ${CSS.escape(key)}"]`);
    return link ? () => link.click() : null;
  }
  if (key === "g") {
    isAfterG = Date.now();
    return null;
  }
  return { ...commands.keys, j: () => moveRow(1), k: () => moveRow(-1), "?": showHelp }[key];
}

function isTyping(target) {
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

/** Move to another row: its link has the focus, so that Enter opens it. */
function moveRow(step) {
  const rows = [...document.querySelectorAll("main tr[data-href]")].filter((row) => row.checkVisibility());
  if (!rows.length) return;
  const current = rows.indexOf(document.activeElement.closest?.("tr[data-href]"));
  const row = rows[current < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(current + step, 0), rows.length - 1)];
  row.querySelector("a.title")?.focus();
  row.scrollIntoView({ block: "nearest" });
}

/** Show all keys, and the switch that turns single keys off. */
export function showHelp() {
  const pages = [...document.querySelectorAll("[data-keys]")].map((link) => [link.dataset.keys, `Go to ${link.textContent.trim()}`]);
  const rows = [...HELP, ...pages].map(([keys, text]) => make("div", { className: "help-row" }, make("dt", {}, ...keys.split(" ").flatMap((key) => [make("kbd", {}, key), " "])), make("dd", {}, text)));
  const box = make("input", { type: "checkbox", checked: areOn() });
  box.addEventListener("change", () => localStorage.setItem(STORED, box.checked ? "on" : "off"));
  const close = make("button", { type: "button", className: "button", data: { "data-close": "" } }, "Close");
  const toggle = make("label", { className: "switch" }, box, "Single keys are on (Ctrl K always works)");
  showModal(make("div", { className: "modal-body" }, make("h1", {}, icon("keyboard"), " Keys"), make("dl", { className: "help" }, ...rows), toggle, make("div", { className: "actions" }, close)), "Keys");
}

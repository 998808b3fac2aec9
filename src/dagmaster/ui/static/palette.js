/** Ctrl-K: every page and every action of this page in one list; what is typed is also looked up among jobs. */

import { icon, make } from "./dom.js";
import { showModal } from "./dialogs.js";
import { statusBadge } from "./status.js";

const MIN_SEARCH = 2;
const SEARCH_MS = 150;

/** Open the palette. `actions`: [label, function] in addition to what the page offers as links and buttons. */
export function openPalette(actions) {
  const input = make("input", { type: "search", placeholder: "Go to a page, do something, find a job", ariaLabel: "Command", role: "combobox", autocomplete: "off", spellcheck: false, data: { "aria-expanded": "true", "aria-controls": "palette-list" } });
  const list = make("ul", { className: "palette-list", id: "palette-list", role: "listbox", ariaLabel: "Commands" });
  const dialog = showModal(make("div", { className: "palette" }, input, list), "Commands");
  const all = [...pageCommands(), ...actions.map(([label, run]) => ({ label, icon: "arrow-right", run }))];
  const state = { commands: all, jobs: [], chosen: 0 };
  let timer = 0;

  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    state.commands = [...all.filter(({ label }) => words.every((word) => label.toLowerCase().includes(word))), ...state.jobs];
    state.chosen = Math.min(state.chosen, Math.max(state.commands.length - 1, 0));
    list.replaceChildren(...state.commands.map((command, index) => item(command, index === state.chosen, index)));
    if (!state.commands.length) list.replaceChildren(make("li", { className: "muted" }, "Nothing matches"));
    list.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", state.commands.length ? `palette-${state.chosen}` : "");
  };
  const run = (command) => {
    dialog.close();
    command?.run();
  };
  input.addEventListener("input", () => {
    state.chosen = 0;
    state.jobs = [];
    clearTimeout(timer);
    timer = setTimeout(async () => {
      state.jobs = await findJobs(input.value.trim());
      show();
    }, SEARCH_MS);
    show();
  });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      state.chosen = (state.chosen + step + state.commands.length) % Math.max(state.commands.length, 1);
      show();
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(state.commands[state.chosen]);
    }
  });
  list.addEventListener("click", (event) => {
    const row = event.target.closest("[data-index]");
    if (row) run(state.commands[Number(row.dataset.index)]);
  });
  show();
  input.focus();
}

function item(command, isChosen, index) {
  const keys = command.keys ? [make("span", { className: "more" }, ...command.keys.split(" ").map((key) => make("kbd", {}, key)))] : [];
  const mark = command.badge ?? icon(command.icon);
  return make("li", { role: "option", id: `palette-${index}`, ariaSelected: String(isChosen), data: { "data-index": index } }, mark, make("span", {}, command.label), ...keys);
}

/** Return what the page offers: its navigation, its tabs, its buttons. */
function pageCommands() {
  const links = [...document.querySelectorAll(".nav-list a, .tabs a")].map((link) => ({ label: link.textContent.trim(), keys: link.dataset.keys, icon: "arrow-right", run: () => link.click() }));
  const buttons = [...document.querySelectorAll("main .actions .button, main .actions button")]
    .filter((button) => !button.disabled && button.checkVisibility())
    .map((button) => ({ label: button.textContent.trim() || button.ariaLabel, icon: "play", run: () => button.click() }));
  return [...buttons, ...links].filter(({ label }) => label);
}

async function findJobs(text) {
  if (text.length < MIN_SEARCH) return [];
  try {
    const response = await fetch(`/api/v1/jobs?${new URLSearchParams({ text, limit: 8 })}`);
    const { items = [] } = response.ok ? await response.json() : {};
    return items.map((job) => ({ label: `${job.name} · ${job.job_id}`, badge: statusBadge(job.status), run: () => location.assign(`/ui/jobs/${job.job_id}`) }));
  } catch {
    return [];
  }
}

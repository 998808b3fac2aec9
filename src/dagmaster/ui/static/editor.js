/**
 * The editor of workflows: checks the text while it is typed, draws its graph, and lets the server write what is changed
 * on the graph into the text. It touches the elements of its page; a draft is kept in sessionStorage until it is sent.
 */

import { make } from "./dom.js";
import { showToast } from "./toasts.js";

const CHECK_MS = 350;

const root = document.querySelector("[data-editor]");
const form = root.querySelector("form");
const editor = root.querySelector("code-editor");
const graph = root.querySelector("dag-graph");
const state = root.querySelector("[data-draft-state]");
const nodePanel = root.querySelector("[data-node]");
const newPanel = root.querySelector("[data-new]");
const field = (name) => nodePanel.querySelector(`[data-node-field="${name}"]`);
const draftKey = `draft ${location.pathname}${location.search}`;

let draft = { nodes: {}, edges: [] };
let offered = [];
let selected = "";
let checks = 0;
let timer = 0;

async function send(path, fields) {
  const body = new URLSearchParams({ token: form.elements.token.value, text: editor.value, ...fields });
  const response = await fetch(path, { method: "POST", body, headers: { "X-Fragment": "1" } });
  if (!response.headers.get("content-type")?.startsWith("application/json")) throw new Error(`the server answered ${response.status}`);
  return response.json();
}

function scheduleCheck() {
  clearTimeout(timer);
  timer = setTimeout(check, CHECK_MS);
}

async function check() {
  const number = ++checks;
  state.textContent = "Checking…";
  try {
    const answer = await send("/ui/editor/check", {});
    if (number === checks) apply(answer);
  } catch (error) {
    if (number === checks) state.textContent = `Not checked: ${error.message}`;
  }
}

function apply(answer) {
  draft = answer;
  editor.problems = answer.problems;
  const errors = answer.problems.filter(({ severity }) => severity === "error").length;
  const warnings = answer.problems.length - errors;
  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  state.textContent = errors ? count(errors, "problem") : warnings ? `Valid, ${count(warnings, "warning")}` : "Valid";
  state.className = `small draft-${errors ? "failed" : warnings ? "warning" : "ok"}`;
  if (answer.graph) graph.show(answer.graph);
  editor.completions = [...offered, ...namesOf(answer)];
  if (selected && !(selected in draft.nodes)) close();
  else if (selected) fill();
}

/** Names of the draft that can be completed: nodes after `next` and `depends_on`, groups after `group`, outputs and inputs in expressions. */
function namesOf({ nodes }) {
  const ids = Object.keys(nodes);
  const inputs = [...editor.value.matchAll(/^ {2}(\w+):/gm)].map(([, name]) => name).filter((name) => !(name in nodes));
  return [
    ...["next", "depends_on"].flatMap((after) => ids.map((label) => ({ label, kind: "value", after, detail: "node" }))),
    ...ids.filter((id) => nodes[id].type === "group").map((label) => ({ label, kind: "value", after: "group", detail: "group" })),
    ...ids.map((id) => ({ label: `nodes.${id}.output`, kind: "expression", detail: "output" })),
    ...inputs.map((name) => ({ label: `inputs.${name}`, kind: "expression", detail: "input" })),
  ];
}

async function edit(fields) {
  // A check of the text as it is now would close the panel of a node that this edit adds.
  clearTimeout(timer);
  checks++;
  const text = editor.value;
  try {
    const answer = await send("/ui/editor/edit", fields);
    if (editor.value !== text) {
      showToast("The text was edited in the meantime: the change to the graph was not made. Try again.", "failed");
      return false;
    }
    if (answer.error) {
      showToast(answer.error, "failed");
      fill();
      scheduleCheck();
      return false;
    }
    editor.value = answer.text;
    clearTimeout(timer);
    checks++;
    apply(answer);
    return true;
  } catch (error) {
    showToast(`The text was not changed: ${error.message}`, "failed");
    scheduleCheck();
    return false;
  }
}

// ── The selected node ──

function open(nodeId) {
  if (!(nodeId in draft.nodes)) return;
  selected = nodeId;
  newPanel.hidden = true;
  nodePanel.hidden = false;
  fill();
  const line = editor.value.split("\n").findIndex((text) => new RegExp(`^\\s+["']?${nodeId}["']?:`).test(text));
  if (line >= 0 && !nodePanel.contains(document.activeElement)) editor.reveal(line + 1);
}

function close() {
  selected = "";
  nodePanel.hidden = newPanel.hidden = true;
}

function fill() {
  const node = draft.nodes[selected];
  if (!node) return;
  root.querySelector("[data-node-title]").textContent = selected;
  field("id").value = selected;
  field("description").value = node.description ?? "";
  field("handler").value = node.handler ?? "";
  field("handler").closest(".field").hidden = Boolean(node.type) && node.type !== "task";
  const before = draft.edges.filter(([, target]) => target === selected).map(([source]) => source);
  root.querySelector("[data-after]").replaceChildren(
    ...(before.length ? before : [null]).map((source) =>
      source === null
        ? make("li", { className: "muted small", textContent: "nothing: it starts at once" })
        : make("li", { className: "tag" }, source, make("button", { type: "button", className: "chip-remove", textContent: "×", data: { "data-disconnect": source, "aria-label": `Do not come after ${source}` } })),
    ),
  );
  fillSources(nodePanel.querySelector("[data-connect]"), before);
}

/** Offer nodes, and branches of conditionals, to come after. */
function fillSources(select, without = []) {
  const sources = Object.entries(draft.nodes).flatMap(([id, node]) =>
    Array.isArray(node.branches) ? node.branches.map((branch, index) => `${id}.${branch?.name || (branch?.default ? "default" : `branch_${index + 1}`)}`) : [id],
  );
  const choices = sources.filter((source) => source !== selected && !without.includes(source));
  select.replaceChildren(make("option", { value: "", textContent: select.id === "connect" ? "Choose a node" : "nothing" }), ...choices.map((source) => make("option", { value: source, textContent: source })));
}

async function onClick(event) {
  const source = event.target.closest("[data-disconnect]")?.dataset.disconnect;
  if (source) return edit({ edit: "disconnect", source, target: selected });
  const action = event.target.closest("[data-edit]")?.dataset.edit;
  if (action === "close") close();
  else if (action === "remove") await edit({ edit: "remove", node_id: selected });
  else if (action === "connect") {
    const { value } = nodePanel.querySelector("[data-connect]");
    if (value) await edit({ edit: "connect", source: value, target: selected });
  } else if (action === "new") {
    const after = selected;
    close();
    newPanel.hidden = false;
    fillSources(newPanel.querySelector("[data-connect]"));
    newPanel.querySelector("[data-connect]").value = after;
    newPanel.querySelector("input").focus();
  }
}

async function onChange({ target }) {
  const name = target.dataset.nodeField;
  if (name === "id") {
    const [before, renamed] = [selected, target.value.trim()];
    selected = renamed;
    if (!(await edit({ edit: "rename", node_id: before, new_id: renamed }))) {
      selected = before;
      fill();
    }
  } else if (name) await edit({ edit: "set", node_id: selected, key: name, value: target.value.trim() });
}

async function onAdd(event) {
  event.preventDefault();
  const [id, kind, handler, after] = ["id", "kind", "handler", "after"].map((name) => newPanel.querySelector(`#new-${name}`).value.trim());
  if (!(await edit({ edit: "add", node_id: id, kind, handler, source: after }))) return;
  newPanel.reset();
  open(id);
}

function restore() {
  const kept = sessionStorage.getItem(draftKey);
  if (kept !== null && kept !== editor.value && !editor.problems.length) editor.value = kept;
}

async function start() {
  await Promise.all(["code-editor", "dag-graph"].map((name) => customElements.whenDefined(name)));
  root.querySelector("[data-graph-side]").hidden = false;
  restore();
  editor.addEventListener("edited", () => {
    sessionStorage.setItem(draftKey, editor.value);
    scheduleCheck();
  });
  form.addEventListener("submit", () => sessionStorage.removeItem(draftKey));
  graph.addEventListener("node-open", ({ detail }) => open(detail.nodeId));
  root.querySelector("[data-graph-side]").addEventListener("click", onClick);
  nodePanel.addEventListener("change", onChange);
  newPanel.addEventListener("submit", onAdd);
  offered = (await (await fetch("/ui/editor/completions")).json()).items;
  await check();
}

start();

/**
 * The graph of a job in memory: nodes and edges by number, their statuses, and what they are called.
 *
 * Knows neither DOM nor canvas. Statuses change; the graph and the sizes of its boxes do not.
 */

import { statusTone, statusWord } from "../status.js";

export const TONES = ["pending", "waiting", "warning", "running", "ok", "failed", "skipped"];
// Failures before what is cut off in a narrow box.
const COUNT_ORDER = ["COMPLETED", "RUNNING", "FAILED", "CLAIMED", "DISPATCHED", "READY", "WAITING", "PENDING", "CANCELLED", "SKIPPED"];
const NOT_BEGUN = new Set(["CLAIMED", "DISPATCHED", "READY", "PENDING"]);
/** The most tasks of one message (application/job_deltas.py). */
const MAX_TASKS = 100;
const KINDS = { fan_out: "fan-out", fan_in: "fan-in" };

/** The states of edges, in the order in which they are painted. */
export const [INACTIVE, NOT_TAKEN, DONE, ACTIVE, FAILED] = [0, 1, 2, 3, 4];
const OPEN = new Set(["READY", "DISPATCHED", "CLAIMED", "RUNNING", "WAITING"]);

const NUMBERS = new Intl.NumberFormat("en");

/** Return a number as people read it. */
export const formatNumber = (value) => NUMBERS.format(value);

const shortWord = (status) => (status === "COMPLETED" ? "ok" : statusWord(status));

/** Return the counts of a fan-out in one line: `512 · 480 ok · 30 running · 2 failed`. In brief: without the rest, which has not begun, unless that is all. */
export function describeCounts({ total, counts }, isBrief = false) {
  const hasBegun = COUNT_ORDER.some((status) => counts[status] && !NOT_BEGUN.has(status));
  const isLeftOut = (status) => isBrief && hasBegun && NOT_BEGUN.has(status);
  const parts = COUNT_ORDER.filter((status) => counts[status] && !isLeftOut(status)).map((status) => `${formatNumber(counts[status])} ${shortWord(status)}`);
  return [formatNumber(total), ...parts].join(" · ");
}

export class GraphModel {
  /** Take a `GraphView` of the API. */
  constructor(view) {
    this.hash = view.content_hash;
    this.name = view.name;
    this.nodes = view.nodes;
    this.count = view.nodes.length;
    this.ids = view.nodes.map((node) => node.node_id);
    this.index = new Map(this.ids.map((id, i) => [id, i]));
    const edges = view.edges.filter((edge) => this.index.has(edge.source) && this.index.has(edge.target));
    this.edges = new Int32Array(edges.length * 2);
    this.edgeCount = edges.length;
    this.labels = edges.map((edge) => edge.branches.join(", "));
    this.branches = edges.map((edge) => edge.branches);
    this.isAlternative = edges.map((edge) => edge.is_alternative);
    /** Numbers of the edges that enter and leave each node. */
    this.incoming = this.ids.map(() => []);
    this.outgoing = this.ids.map(() => []);
    edges.forEach((edge, e) => {
      const source = (this.edges[2 * e] = this.index.get(edge.source));
      const target = (this.edges[2 * e + 1] = this.index.get(edge.target));
      this.outgoing[source].push(e);
      this.incoming[target].push(e);
    });
    this.states = this.ids.map(() => null);
    this.tones = new Uint8Array(this.count);
    this.edgeStates = new Uint8Array(this.edgeCount);
    this.widths = Float32Array.from(view.nodes, (node) => boxWidth(node));
    this.heights = Float32Array.from(view.nodes, (node) => (isSmall(node) ? 32 : node.kind === "fan_out" ? 68 : 48));
  }

  status(i) {
    return this.states[i]?.status ?? "PENDING";
  }

  /** Set the state of a node: its status, and optionally the counts of children and the branch taken. Return whether it changed. */
  setState(i, state) {
    const before = this.states[i];
    if (before && before.status === state.status && before.branch === state.branch && sameCounts(before.counts, state.counts)) return false;
    this.states[i] = state;
    this.tones[i] = TONES.indexOf(statusTone(state.status));
    for (const e of this.incoming[i]) this.edgeStates[e] = this.#edgeState(e);
    for (const e of this.outgoing[i]) this.edgeStates[e] = this.#edgeState(e);
    return true;
  }

  /**
   * Return the states that tasks mean, by node: which are claimed and which run. No event says so before an attempt has
   * ended. A message with the most tasks that one has may not have all: then the counts of fan-outs stay as they are.
   */
  statesOfTasks(tasks) {
    const states = new Map();
    const children = new Map();
    for (const { node_id: id, status } of tasks) {
      const i = this.index.get(id);
      if (i !== undefined) {
        if (this.states[i]) states.set(id, { ...this.states[i], status });
        continue;
      }
      const fanOut = id.slice(0, id.lastIndexOf("__"));
      if (!children.has(fanOut)) children.set(fanOut, { RUNNING: 0, CLAIMED: 0 });
      children.get(fanOut)[status]++;
    }
    if (tasks.length >= MAX_TASKS) return states;
    for (const [fanOut, { RUNNING, CLAIMED }] of children) {
      const state = this.states[this.index.get(fanOut)];
      if (!state?.counts) continue;
      const { total, counts } = state.counts;
      const inFlight = (counts.RUNNING ?? 0) + (counts.CLAIMED ?? 0) + (counts.DISPATCHED ?? 0);
      const DISPATCHED = Math.max(0, inFlight - RUNNING - CLAIMED);
      states.set(fanOut, { ...state, counts: { total, counts: { ...counts, RUNNING, CLAIMED, DISPATCHED } } });
    }
    return states;
  }

  #edgeState(e) {
    const source = this.status(this.edges[2 * e]);
    const target = this.status(this.edges[2 * e + 1]);
    const branch = this.states[this.edges[2 * e]]?.branch;
    const names = this.branches[e];
    if (source === "SKIPPED" || source === "CANCELLED") return NOT_TAKEN;
    if (source === "FAILED") return FAILED;
    if (source !== "COMPLETED") return INACTIVE;
    if (names.length && branch && !names.includes(branch)) return NOT_TAKEN;
    if (OPEN.has(target)) return ACTIVE;
    return target === "COMPLETED" ? DONE : target === "FAILED" ? FAILED : target === "PENDING" ? INACTIVE : NOT_TAKEN;
  }

  /** Return what a box shows under its name. */
  detail(i) {
    const node = this.nodes[i];
    if (isSmall(node)) return "";
    if (node.kind === "task") return node.action;
    const kind = KINDS[node.kind] ?? node.kind;
    return node.action && node.action !== node.kind ? `${kind} · ${node.action}` : kind;
  }

  /** Return a node in words, for a screen reader. */
  label(i) {
    const state = this.states[i];
    const parts = [this.ids[i], this.detail(i) || this.nodes[i].kind, statusWord(this.status(i))];
    if (state?.counts) parts.push(describeCounts(state.counts));
    parts.push(`${this.incoming[i].length} before, ${this.outgoing[i].length} after`);
    return parts.join(", ");
  }

  /** Return the numbers of all nodes and edges on paths to a node. */
  pathTo(i) {
    const nodes = new Set([i]);
    const edges = new Set();
    for (const v of nodes) {
      for (const e of this.incoming[v]) {
        edges.add(e);
        nodes.add(this.edges[2 * e]);
      }
    }
    return { nodes, edges };
  }
}

/** Return the state of a node as the API shows it. */
export function stateOf(view) {
  return { status: view.status, branch: view.branch, counts: view.children };
}

export function isSmall(node) {
  return node.kind === "start" || node.kind === "end";
}

function boxWidth(node) {
  // Estimated, not measured: the layout must not depend on the fonts of a machine.
  if (isSmall(node)) return Math.max(84, 44 + node.node_id.length * 8.2);
  const longest = Math.max(node.node_id.length * 8.3, (node.action.length + (node.kind === "task" ? 12 : 11)) * 6.4);
  return Math.round(Math.min(340, Math.max(node.kind === "fan_out" ? 250 : 160, 50 + longest)));
}

function sameCounts(a, b) {
  if (!a || !b) return a == b;
  const keys = Object.keys(b.counts);
  return a.total === b.total && keys.length === Object.keys(a.counts).length && keys.every((key) => a.counts[key] === b.counts[key]);
}

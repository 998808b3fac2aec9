/**
 * The graph of a job in memory: nodes and edges by number, their statuses, and what they are called.
 *
 * Knows neither DOM nor canvas. Statuses change; the graph and the sizes of its boxes do not.
 */

import { statusTone, statusWord } from "../status.js";
import { findDepths, nestGroups } from "./groups.js";

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
const ENDED = new Set(["COMPLETED", "FAILED"]);
const FINISHED = new Set([...ENDED, "SKIPPED", "CANCELLED"]);

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
    const links = view.edges
      .filter((edge) => this.index.has(edge.source) && this.index.has(edge.target))
      .map((edge) => ({ source: this.index.get(edge.source), target: this.index.get(edge.target), branches: edge.branches, isAlternative: edge.is_alternative }));
    /** The numbers of the nodes before and after each node, whether an edge is drawn or not. */
    this.before = this.ids.map(() => []);
    this.after = this.ids.map(() => []);
    for (const { source, target } of links) {
      this.after[source].push(target);
      this.before[target].push(source);
    }
    const { parents, isBox, edges } = nestGroups(view.nodes, this.index, links);
    /** The box that each node is in, -1: none; and which nodes are boxes, outer ones first. */
    this.parents = parents;
    this.isBox = isBox;
    const depths = findDepths(parents);
    this.boxes = [...isBox.keys()].filter((i) => isBox[i]).sort((a, b) => depths[a] - depths[b]);
    /** How many nodes are in a box, at any depth; of these, how many are open, have finished, and have run to an end. */
    [this.members, this.open, this.finished, this.ended] = [0, 1, 2, 3].map(() => new Int32Array(this.count));
    for (let i = 0; i < this.count; i++) if (!isBox[i]) for (const box of this.boxesOf(i)) this.members[box]++;
    this.edges = Int32Array.from(edges.flatMap(({ source, target }) => [source, target]));
    this.edgeCount = edges.length;
    this.labels = edges.map((edge) => edge.branches.join(", "));
    this.branches = edges.map((edge) => edge.branches);
    this.isAlternative = edges.map((edge) => edge.isAlternative);
    this.isEntry = edges.map((edge) => edge.isEntry ?? false);
    /** The drawn edges of each node. */
    this.edgesOf = this.ids.map(() => []);
    edges.forEach(({ source, target }, e) => {
      this.edgesOf[source].push(e);
      this.edgesOf[target].push(e);
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

  /** Return the status whose look a node has. The server shows a group as running; no delta says when that begins. */
  shownStatus(i) {
    const status = this.status(i);
    return this.isBox[i] && status === "PENDING" && this.open[i] + this.finished[i] ? "RUNNING" : status;
  }

  /** Yield the boxes that a node is in, from the inside out. */
  *boxesOf(i) {
    for (let box = this.parents[i]; box >= 0; box = this.parents[box]) yield box;
  }

  /** Take the sizes of boxes, which follow from what is in them: number, width, height of each. */
  setSizes(sizes) {
    for (let i = 0; i < sizes.length; i += 3) [this.widths[sizes[i]], this.heights[sizes[i]]] = [sizes[i + 1], sizes[i + 2]];
  }

  /** Set the state of a node: its status, and optionally the counts of children and the branch taken. Return whether it changed. */
  setState(i, state) {
    const before = this.states[i];
    if (before && before.status === state.status && before.branch === state.branch && sameCounts(before.counts, state.counts)) return false;
    this.states[i] = state;
    if (!this.isBox[i]) {
      const [open, finished, ended] = [OPEN, FINISHED, ENDED].map((statuses) => statuses.has(state.status) - statuses.has(before?.status));
      for (const box of this.boxesOf(i)) {
        this.open[box] += open;
        this.finished[box] += finished;
        this.ended[box] += ended;
        this.#look(box);
      }
    }
    this.#look(i);
    return true;
  }

  #look(i) {
    this.tones[i] = TONES.indexOf(statusTone(this.shownStatus(i)));
    for (const e of this.edgesOf[i]) this.edgeStates[e] = this.#edgeState(e);
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
    const i = this.edges[2 * e + 1];
    // The members of a box begin, not the group itself.
    const target = this.isEntry[e] && this.open[i] ? "RUNNING" : this.isEntry[e] && this.ended[i] ? "COMPLETED" : this.status(i);
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
    if (this.isBox[i]) return `group · ${this.shownStatus(i) === "RUNNING" ? `${formatNumber(this.finished[i])} of ${formatNumber(this.members[i])} finished` : `${formatNumber(this.members[i])} nodes`}`;
    if (node.kind === "task") return node.action;
    const kind = KINDS[node.kind] ?? node.kind;
    return node.action && node.action !== node.kind ? `${kind} · ${node.action}` : kind;
  }

  /** Return a node in words, for a screen reader. */
  label(i) {
    const state = this.states[i];
    const parts = [this.ids[i], this.detail(i) || this.nodes[i].kind, statusWord(this.shownStatus(i))];
    if (state?.counts) parts.push(describeCounts(state.counts));
    if (this.parents[i] >= 0) parts.push(`in group ${this.ids[this.parents[i]]}`);
    parts.push(`${this.before[i].length} before, ${this.after[i].length} after`);
    return parts.join(", ");
  }

  /** Return the numbers of all nodes and edges on paths to a node. */
  pathTo(i) {
    const nodes = new Set([i]);
    for (const v of nodes) for (const w of this.before[v]) nodes.add(w);
    const ends = new Set(nodes);
    for (const v of nodes) for (const box of this.boxesOf(v)) ends.add(box);
    const edges = new Set();
    for (let e = 0; e < this.edgeCount; e++) {
      const target = this.edges[2 * e + 1];
      if (nodes.has(this.edges[2 * e]) && (this.isEntry[e] ? ends : nodes).has(target)) edges.add(e);
    }
    return { nodes: ends, edges };
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

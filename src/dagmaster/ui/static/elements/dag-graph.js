/**
 * <dag-graph src="/api/v1/jobs/7/graph" job-id="7">: the graph of a job or of a workflow.
 *
 * Edges, the boxes around groups, and nodes that are small or many, are on canvas; up to 300 nodes in sight are real
 * elements that can be focused.
 * Touches its own children, the graph of `src`, the children of a fan-out, and `sessionStorage` for layouts. Listens on
 * the document to `job-snapshot`, `job-delta` and `job-tasks` of its job (see live.js). Dispatches `node-open` {nodeId}
 * and, once it is drawn, `graph-ready`. Positions are decided once: a status never moves anything.
 */

import { icon, make } from "../dom.js";
import { ChildrenList } from "../graph/children-list.js";
import { GraphModel, describeCounts, formatNumber, isSmall, stateOf } from "../graph/model.js";
import { BOX_HEAD } from "../graph/groups.js";
import { edgeBounds, paintBoxes, paintEdges, paintGroupNames, paintGroups, paintMinimap, paintMotion, prepare, readPalette } from "../graph/painter.js";
import { Viewport, allowsMotion } from "../graph/viewport.js";
import { statusIcon, statusTone, statusWord } from "../status.js";
import { watchColours } from "../theme.js";

const MAX_ELEMENTS = 300;
const ELEMENT_SCALE = 0.6;
const READING_SCALE = 0.85;
/** More edges than these are not painted again in every frame. */
const MANY_EDGES = 2000;
const REPAINT_MS = 160;
const MOTION_MS = 50;
const MINIMAP_MS = 250;
const MINIMAP = { width: 168, height: 112 };
const LAYOUT_VERSION = 3;

class DagGraph extends HTMLElement {
  static observedAttributes = ["src"];

  #model = null;
  #layout = null;
  #elements = new Map();
  #changed = new Set();
  #isViewChanged = true;
  #areStatesChanged = false;
  #path = null;
  #current = 0;
  #pendingStates = new Map();
  #tasks = [];
  #edgePaint = { edges: 0, at: 0, view: null };

  connectedCallback() {
    if (!this.view) this.#build();
    const { signal } = (this.connection = new AbortController());
    const apply = (event) => {
      const { detail } = event;
      const jobId = event.type === "job-snapshot" ? detail.job_id : detail.job?.job_id;
      if (jobId === this.getAttribute("job-id")) this.#applyViews(detail.nodes);
    };
    document.addEventListener("job-snapshot", apply, { signal });
    document.addEventListener("job-delta", apply, { signal });
    document.addEventListener("job-tasks", ({ detail }) => this.#applyTasks(detail.tasks), { signal });
    watchColours(() => this.#setPalette(), signal);
    this.sizeObserver = new ResizeObserver(() => this.#resize());
    this.sizeObserver.observe(this.view);
    if (this.hasAttribute("src") && !this.#model) this.#load();
  }

  disconnectedCallback() {
    this.connection.abort();
    this.sizeObserver.disconnect();
    cancelAnimationFrame(this.frame);
    cancelAnimationFrame(this.motionFrame);
    clearTimeout(this.repaintTimer);
    clearTimeout(this.minimapTimer);
    this.frame = this.motionFrame = this.repaintTimer = this.minimapTimer = 0;
  }

  attributeChangedCallback(name, before, after) {
    if (this.view && before !== after && after) this.#load();
  }

  // ── What a page calls ──

  /** Set states of nodes by id: {status, counts: {total, counts}, branch}. */
  setStates(states) {
    for (const [id, state] of states instanceof Map ? states : Object.entries(states)) this.#pendingStates.set(id, state);
    if (this.#layout) this.#takeStates();
  }

  updateNodeStatus(nodeId, status) {
    const i = this.#model?.index.get(nodeId);
    this.setStates(new Map([[nodeId, { ...(i === undefined ? null : this.#model.states[i]), status }]]));
  }

  /** Stress everything that leads to a node; null: nothing. */
  highlightPath(nodeId) {
    const i = nodeId == null ? undefined : this.#model?.index.get(nodeId);
    this.#path = i === undefined ? null : this.#model.pathTo(i);
    for (const [j, element] of this.#elements) element.root.classList.toggle("is-dimmed", Boolean(this.#path) && !this.#path.nodes.has(j));
    this.#invalidate(true);
  }

  /** Show a node in the middle, large enough to read, and focus it. */
  focusNode(nodeId) {
    const i = this.#model?.index.get(nodeId);
    if (i === undefined) return;
    this.#reveal(i, true);
    this.#setCurrent(i);
  }

  /** Show a graph that the page has, instead of one that is read from `src`. */
  async show(graph) {
    const asked = (this.asked = {});
    const model = new GraphModel(graph);
    const layout = await computeLayout(model);
    if (asked === this.asked) this.#show(model, layout);
  }

  /** Where every node is, by id. */
  get positions() {
    return new Map(this.#model?.ids.map((id, i) => [id, { x: this.#layout.x[i], y: this.#layout.y[i] }]) ?? []);
  }

  get scale() {
    return this.viewport.scale;
  }

  fit() {
    this.viewport.fit(true);
  }

  // ── Loading ──

  async #load() {
    const asked = (this.asked = {});
    this.#note("Loading the graph…");
    try {
      const response = await fetch(this.getAttribute("src"));
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      const model = new GraphModel(await response.json());
      const layout = await computeLayout(model);
      if (asked !== this.asked) return;
      this.#show(model, layout);
    } catch (error) {
      if (asked === this.asked) this.#note(`The graph cannot be shown: ${error.message}.`, () => this.#load());
    }
  }

  #show(model, layout) {
    this.#model = model;
    this.#layout = layout;
    this.#path = null;
    this.#current = 0;
    for (const element of this.#elements.values()) element.root.remove();
    this.#elements.clear();
    model.setSizes(layout.sizes);
    this.bounds = edgeBounds(model, layout);
    this.viewport.content = layout;
    this.view.setAttribute("aria-label", `Graph of ${model.name}, ${formatNumber(model.count)} nodes. Arrow keys follow the edges.`);
    this.#note(model.count ? "" : "This workflow has no nodes.");
    this.palette ??= readPalette(this);
    this.#takeStates();
    this.#applyTasks(this.#tasks);
    this.#resize(true);
    this.dispatchEvent(new CustomEvent("graph-ready", { bubbles: true, detail: { nodes: model.count } }));
  }

  #applyViews(nodes) {
    const states = new Map();
    for (const id in nodes) states.set(id, stateOf(nodes[id]));
    this.setStates(states);
  }

  #applyTasks(tasks) {
    if (!tasks.every((task) => task.job_id === this.getAttribute("job-id"))) return;
    this.#tasks = tasks;
    if (this.#layout) this.setStates(this.#model.statesOfTasks(tasks));
  }

  #takeStates() {
    for (const [id, state] of this.#pendingStates) {
      const i = this.#model.index.get(id);
      if (i === undefined || !this.#model.setState(i, state)) continue;
      this.#changed.add(i);
      for (const box of this.#model.boxesOf(i)) this.#changed.add(box);
    }
    this.#pendingStates.clear();
    if (this.#changed.size) this.#invalidate(false);
  }

  // ── Elements ──

  #build() {
    this.view = make("div", { className: "dag-view" });
    this.view.setAttribute("role", "group");
    this.view.setAttribute("aria-label", "Graph");
    this.canvases = ["edges", "motion", "boxes"].map((name) => {
      const canvas = make("canvas", { className: `dag-canvas dag-canvas-${name}` });
      canvas.setAttribute("aria-hidden", "true");
      return canvas;
    });
    this.layer = make("div", { className: "dag-layer" });
    this.view.append(...this.canvases, this.layer);
    this.viewport = new Viewport(this.view, () => this.#invalidate(true));
    this.childrenList = new ChildrenList(this, (nodeId) => this.focusNode(nodeId));
    this.minimap = make("canvas", { className: "dag-minimap" });
    this.minimap.setAttribute("aria-hidden", "true");
    this.minimap.addEventListener("pointerdown", (event) => this.#moveByMinimap(event));
    this.minimap.addEventListener("pointermove", (event) => event.buttons && this.#moveByMinimap(event));
    this.note = make("p", { className: "dag-note" });
    this.note.setAttribute("role", "status");
    this.append(this.view, this.#toolbar(), this.minimap, this.note, this.childrenList.element);
    this.view.addEventListener("click", (event) => this.#click(event));
    this.view.addEventListener("keydown", (event) => this.#key(event));
    this.view.addEventListener("pointermove", (event) => this.#hover(event));
    this.view.addEventListener("focusin", (event) => {
      const root = event.target.closest(".dag-node");
      if (root) this.#setCurrent(Number(root.dataset.index), false);
    });
  }

  #toolbar() {
    const bar = make("div", { className: "dag-toolbar" });
    bar.setAttribute("role", "toolbar");
    bar.setAttribute("aria-label", "Zoom");
    const tool = (text, label, act) => {
      const button = make("button", { type: "button", className: "dag-tool" }, text);
      button.setAttribute("aria-label", label);
      button.title = label;
      button.addEventListener("click", act);
      return button;
    };
    this.zoomText = make("output", { className: "dag-zoom" });
    bar.append(
      tool("−", "Zoom out (-)", () => this.viewport.zoom(1 / 1.4, undefined, undefined, true)),
      this.zoomText,
      tool("+", "Zoom in (+)", () => this.viewport.zoom(1.4, undefined, undefined, true)),
      tool("⤢", "Show everything (0)", () => this.fit()),
    );
    return bar;
  }

  #note(text, retry) {
    this.note.textContent = text;
    this.note.hidden = !text;
    if (!retry) return;
    const button = make("button", { type: "button", className: "button" }, "Try again");
    button.addEventListener("click", retry);
    this.note.append(" ", button);
  }

  #element(i) {
    const model = this.#model;
    const node = model.nodes[i];
    const root = make("div", { className: "dag-node" });
    root.dataset.index = i;
    root.dataset.kind = node.kind;
    root.classList.toggle("is-small", isSmall(node));
    root.classList.toggle("is-box", model.isBox[i] === 1);
    root.classList.toggle("is-dimmed", Boolean(this.#path) && !this.#path.nodes.has(i));
    Object.assign(root.style, {
      transform: `translate(${this.#layout.x[i]}px, ${this.#layout.y[i]}px)`,
      width: `${model.widths[i]}px`,
      height: `${model.heights[i]}px`,
    });
    const main = make("button", { type: "button", className: "dag-node-main" });
    main.tabIndex = i === this.#current ? 0 : -1;
    const badge = make("span", { className: "dag-node-badge" });
    const name = make("span", { className: "dag-node-name" }, node.node_id);
    const detail = make("span", { className: "dag-node-detail" });
    main.append(badge, name, detail);
    root.append(main);
    const element = { root, main, badge, detail };
    if (node.kind === "fan_out") {
      element.counts = make("button", { type: "button", className: "dag-node-counts" });
      element.counts.tabIndex = main.tabIndex;
      element.bar = make("span", { className: "dag-node-bar" });
      root.append(element.bar, element.counts);
    }
    this.#fill(i, element);
    return element;
  }

  #fill(i, { root, main, badge, detail, counts, bar }) {
    const model = this.#model;
    const status = model.shownStatus(i);
    if (root.dataset.status !== status) {
      root.classList.remove(`tone-${statusTone(root.dataset.status ?? "")}`);
      root.classList.add(`tone-${statusTone(status)}`);
      badge.replaceChildren(icon(statusIcon(status)));
      root.dataset.status = status;
    }
    const isKnown = model.states[i] !== null;
    const word = isKnown && status === model.status(i) ? statusWord(status) : "";
    detail.textContent = [model.detail(i), counts ? "" : word].filter(Boolean).join(" · ");
    main.setAttribute("aria-label", model.label(i));
    const node = model.nodes[i];
    main.title = [node.node_id, model.detail(i), word, node.description].filter(Boolean).join("\n");
    if (!counts) return;
    const shown = model.states[i]?.counts;
    counts.hidden = bar.hidden = !shown;
    root.classList.toggle("has-counts", Boolean(shown));
    if (!shown) return;
    counts.textContent = describeCounts(shown, true);
    counts.title = describeCounts(shown);
    counts.setAttribute("aria-label", `List the children of ${node.node_id}: ${counts.textContent}`);
    bar.replaceChildren(
      ...["COMPLETED", "FAILED", "SKIPPED", "CANCELLED"].map((name) => {
        const part = make("i", { className: `tone-${statusTone(name)}` });
        part.style.width = `${(100 * (shown.counts[name] ?? 0)) / Math.max(shown.total, 1)}%`;
        return part;
      }),
    );
  }

  // ── Drawing ──

  #setPalette() {
    this.palette = readPalette(this);
    this.#invalidate(true);
  }

  #resize(isFirst = false) {
    const { clientWidth, clientHeight } = this.view;
    const wasHidden = !this.viewport.width;
    if (!clientWidth || !clientHeight) return;
    this.viewport.resize(clientWidth, clientHeight);
    if (!this.#layout) return;
    if (isFirst || wasHidden) this.viewport.fit();
    this.#invalidate(true);
  }

  #invalidate(isView) {
    if (isView) this.#isViewChanged = true;
    else this.#areStatesChanged = true;
    if (!this.frame && this.isConnected) this.frame = requestAnimationFrame(() => this.#draw());
  }

  #scene() {
    return { model: this.#model, layout: this.#layout, bounds: this.bounds, palette: this.palette, view: this.viewport, path: this.#path };
  }

  #draw() {
    this.frame = 0;
    const { viewport } = this;
    if (!this.#layout || !viewport.width) return;
    const [isView, areStates] = [this.#isViewChanged, this.#areStatesChanged];
    this.#isViewChanged = this.#areStatesChanged = false;
    if (isView) {
      this.visible = this.#findVisible();
      this.isNear = viewport.scale >= ELEMENT_SCALE && this.visible.length <= MAX_ELEMENTS;
      this.classList.toggle("is-far", !this.isNear);
      this.layer.style.transform = `translate(${viewport.x}px, ${viewport.y}px) scale(${viewport.scale})`;
      this.layer.style.setProperty("--dag-scale", viewport.scale);
      this.zoomText.textContent = `${Math.round(viewport.scale * 100)} %`;
      this.#syncElements();
    }
    for (const i of this.#changed) {
      const element = this.#elements.get(i);
      if (element) this.#fill(i, element);
    }
    this.#changed.clear();
    this.#drawEdges(isView);
    const boxes = prepare(this.canvases[2], viewport.width, viewport.height);
    if (!this.isNear) {
      paintBoxes(boxes, this.visible.filter((i) => !this.#model.isBox[i]), this.#scene());
      paintGroupNames(boxes, this.#scene());
    }
    if (!this.minimapTimer) this.minimapTimer = setTimeout(() => this.#drawMinimap(), isView && !areStates ? 0 : MINIMAP_MS);
    if (!this.motionFrame && this.isNear && allowsMotion()) this.motionFrame = requestAnimationFrame((now) => this.#animate(now));
    else if (!this.isNear) prepare(this.canvases[1], 1, 1);
  }

  /** Paint edges; if there are many, move the last picture instead and paint a moment later. */
  #drawEdges(isView) {
    const { viewport } = this;
    const last = this.#edgePaint;
    const canvas = this.canvases[0];
    const now = performance.now();
    if (last.edges > MANY_EDGES && now - last.at < REPAINT_MS) {
      if (isView && last.view) {
        const ratio = viewport.scale / last.view.scale;
        canvas.style.transform = `translate(${viewport.x - last.view.x * ratio}px, ${viewport.y - last.view.y * ratio}px) scale(${ratio})`;
      }
      this.repaintTimer ||= setTimeout(() => {
        this.repaintTimer = 0;
        this.#edgePaint.at = 0;
        this.#invalidate(true);
      }, REPAINT_MS);
      return;
    }
    const context = prepare(canvas, viewport.width, viewport.height);
    paintGroups(context, this.#scene());
    const edges = paintEdges(context, this.#scene());
    canvas.style.transform = "";
    const { scale, x, y } = viewport;
    this.#edgePaint = { edges, at: now, view: { scale, x, y } };
  }

  #animate(now) {
    this.motionFrame = 0;
    if (!this.isConnected || !this.isNear || !this.#layout) return;
    if (now - (this.animatedAt ?? 0) >= MOTION_MS) {
      this.animatedAt = now;
      const context = prepare(this.canvases[1], this.viewport.width, this.viewport.height);
      if (!paintMotion(context, this.#scene(), now)) return;
    }
    this.motionFrame = requestAnimationFrame((next) => this.#animate(next));
  }

  #drawMinimap() {
    this.minimapTimer = 0;
    const { viewport } = this;
    if (!this.#layout) return;
    const { left, top, right, bottom } = viewport.seen();
    this.minimap.hidden = left <= 0 && top <= 0 && right >= this.#layout.width && bottom >= this.#layout.height;
    if (this.minimap.hidden) return;
    this.minimapScale = paintMinimap(prepare(this.minimap, MINIMAP.width, MINIMAP.height), this.#scene(), MINIMAP.width, MINIMAP.height);
  }

  #moveByMinimap(event) {
    const box = this.minimap.getBoundingClientRect();
    const { scale, left, top } = this.minimapScale;
    this.viewport.center((event.clientX - box.left - left) / scale, (event.clientY - box.top - top) / scale);
  }

  #findVisible() {
    const { x, y } = this.#layout;
    const { widths, heights, count } = this.#model;
    const { left, top, right, bottom } = this.viewport.seen(60);
    const visible = [];
    for (let i = 0; i < count; i++) {
      if (x[i] <= right && x[i] + widths[i] >= left && y[i] <= bottom && y[i] + heights[i] >= top) visible.push(i);
    }
    return visible;
  }

  /** Keep an element for each box in sight, and always for the current one: it has the focus, or gets it with Tab. */
  #syncElements() {
    const keep = new Set(this.isNear ? this.visible : []);
    if (this.#model.count) keep.add(this.#current);
    for (const [i, { root }] of this.#elements) {
      if (keep.has(i)) continue;
      root.remove();
      this.#elements.delete(i);
    }
    const added = [];
    for (const i of keep) {
      if (this.#elements.has(i)) continue;
      const element = this.#element(i);
      this.#elements.set(i, element);
      added.push(element.root);
    }
    this.layer.append(...added);
  }

  // ── Pointer and keys ──

  #at(event) {
    const box = this.view.getBoundingClientRect();
    const px = (event.clientX - box.left - this.viewport.x) / this.viewport.scale;
    const py = (event.clientY - box.top - this.viewport.y) / this.viewport.scale;
    const { x, y } = this.#layout;
    const { widths, heights, isBox, boxes } = this.#model;
    const isHit = (i) => px >= x[i] && px <= x[i] + widths[i] && py >= y[i] && py <= y[i] + heights[i];
    const node = (this.visible ?? []).find((i) => !isBox[i] && isHit(i));
    // A box in which one can read is background; its name is an element.
    return node ?? (this.isNear ? undefined : boxes.findLast(isHit));
  }

  #hover(event) {
    if (!this.#layout || this.isNear || event.buttons) return;
    const i = this.#at(event);
    this.view.title = i === undefined ? "" : this.#model.label(i);
    this.view.classList.toggle("is-pointing", i !== undefined);
  }

  #click(event) {
    if (!this.#layout || this.viewport.hasDragged) return;
    const root = event.target.closest(".dag-node");
    const i = root && this.isNear ? Number(root.dataset.index) : event.detail === 0 ? this.#current : this.#at(event);
    if (i === undefined) return this.highlightPath(null);
    this.#setCurrent(i, this.isNear);
    if (event.target.closest(".dag-node-counts")) return this.childrenList.open(this.getAttribute("job-id"), this.#model.ids[i]);
    this.highlightPath(this.#model.ids[i]);
    this.dispatchEvent(new CustomEvent("node-open", { bubbles: true, detail: { nodeId: this.#model.ids[i] } }));
  }

  #key(event) {
    if (!this.#layout || event.ctrlKey || event.metaKey || event.altKey) return;
    const zooms = { "+": 1.4, "=": 1.4, "-": 1 / 1.4 };
    if (event.key in zooms) this.viewport.zoom(zooms[event.key], undefined, undefined, true);
    else if (event.key === "0") this.fit();
    else if (event.key === "Escape" && this.#path) this.highlightPath(null);
    else {
      const next = this.#neighbour(event.key);
      if (next === null) return;
      if (next !== undefined) {
        this.#reveal(next);
        this.#setCurrent(next);
      }
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** Return the node that an arrow key leads to: along an edge, or to the next one of the same row. */
  #neighbour(key) {
    const i = this.#current;
    const { before, after, widths, heights, isBox, count } = this.#model;
    const { x, y } = this.#layout;
    const center = (v) => x[v] + widths[v] / 2;
    // Positions are rounded: of two that are as far, the left one is meant.
    const distance = (v) => Math.abs(center(v) - center(i));
    const nearest = (nodes) => nodes.toSorted((a, b) => (Math.abs(distance(a) - distance(b)) <= 2 ? center(a) - center(b) : distance(a) - distance(b)))[0];
    const enclosing = new Set(this.#model.boxesOf(i));
    const bottom = (v) => y[v] + (isBox[v] ? BOX_HEAD : heights[v]);
    const beside = (side) => {
      const row = [];
      for (let v = 0; v < count; v++) if (y[v] < bottom(i) && bottom(v) > y[i] && (center(v) - center(i)) * side > 0) row.push(v);
      return nearest(row);
    };
    switch (key) {
      case "ArrowDown":
        // What follows before the group that it is in: that ends only after all of its members.
        return nearest(after[i].filter((v) => !enclosing.has(v))) ?? nearest(after[i]);
      case "ArrowUp":
        return nearest(before[i]);
      case "ArrowLeft":
        return beside(-1);
      case "ArrowRight":
        return beside(1);
      case "Home":
        return 0;
      default:
        return null;
    }
  }

  #reveal(i, isCentred = false) {
    const { x, y } = this.#layout;
    const { widths, heights, isBox } = this.#model;
    // Of a box its name is what counts: all of it may be larger than the screen.
    const [w, h] = isBox[i] ? [Math.min(widths[i], 320), BOX_HEAD] : [widths[i], heights[i]];
    if (isCentred || this.viewport.scale < ELEMENT_SCALE || !this.viewport.shows(x[i], y[i], w, h)) {
      this.viewport.center(x[i] + w / 2, y[i] + h / 2, READING_SCALE);
    }
  }

  #setCurrent(i, isFocused = true) {
    for (const [j, tabIndex] of [[this.#current, -1], [i, 0]]) {
      const element = this.#elements.get(j);
      for (const button of [element?.main, element?.counts]) if (button) button.tabIndex = tabIndex;
    }
    this.#current = i;
    if (!isFocused) return;
    // The element may come into sight only now.
    if (this.#isViewChanged) {
      cancelAnimationFrame(this.frame);
      this.#draw();
    }
    if (!this.#elements.has(i)) this.#syncElements();
    this.#elements.get(i).main.focus({ preventScroll: true });
  }
}

let worker;
let lastId = 0;
const waiting = new Map();

/** Lay out a graph in the worker; the layout of a definition is kept while the tab is open. */
async function computeLayout(model) {
  const key = `dag-layout-${LAYOUT_VERSION}-${model.hash}`;
  const stored = model.hash && readStored(key, model);
  if (stored) return stored;
  if (!worker) {
    worker = new Worker(new URL("../graph/layout.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }) => {
      waiting.get(data.id).resolve(data.layout);
      waiting.delete(data.id);
    };
    worker.onerror = (event) => {
      event.preventDefault();
      for (const { reject } of waiting.values()) reject(new Error("its layout failed"));
      waiting.clear();
      worker = null;
    };
  }
  const id = ++lastId;
  const layout = await new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    worker.postMessage({ id, graph: { widths: model.widths, heights: model.heights, edges: model.edges, parents: model.parents } });
  });
  try {
    const round = (values) => Array.from(values, Math.round);
    const { x, y, lanes, width, height, sizes } = layout;
    sessionStorage.setItem(key, JSON.stringify([round(x), round(y), lanes.map(round), width, height, sizes]));
  } catch {
    // Storage is full or not allowed: the next visit lays out again.
  }
  return layout;
}

function readStored(key, model) {
  try {
    const [x, y, lanes, width, height, sizes] = JSON.parse(sessionStorage.getItem(key));
    return x.length === model.count && lanes.length === model.edgeCount ? { x: Float32Array.from(x), y: Float32Array.from(y), lanes, width, height, sizes } : null;
  } catch {
    return null;
  }
}

customElements.define("dag-graph", DagGraph);
export { DagGraph };

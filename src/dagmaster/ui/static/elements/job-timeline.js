/**
 * <job-timeline src="/api/v1/jobs/7/timeline">: when each attempt of a job was queued and ran.
 *
 * A canvas that paints only the lanes in sight, and the same rows as a table. Touches its own children and the timeline
 * of `src`. Listens on the document to `job-snapshot`, `job-delta` and `job-tasks` of its job (see live.js), applies what
 * they say at once, and reads the timeline again a few seconds later. Dispatches `node-open` {nodeId} and `timeline-ready`.
 */

import { make } from "../dom.js";
import { formatNumber } from "../graph/model.js";
import { prepare, readPalette } from "../graph/painter.js";
import { statusBadge, statusTone } from "../status.js";
import { watchColours } from "../theme.js";
import { Axis, TimelineModel, describeRow, formatDuration, formatTick } from "../timeline/model.js";

const LANE = 24;
const HEAD = 26;
const PAGE = 100;
const MAX_ROWS = 100000;
const REFRESH_MS = 4000;
const TICK_MS = 500;
const MAX_ZOOM = 2000;
/** The height of the text about idle time. */
const IDLE_TEXT = 16;

class JobTimeline extends HTMLElement {
  static observedAttributes = ["src"];

  #model = null;
  #lanes = [];
  #axis = null;
  #selected = -1;
  #by = "node";
  #page = 0;

  connectedCallback() {
    if (!this.body) this.#build();
    const { signal } = (this.connection = new AbortController());
    document.addEventListener("job-delta", ({ detail }) => detail.job.job_id === this.#jobId && this.apply(detail), { signal });
    // What ended after the timeline was read and before the stream began is in no delta.
    document.addEventListener("job-snapshot", ({ detail }) => detail.job_id === this.#jobId && !this.#isComplete && this.#refreshSoon(), { signal });
    document.addEventListener("job-tasks", ({ detail }) => this.#applyTasks(detail.tasks), { signal });
    watchColours(() => {
      this.palette = readPalette(this);
      this.#invalidate();
    }, signal);
    this.sizeObserver = new ResizeObserver(() => this.#invalidate());
    this.sizeObserver.observe(this.body);
    this.ticker = setInterval(() => this.#isOpen() && this.#arrangeSoon(), TICK_MS);
    if (this.hasAttribute("src") && !this.#model) this.#load();
  }

  disconnectedCallback() {
    this.connection.abort();
    this.sizeObserver.disconnect();
    clearInterval(this.ticker);
    clearTimeout(this.refreshTimer);
    clearTimeout(this.arrangeTimer);
    cancelAnimationFrame(this.frame);
    this.frame = this.refreshTimer = this.arrangeTimer = 0;
  }

  attributeChangedCallback(name, before, after) {
    if (this.body && before !== after && after) this.#load();
  }

  /** Apply a delta of the job's stream. */
  apply({ job, events }) {
    // The answer of the first read may be older than this.
    if (!this.#model) return this.#refreshSoon();
    this.#model.applyEvents(events);
    const isFinished = job.finished_at !== null;
    if (isFinished) this.#model.finished = Date.parse(job.finished_at) / 1000 - this.#model.origin;
    this.#arrangeSoon();
    if (!isFinished) return this.#refreshSoon();
    clearTimeout(this.refreshTimer);
    this.refreshTimer = setTimeout(() => this.#load(), 0);
  }

  #refreshSoon() {
    this.refreshTimer ||= setTimeout(() => this.#load(), REFRESH_MS);
  }

  get #jobId() {
    return this.getAttribute("src")?.match(/\/jobs\/([^/]+)\//)?.[1];
  }

  /** Whether the end of the job was read: nothing changes after it. */
  get #isComplete() {
    return (this.#model?.finished ?? null) !== null;
  }

  get laneCount() {
    return this.#lanes.length;
  }

  /** Show the lanes by "node" or by "worker". */
  showLanes(by) {
    this.#by = by;
    this.byChoice.value = by;
    this.#selected = -1;
    this.body.scrollTop = 0;
    this.#arrange();
  }

  // ── Data ──

  async #load() {
    clearTimeout(this.refreshTimer);
    this.refreshTimer = 0;
    const asked = (this.asked = {});
    if (!this.#model) this.#note("Loading the timeline…");
    try {
      const pages = [];
      for (let cursor = null, rows = 0; pages.length === 0 || (cursor && rows < MAX_ROWS); ) {
        const url = new URL(this.getAttribute("src"), location.href);
        if (cursor) url.searchParams.set("cursor", cursor);
        const response = await fetch(url);
        if (!response.ok) throw new Error(`the server answered ${response.status}`);
        pages.push(await response.json());
        cursor = pages.at(-1).next_cursor;
        rows += pages.at(-1).node_ids.length;
      }
      if (asked !== this.asked) return;
      this.#model = new TimelineModel(pages);
      this.nowSeconds = pages[0].now_seconds;
      this.readAt = performance.now();
      this.palette ??= readPalette(this);
      this.#note(this.#model.rows.length ? "" : "Nothing has run yet.");
      this.#arrange();
      this.dispatchEvent(new CustomEvent("timeline-ready", { bubbles: true, detail: { rows: this.#model.rows.length } }));
    } catch (error) {
      if (asked === this.asked) this.#note(`The timeline cannot be shown: ${error.message}.`, () => this.#load());
    }
  }

  #applyTasks(tasks) {
    if (!this.#model || !tasks.every((task) => task.job_id === this.#model.jobId)) return;
    this.#model.applyTasks(tasks);
    this.#arrangeSoon();
  }

  #isOpen() {
    return this.#model !== null && this.#model.finished === null && !document.hidden && this.body.clientHeight > 0;
  }

  get #now() {
    return this.#model.finished ?? this.nowSeconds + (performance.now() - this.readAt) / 1000;
  }

  /** Arrange again: at once if that is quick, else so seldom that nine tenths of the time are left for others. */
  #arrangeSoon() {
    this.arrangeTimer ||= setTimeout(
      () => {
        this.arrangeTimer = 0;
        this.#arrange();
      },
      this.arrangeCost > 4 ? this.arrangeCost * 10 : 0,
    );
  }

  /** Decide lanes and axis again; the zoom stays. */
  #arrange() {
    if (!this.#model) return;
    const began = performance.now();
    this.#lanes = this.#model.lanes(this.#by, this.#now, this.criticalOnly.checked);
    const before = this.#axis;
    this.#axis = new Axis(this.#lanes);
    if (!before || this.range[1] >= before.length) this.range = [before ? Math.min(this.range[0], this.#axis.length) : 0, this.#axis.length];
    this.space.style.height = `${HEAD + this.#lanes.length * LANE}px`;
    if (!this.table.hidden) this.#fillTable();
    this.arrangeCost = performance.now() - began;
    this.#invalidate();
  }

  // ── Elements ──

  #build() {
    this.range = [0, 1];
    this.bodyWidth = this.arrangeCost = 0;
    this.byChoice = make("select", { className: "timeline-by" });
    this.byChoice.setAttribute("aria-label", "Lanes");
    this.byChoice.append(new Option("by node", "node"), new Option("by worker", "worker"));
    this.byChoice.addEventListener("change", () => this.showLanes(this.byChoice.value));
    this.criticalOnly = make("input");
    this.criticalOnly.type = "checkbox";
    this.criticalOnly.addEventListener("change", () => this.#arrange());
    const critical = make("label", { className: "timeline-critical" });
    critical.append(this.criticalOnly, "critical path only");
    const tool = (text, label, act) => {
      const button = make("button", { type: "button", className: "dag-tool" }, text);
      button.setAttribute("aria-label", label);
      button.title = label;
      button.addEventListener("click", act);
      return button;
    };
    this.tableToggle = make("button", { type: "button", className: "button" }, "Table");
    this.tableToggle.setAttribute("aria-pressed", "false");
    this.tableToggle.addEventListener("click", () => this.#toggleTable());
    const bar = make("div", { className: "timeline-bar" });
    bar.append(this.byChoice, critical, tool("−", "Zoom out (-)", () => this.#zoom(1 / 1.6)), tool("+", "Zoom in (+)", () => this.#zoom(1.6)), tool("⤢", "Show everything (0)", () => this.#fit()), this.tableToggle);
    this.body = make("div", { className: "timeline-body" });
    this.body.tabIndex = 0;
    this.body.setAttribute("role", "group");
    this.body.setAttribute("aria-label", "Timeline. Arrow keys choose a row, Enter opens it. The table has the same rows.");
    this.canvas = make("canvas", { className: "timeline-canvas" });
    this.canvas.setAttribute("aria-hidden", "true");
    this.space = make("div", { className: "timeline-space" });
    this.body.append(this.canvas, this.space);
    this.tip = make("div", { className: "timeline-tip" });
    this.tip.hidden = true;
    this.announcer = make("p", { className: "visually-hidden" });
    this.announcer.setAttribute("role", "status");
    this.note = make("p", { className: "dag-note" });
    this.note.setAttribute("role", "status");
    this.table = make("div", { className: "timeline-table" });
    this.table.hidden = true;
    this.append(bar, this.body, this.table, this.tip, this.announcer, this.note);
    this.body.addEventListener("scroll", () => this.#invalidate());
    this.body.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.body.addEventListener("pointermove", (event) => this.#pointer(event));
    this.body.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.body.addEventListener("click", (event) => this.#open(this.#laneAt(event), this.#barAt(event)));
    this.body.addEventListener("keydown", (event) => this.#key(event));
  }

  #note(text, retry) {
    this.note.textContent = text;
    this.note.hidden = !text;
    if (!retry) return;
    const button = make("button", { type: "button", className: "button" }, "Try again");
    button.addEventListener("click", retry);
    this.note.append(" ", button);
  }

  #toggleTable() {
    const isTable = this.table.hidden;
    this.table.hidden = !isTable;
    this.body.hidden = isTable;
    this.tableToggle.setAttribute("aria-pressed", String(isTable));
    this.#page = 0;
    if (isTable) this.#fillTable();
    else this.#invalidate();
  }

  #fillTable() {
    const rows = this.#lanes.flatMap((lane) => lane.bars.map((bar) => bar.row));
    const last = Math.max(0, Math.ceil(rows.length / PAGE) - 1);
    this.#page = Math.min(this.#page, last);
    const table = make("table");
    table.append(make("caption", { className: "visually-hidden" }, "Attempts of the job in the order of the timeline"));
    const head = table.createTHead().insertRow();
    for (const name of ["Node", "Attempt", "Status", "Worker", "Queued after", "Waited", "Ran"]) {
      const cell = make("th", {}, name);
      cell.scope = "col";
      head.append(cell);
    }
    const body = table.createTBody();
    const now = this.#now;
    const duration = (from, to) => (from === null ? "" : formatDuration(Math.max(0, (to ?? now) - from)));
    for (const row of rows.slice(this.#page * PAGE, (this.#page + 1) * PAGE)) {
      const line = body.insertRow();
      const open = make("button", { type: "button", className: "timeline-open" }, row.nodeId);
      open.addEventListener("click", () => this.#dispatch(row.nodeId));
      line.insertCell().append(open);
      for (const content of [row.attempt || "", statusBadge(row.status), row.worker ?? "", row.queued === null ? "" : formatDuration(row.queued), duration(row.queued, row.started ?? row.finished), duration(row.started, row.finished)]) {
        line.insertCell().append(content);
      }
    }
    const pager = make("div", { className: "timeline-pager" });
    const turn = (text, step) => {
      const button = make("button", { type: "button", className: "button" }, text);
      button.disabled = this.#page + step < 0 || this.#page + step > last;
      button.addEventListener("click", () => {
        this.#page += step;
        this.#fillTable();
      });
      return button;
    };
    pager.append(turn("Previous", -1), make("span", {}, `Page ${this.#page + 1} of ${last + 1} · ${formatNumber(rows.length)} rows`), turn("Next", 1));
    this.table.replaceChildren(table, pager);
  }

  // ── Drawing ──

  #invalidate() {
    this.frame ||= requestAnimationFrame(() => this.#draw());
  }

  get #labelWidth() {
    return Math.min(240, Math.max(90, this.bodyWidth * 0.22));
  }

  #x(time) {
    const [from, to] = this.range;
    const left = this.#labelWidth;
    return left + ((this.#axis.position(time) - from) / (to - from)) * (this.bodyWidth - left - 12);
  }

  #draw() {
    this.frame = 0;
    const { clientWidth: width, clientHeight: height, scrollTop } = this.body;
    if (!this.#axis || !width || !height) return;
    this.bodyWidth = width;
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    const context = prepare(this.canvas, width, height);
    const { palette } = this;
    const left = this.#labelWidth;
    const first = Math.max(0, Math.floor(scrollTop / LANE));
    const lanes = this.#lanes.slice(first, first + Math.ceil((height - HEAD) / LANE) + 1);
    const top = (i) => HEAD + (first + i) * LANE - scrollTop;
    context.textBaseline = "middle";
    this.#drawGrid(context, left, width, height);
    lanes.forEach((lane, i) => {
      if (first + i !== this.#selected) return;
      context.fillStyle = palette["surface-2"];
      context.fillRect(0, top(i), width, LANE);
    });
    context.save();
    context.beginPath();
    context.rect(left, HEAD, width - left, height);
    context.clip();
    lanes.forEach((lane, i) => this.#drawBars(context, lane, top(i), left, width));
    this.#drawIdle(context, left, width);
    context.restore();
    context.save();
    context.beginPath();
    context.rect(0, HEAD, left - 8, height);
    context.clip();
    lanes.forEach((lane, i) => {
      if (this.#by === "worker" && lane.depth && i) return;
      context.font = `${lane.isCritical ? "600 " : ""}12px ${palette.font}`;
      context.fillStyle = lane.isCritical ? palette.text : palette["text-muted"];
      const x = 10 + (this.#by === "node" ? lane.depth * 12 : 0);
      context.fillText(shortenMiddle(context, lane.label, left - 10 - x), x, top(i) + LANE / 2);
    });
    context.restore();
  }

  /** The head with times, lines below them, and marks where idle time is left out. */
  #drawGrid(context, left, width, height) {
    const { palette } = this;
    const [from, to] = this.range;
    const pixels = width - left - 12;
    const step = niceStep(((to - from) / pixels) * 90);
    context.font = `11px ${palette.font}`;
    context.strokeStyle = palette.border;
    context.fillStyle = palette["text-muted"];
    context.lineWidth = 1;
    context.beginPath();
    let free = left;
    for (const { time, at, rate, isIdle } of this.#axis.pieces) {
      const end = this.#axis.pieces.find((piece) => piece.at > at)?.at ?? this.#axis.length;
      if (isIdle || end < from || at > to) continue;
      const begin = time + Math.max(0, from - at) / rate;
      for (let tick = Math.ceil(begin / step) * step; this.#axis.position(tick) <= Math.min(end, to) + 1e-9; tick += step) {
        const x = Math.round(this.#x(tick)) + 0.5;
        context.moveTo(x, HEAD - 4);
        context.lineTo(x, height);
        const text = formatTick(tick);
        const end = x + 3 + context.measureText(text).width;
        if (x < free || end > width) continue;
        context.fillText(text, x + 3, HEAD / 2);
        free = end + 11;
      }
    }
    context.stroke();
    for (const [begin, end] of this.#axis.idle) {
      const [x, right] = [this.#x(begin), this.#x(end)];
      if (right < left || x > width) continue;
      context.fillStyle = palette["surface-2"];
      context.fillRect(Math.max(x, left), HEAD, right - Math.max(x, left), height);
    }
  }

  /** Say how long the idle times are, above the bars. */
  #drawIdle(context, left, width) {
    const { palette } = this;
    context.font = `11px ${palette.font}`;
    let free = left;
    for (const [begin, end] of this.#axis.idle) {
      const [x, right] = [this.#x(begin), this.#x(end)];
      const middle = (x + right) / 2;
      if (middle - IDLE_TEXT / 2 < free || x > width || right - x < 10) continue;
      free = middle + IDLE_TEXT / 2;
      const text = `${formatDuration(end - begin)} idle`;
      context.save();
      context.translate(middle, HEAD + 8);
      context.rotate(Math.PI / 2);
      context.fillStyle = palette["surface-2"];
      context.fillRect(-4, -IDLE_TEXT / 2, context.measureText(text).width + 8, IDLE_TEXT);
      context.fillStyle = palette["text-muted"];
      context.fillText(text, 0, 0);
      context.restore();
    }
  }

  #drawBars(context, lane, top, left, width) {
    const { palette } = this;
    let painted = -1;
    for (const bar of lane.bars) {
      const x = this.#x(bar.begin);
      const right = Math.max(this.#x(bar.end), x + 1.5);
      if (right < left || x > width || right <= painted) continue;
      painted = right - 0.5;
      const tone = statusTone(bar.row.status);
      const started = this.#x(bar.started);
      const isQueueShown = bar.row.queued !== null && !(this.#by === "worker" && bar.row.worker);
      if (isQueueShown && started > x) {
        context.fillStyle = palette["pending-tint"];
        context.strokeStyle = palette.pending;
        context.lineWidth = 1;
        context.fillRect(x, top + 9, started - x, LANE - 18);
        context.strokeRect(x + 0.5, top + 9.5, Math.max(0, started - x - 1), LANE - 19);
      }
      context.fillStyle = palette[tone];
      const from = isQueueShown ? Math.max(started, x) : started;
      if (bar.row.started !== null || bar.isSummary || !bar.row.attempt) {
        const thickness = bar.isSummary ? 4 : LANE - 12;
        context.globalAlpha = bar.isSummary ? 0.6 : 1;
        context.beginPath();
        context.roundRect(from, top + (LANE - thickness) / 2, Math.max(right - from, 1.5), thickness, Math.min(3, Math.max(right - from, 1.5) / 2));
        context.fill();
        context.globalAlpha = 1;
      }
      if (bar.isCritical) {
        context.fillStyle = palette.accent;
        context.fillRect(x, top + LANE - 4, right - x, 2);
      }
      if (this.#by === "node" && bar === lane.bars.at(-1)) this.#drawDuration(context, bar, { begin: this.#x(lane.bars[0].begin), right, top, left, width });
    }
  }

  /** Write how long a node ran: after its last bar, before its first one if there is no room, or nowhere. */
  #drawDuration(context, bar, { begin, right, top, left, width }) {
    const { palette } = this;
    context.font = `11px ${palette.font}`;
    const text = formatDuration(bar.end - (bar.row.started ?? bar.begin));
    const { width: length } = context.measureText(text);
    const isFree = (from, to) => from >= left && to <= width && !this.#axis.idle.some(([start, end]) => this.#x(start) - IDLE_TEXT / 2 < to && from < this.#x(end) + IDLE_TEXT / 2);
    const x = [right + 5, begin - length - 5].find((place) => isFree(place, place + length));
    if (x === undefined) return;
    context.fillStyle = palette["text-muted"];
    context.fillText(text, x, top + LANE / 2);
  }

  // ── Pointer and keys ──

  #laneAt(event) {
    const y = event.clientY - this.body.getBoundingClientRect().top - HEAD + this.body.scrollTop;
    return y < 0 ? -1 : Math.floor(y / LANE);
  }

  #barAt(event) {
    const x = event.clientX - this.body.getBoundingClientRect().left;
    return this.#lanes[this.#laneAt(event)]?.bars.findLast((bar) => this.#x(bar.begin) - 3 <= x && x <= Math.max(this.#x(bar.end), this.#x(bar.begin) + 2) + 3);
  }

  #pointer(event) {
    if (event.buttons & 1) return this.#shift(-event.movementX / (this.bodyWidth - this.#labelWidth));
    const bar = this.#axis && this.#barAt(event);
    this.tip.hidden = !bar;
    if (!bar) return;
    this.tip.textContent = describeRow(bar.row, this.#now);
    const box = this.getBoundingClientRect();
    this.tip.style.transform = `translate(${Math.min(event.clientX - box.left + 12, box.width - this.tip.offsetWidth - 8)}px, ${event.clientY - box.top + 14}px)`;
  }

  #wheel(event) {
    if (!this.#axis) return;
    if (event.ctrlKey || event.metaKey) {
      const x = event.clientX - this.body.getBoundingClientRect().left - this.#labelWidth;
      this.#zoom(Math.exp(-event.deltaY * 0.005), x / (this.bodyWidth - this.#labelWidth));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.#shift((event.deltaX || event.deltaY) / this.bodyWidth);
    } else {
      return;
    }
    event.preventDefault();
  }

  #zoom(factor, share = 0.5) {
    const [from, to] = this.range;
    const length = Math.min(this.#axis.length, Math.max(this.#axis.length / MAX_ZOOM, (to - from) / factor));
    const begin = from + (to - from - length) * share;
    this.#setRange(begin, length);
  }

  #shift(share) {
    const [from, to] = this.range;
    this.#setRange(from + (to - from) * share, to - from);
  }

  #setRange(begin, length) {
    const from = Math.max(0, Math.min(begin, this.#axis.length - length));
    this.range = [from, from + length];
    this.#invalidate();
  }

  #fit() {
    this.#setRange(0, this.#axis.length);
  }

  #key(event) {
    if (!this.#axis || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.floor(this.body.clientHeight / LANE) - 2;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) this.#select(this.#selected + steps[event.key]);
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") this.#shift(event.key === "ArrowLeft" ? -0.1 : 0.1);
    else if (event.key === "+" || event.key === "=") this.#zoom(1.6);
    else if (event.key === "-") this.#zoom(1 / 1.6);
    else if (event.key === "0") this.#fit();
    else if (event.key === "Enter") this.#open(this.#selected);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #select(lane) {
    this.#selected = Math.max(0, Math.min(this.#lanes.length - 1, lane));
    const top = this.#selected * LANE;
    const { scrollTop, clientHeight } = this.body;
    if (top < scrollTop) this.body.scrollTop = top;
    else if (top + LANE + HEAD > scrollTop + clientHeight) this.body.scrollTop = top + LANE + HEAD - clientHeight;
    const row = this.#lanes[this.#selected]?.bars.at(-1)?.row;
    this.announcer.textContent = row ? describeRow(row, this.#now) : "";
    this.#invalidate();
  }

  #open(lane, bar = this.#lanes[lane]?.bars.at(-1)) {
    if (!bar) return;
    this.#selected = lane;
    this.#invalidate();
    this.#dispatch(bar.row.nodeId);
  }

  #dispatch(nodeId) {
    this.dispatchEvent(new CustomEvent("node-open", { bubbles: true, detail: { nodeId } }));
  }
}

/** Return a text with as much of its begin as there is room for, and its end: children of a fan-out differ in their numbers. */
function shortenMiddle(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const [end] = text.match(/(__\d+)?$/);
  let length = text.length - end.length;
  while (length > 0 && context.measureText(`${text.slice(0, length)}…${end}`).width > width) length--;
  return `${text.slice(0, length)}…${end}`;
}

/** Return a step of 1, 2 or 5 of a unit of time that is not smaller than some seconds. */
function niceStep(seconds) {
  const steps = [0.001, 0.01, 0.1, 1].flatMap((unit) => [unit, 2 * unit, 5 * unit]).concat([10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400]);
  return steps.find((step) => step >= seconds) ?? Math.ceil(seconds / 86400) * 86400;
}

customElements.define("job-timeline", JobTimeline);
export { JobTimeline };

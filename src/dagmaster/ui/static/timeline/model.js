/**
 * The timeline of a job in memory: attempts with their times, lanes to show them in, and an axis without idle time.
 *
 * Pure: knows neither DOM nor canvas. Times are seconds after the submission of the job.
 */

/** Idle time that takes more than this share of the axis is collapsed to it. */
const IDLE_SHARE = 0.02;
const MIN_IDLE_SECONDS = 2;
const ENDS = { NodeCompleted: "COMPLETED", AttemptFailed: "FAILED", AttemptLost: "LOST", AttemptReleased: "RELEASED", NodeFailed: "FAILED", NodeCancelled: "CANCELLED" };

export class TimelineModel {
  #rows = new Map();

  /** Take the pages of a `TimelineView`. */
  constructor(pages) {
    const [first] = pages;
    this.jobId = first.job_id;
    this.origin = Date.parse(first.origin_at) / 1000;
    this.criticalPath = first.critical_path;
    this.finished = first.finished_seconds;
    for (const page of pages) {
      page.node_ids.forEach((nodeId, i) => {
        const worker = page.workers[i] === null ? null : page.worker_names[page.workers[i]];
        this.#add({ nodeId, attempt: page.attempts[i], status: page.statuses[i], worker, queued: page.queued[i], started: page.started[i], finished: page.finished[i] });
      });
    }
  }

  get rows() {
    return [...this.#rows.values()];
  }

  #add(row) {
    this.#rows.set(`${row.nodeId} ${row.attempt}`, row);
    return row;
  }

  /** Apply audit events: what is queued, and what has ended. */
  applyEvents(events) {
    for (const { type, at, node_id: nodeId, attempt, data } of events) {
      if (!nodeId) continue;
      const time = Date.parse(at) / 1000 - this.origin;
      const row = this.#rows.get(`${nodeId} ${attempt ?? 0}`);
      if (type === "NodeDispatched") {
        if (!row) this.#add({ nodeId, attempt, status: "DISPATCHED", worker: null, queued: time, started: null, finished: null });
      } else if (type === "AttemptStarted") {
        if (row && data.started_at) row.started = Date.parse(data.started_at) / 1000 - this.origin;
      } else if (type === "NodeWaiting" || type === "ApprovalRequested") {
        if (!row) this.#add({ nodeId, attempt: 0, status: "WAITING", worker: null, queued: null, started: time, finished: null });
      } else if (type in ENDS) {
        const ended = row ?? this.#rows.get(`${nodeId} 0`) ?? (type === "NodeCompleted" && !attempt ? this.#add({ nodeId, attempt: 0, worker: null, queued: null, started: null }) : null);
        if (ended) Object.assign(ended, { status: ENDS[type], finished: ended.finished ?? time });
      }
    }
  }

  /** Apply the tasks that workers have claimed: when their handlers started. */
  applyTasks(tasks) {
    for (const task of tasks) {
      const row = this.#rows.get(`${task.node_id} ${task.attempt}`);
      if (!row || row.finished !== null) continue;
      row.status = task.status;
      if (task.started_at) row.started = Date.parse(task.started_at) / 1000 - this.origin;
    }
  }

  /** Return lanes by node or by worker: each {label, bars, isCritical, depth}, with bars in the order of time. */
  lanes(by, now, isCriticalOnly = false) {
    const critical = new Set(this.criticalPath);
    const bars = this.rows.map((row) => toBar(row, now, critical.has(row.nodeId)));
    widenFanOuts(bars);
    const shown = isCriticalOnly ? bars.filter((bar) => bar.isCritical) : bars;
    return by === "worker" ? lanesByWorker(shown) : lanesByNode(shown);
  }
}

/** A bar: from `begin` to `end`, with `started` where running begins. */
function toBar(row, now, isCritical) {
  const end = row.finished ?? now;
  const began = row.queued ?? row.started ?? end;
  return { row, begin: began, started: row.started ?? (row.attempt ? end : began), end: Math.max(end, began), isCritical };
}

/** A fan-out has no times itself: it begins with the first of its children. */
function widenFanOuts(bars) {
  const parents = new Map(bars.filter((bar) => !bar.row.attempt).map((bar) => [bar.row.nodeId, bar]));
  for (const bar of bars) {
    const parent = parents.get(parentOf(bar.row.nodeId));
    if (!parent || parent.row.started !== null) continue;
    parent.begin = Math.min(parent.begin, bar.begin);
    parent.started = parent.begin;
    parent.isSummary = true;
  }
}

function parentOf(nodeId) {
  return nodeId.replace(/__\d+$/, (match, offset) => (offset ? "" : match));
}

function lanesByNode(bars) {
  const lanes = new Map();
  for (const bar of bars) {
    const { nodeId } = bar.row;
    const lane = lanes.get(nodeId) ?? { label: nodeId, bars: [], begin: Infinity, isCritical: bar.isCritical };
    lanes.set(nodeId, lane);
    lane.bars.push(bar);
    lane.begin = Math.min(lane.begin, bar.begin);
  }
  for (const lane of lanes.values()) {
    const parent = parentOf(lane.label);
    lane.group = lanes.get(parent !== lane.label && lanes.has(parent) ? parent : lane.label);
    lane.depth = lane.group === lane ? 0 : 1;
    lane.bars.sort((a, b) => a.begin - b.begin);
  }
  // A fan-out, and then its children.
  const order = (a, b) => a.group.begin - b.group.begin || compare(a.group.label, b.group.label) || a.depth - b.depth || a.begin - b.begin || a.label.length - b.label.length || compare(a.label, b.label);
  return [...lanes.values()].sort(order);
}

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** As many lanes for each worker as it ran attempts at the same time. */
function lanesByWorker(bars) {
  const workers = new Map();
  for (const bar of bars.filter((one) => one.row.attempt).sort((a, b) => a.started - b.started || compare(a.row.nodeId, b.row.nodeId))) {
    const name = bar.row.worker ?? "not claimed";
    const lanes = workers.get(name) ?? [];
    workers.set(name, lanes);
    const from = bar.row.worker ? bar.started : bar.begin;
    const lane = lanes.find((one) => one.end <= from) ?? { label: name, bars: [], depth: lanes.length ? 1 : 0 };
    if (!lane.bars.length) lanes.push(lane);
    lane.bars.push(bar);
    lane.end = bar.end;
    lane.isCritical ||= bar.isCritical;
  }
  return [...workers].sort(([a], [b]) => compare(a, b)).flatMap(([, lanes]) => lanes);
}

/** An axis: positions of times, where long idle times are short. */
export class Axis {
  constructor(lanes) {
    const spans = lanes
      .flatMap((lane) => lane.bars)
      .filter((bar) => bar.row.attempt)
      .map((bar) => [bar.begin, bar.end])
      .sort((a, b) => a[0] - b[0]);
    const ends = lanes.flatMap((lane) => lane.bars.map((bar) => bar.end));
    const last = ends.reduce((a, b) => Math.max(a, b), 0);
    const gaps = [];
    let until = 0;
    let busy = 0;
    for (const [begin, end] of [...spans, [last, last]]) {
      if (begin > until) gaps.push([until, begin]);
      busy += Math.max(0, end - Math.max(begin, until));
      until = Math.max(until, end);
    }
    const short = Math.max(busy * IDLE_SHARE, 0.05);
    /** Pieces of the axis: from a time and a position on, one second is `rate` long. */
    this.pieces = [{ time: 0, at: 0, rate: 1 }];
    this.idle = gaps.filter(([begin, end]) => end - begin > Math.max(short * 5, MIN_IDLE_SECONDS));
    for (const [begin, end] of this.idle) {
      const at = this.position(begin);
      this.pieces.push({ time: begin, at, rate: short / (end - begin), isIdle: true }, { time: end, at: at + short, rate: 1 });
    }
    this.length = Math.max(this.position(last), 0.1);
  }

  position(time) {
    let i = this.pieces.length - 1;
    while (i && this.pieces[i].time > time) i--;
    const piece = this.pieces[i];
    return piece.at + (time - piece.time) * piece.rate;
  }
}

/** Return a duration for people: 350 ms, 1.2 s, 3 min 4 s, 2 h 5 min, 3 d 4 h. */
export function formatDuration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds)} s`;
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = parts.findIndex(([, size]) => seconds >= size);
  return parts
    .slice(first, first + 2)
    .map(([unit, size], i) => [Math.floor(i ? (seconds % parts[first][1]) / size : seconds / size), unit])
    .filter(([count]) => count)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(" ");
}

/** Return a time of the axis: 350 ms, 20 s, 1:05, 2:31:10. */
export function formatTick(seconds) {
  if (seconds < 60) return seconds % 1 ? formatDuration(seconds) : `${seconds} s`;
  const whole = Math.round(seconds);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (!parts[0]) parts.shift();
  return parts.map((part, i) => (i ? String(part).padStart(2, "0") : part)).join(":");
}

/** Return an attempt in words. */
export function describeRow(row, now) {
  const parts = [row.attempt > 1 ? `${row.nodeId}, attempt ${row.attempt}` : row.nodeId, row.status.toLowerCase()];
  if (row.queued !== null) parts.push(`queued ${formatDuration(Math.max(0, (row.started ?? row.finished ?? now) - row.queued))}`);
  if (row.started !== null) parts.push(`ran ${formatDuration(Math.max(0, (row.finished ?? now) - row.started))}`);
  if (row.worker) parts.push(`on ${row.worker}`);
  return parts.join(", ");
}

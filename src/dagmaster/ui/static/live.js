/**
 * Live updates: one EventSource a tab, on the streams of the API (docs/reference/streams.md).
 *
 * `connectJob(id)` dispatches on the document `job-snapshot` (a JobDetailView), `job-delta` ({job, events, nodes},
 * several messages merged into one a frame), `job-tasks` ({tasks}) and `job-end` ({reason, detail}); between
 * `followLog` and `unfollowLog` also `job-log` (a LogView), on the same connection. `connectList(query)` dispatches
 * `list-snapshot` ({jobs}) and `list-delta` ({jobs, removed}). Both dispatch `live-state`
 * {state: "live" | "stale" | "closed", since, reason}. A stream resumes after the last event that was seen: nothing is
 * lost and nothing comes twice. It is closed while the tab is hidden. A new connection replaces the one before.
 *
 * Touches the network, `document` and its visibility; keeps no data but the last event number.
 */

const RETRY_MS = [1000, 2000, 5000, 10000, 30000];
const LOG_RETRY_MS = 2000;
const FINISHED = new Set(["COMPLETED", "FAILED", "CANCELLED"]);
/** Ends after which a connection is not opened again. */
const FINAL = new Set(["finished", "removed", "key_rejected"]);

let current = null;

/** Follow a job. Return the connection; `close()` ends it. */
export function connectJob(jobId) {
  if (current?.url === streamOf(jobId)) return current;
  return connect(new Connection(streamOf(jobId), "job"));
}

/**
 * Follow the log of a job on the connection that the tab has. `position` returns parameters of the stream: which log, and
 * after which chunk; it is asked each time the connection is opened.
 */
export function followLog(jobId, position) {
  const isOwn = current?.url === streamOf(jobId);
  const connection = isOwn ? current : new Connection(streamOf(jobId), "job");
  connection.log = position;
  if (isOwn) connection.reopen();
  else connect(connection);
}

/** Follow no log any more. */
export function unfollowLog(position) {
  if (current?.log !== position) return;
  current.log = null;
  current.reopen();
}

/** Follow the newest jobs that match the filters of the list. */
export function connectList(query = "") {
  return connect(new Connection(`/api/v1/stream${query ? `?${new URLSearchParams(query)}` : ""}`, "list"));
}

const streamOf = (jobId) => `/api/v1/jobs/${encodeURIComponent(jobId)}/stream`;

function connect(connection) {
  current?.giveWay();
  current = connection;
  connection.open();
  return connection;
}

class Connection {
  #source = null;
  #last = null;
  #isOver = false;
  #retries = 0;
  #pending = [];

  constructor(url, name) {
    Object.assign(this, { url, name });
    this.since = new Date();
    this.controller = new AbortController();
    const { signal } = this.controller;
    document.addEventListener("visibilitychange", () => this.#onVisibility(), { signal });
    // The browser is leaving: an open stream would keep the page out of its cache.
    addEventListener("pagehide", () => this.#disconnect(), { signal });
    addEventListener("pageshow", (event) => event.persisted && this.open(), { signal });
    addEventListener("online", () => this.reopen(), { signal });
    addEventListener("offline", () => this.#setState("stale"), { signal });
  }

  open() {
    if (this.#isOver || this.#source || document.hidden) return;
    clearTimeout(this.timer);
    const url = new URL(this.url, location.href);
    if (this.#last !== null) url.searchParams.set("last_event_id", this.#last);
    for (const [name, value] of Object.entries(this.log ? { logs: true, ...this.log() } : {})) for (const one of [value].flat()) if (one) url.searchParams.append(name, one);
    const source = (this.#source = new EventSource(url));
    source.onopen = () => {
      this.#retries = 0;
      this.#setState("live");
    };
    source.onerror = () => this.#onError();
    for (const type of ["snapshot", "delta", "tasks", "log", "end"]) source.addEventListener(type, (event) => this.#onMessage(event));
  }

  /** End the connection for good. */
  close() {
    this.#finish("closed by the page");
  }

  /** End the connection because another takes its place: the page stays live. */
  giveWay() {
    this.state = "closed";
    this.#finish("replaced");
  }

  #finish(reason) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#disconnect();
    this.controller.abort();
    if (current === this) current = null;
    this.#setState("closed", reason);
  }

  #disconnect() {
    clearTimeout(this.timer);
    this.#source?.close();
    this.#source = null;
  }

  /** Open the connection at the present position. */
  reopen() {
    this.#flush();
    this.#disconnect();
    this.open();
  }

  #onVisibility() {
    if (document.hidden) {
      this.#flush();
      this.#disconnect();
      this.#setState("stale", "hidden");
    } else {
      this.open();
    }
  }

  #onError() {
    if (this.#isOver) return;
    this.#setState("stale");
    // While it is connecting, the browser tries again by itself. After an answer that is no stream it does not.
    const isConnecting = this.#source?.readyState !== EventSource.CLOSED;
    if (isConnecting && !this.log) return;
    this.#disconnect();
    if (isConnecting) {
      // The browser would ask for the log from where this connection began.
      this.timer = setTimeout(() => this.open(), LOG_RETRY_MS);
      return;
    }
    if (this.isFinished && !this.log) return this.#finish("finished");
    const delay = RETRY_MS[Math.min(this.#retries++, RETRY_MS.length - 1)];
    this.timer = setTimeout(() => this.#check(), delay);
  }

  /** An EventSource does not tell the status of an answer: ask for the job, to know whether to try again. */
  async #check() {
    const status = await fetch(this.url.replace(/\/stream.*$/, this.name === "job" ? "" : "/stats")).then((response) => response.status, () => 0);
    if (this.#isOver) return;
    if (status === 401 || status === 403) this.#finish("key_rejected");
    else if (status === 404 && this.name === "job") this.#finish("removed");
    else this.open();
  }

  #onMessage({ type, data, lastEventId }) {
    if (lastEventId) this.#last = lastEventId;
    this.since = new Date();
    const detail = JSON.parse(data);
    if (type === "log") {
      // At once: the position of the log is that of the chunks which its reader has.
      document.dispatchEvent(new CustomEvent("job-log", { detail }));
      return;
    }
    if (this.name === "job" && (type === "snapshot" || type === "delta")) this.isFinished = FINISHED.has((detail.job ?? detail).status);
    // A snapshot replaces what was before it.
    if (type === "snapshot") this.#pending = [];
    this.#pending.push([type, detail]);
    // The connection is closed after an end: that must not look like an interruption.
    if (type === "end") this.#flush();
    else this.frame ||= requestAnimationFrame(() => this.#flush());
  }

  /** Dispatch what came since the last frame: deltas one after the other are merged. */
  #flush() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const messages = this.#pending.splice(0);
    for (let i = 0; i < messages.length; i++) {
      const [type, detail] = messages[i];
      while (type === "delta" && messages[i + 1]?.[0] === "delta") merge(detail, messages[++i][1]);
      document.dispatchEvent(new CustomEvent(`${this.name}-${type}`, { detail }));
      if (type === "end" && FINAL.has(detail.reason)) this.#finish(detail.reason);
    }
  }

  #setState(state, reason = "") {
    if (state === this.state) return;
    this.state = state;
    document.dispatchEvent(new CustomEvent("live-state", { detail: { state, since: this.since, reason } }));
  }
}

function merge(into, next) {
  if (next.removed) {
    // Of a list: the last word about each job counts.
    const jobs = new Map([...into.jobs, ...next.jobs].map((job) => [job.job_id, job]));
    for (const id of next.removed) jobs.delete(id);
    const isBack = new Set(next.jobs.map((job) => job.job_id));
    into.removed = [...into.removed.filter((id) => !isBack.has(id)), ...next.removed];
    into.jobs = [...jobs.values()];
  } else {
    into.job = next.job;
    into.events.push(...next.events);
    Object.assign(into.nodes, next.nodes);
  }
}

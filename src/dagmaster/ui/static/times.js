/** Lets relative times and durations tick: elements with data-relative or data-since, once a second while visible. */

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];

/** Return how long ago something was, in its largest unit. */
export function formatAge(seconds) {
  for (const [size, unit] of UNITS) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.max(Math.floor(seconds), 0)} s`;
}

/** Return a duration in its two largest units, as the server formats it (pages/times.py). */
export function formatSeconds(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** Start to tick. Text is written only where it changes. */
export function startClock() {
  tick();
  setInterval(() => document.hidden || tick(), 1000);
  document.addEventListener("visibilitychange", () => document.hidden || tick());
}

function tick() {
  const now = Date.now();
  for (const node of document.querySelectorAll("[data-relative]")) {
    const seconds = (now - Date.parse(node.dateTime)) / 1000;
    write(node, seconds >= 0 ? `${formatAge(seconds)} ago` : `in ${formatAge(-seconds)}`);
  }
  for (const node of document.querySelectorAll("[data-since]")) {
    const seconds = Math.max((now - Date.parse(node.dataset.since)) / 1000, 0);
    write(node, seconds < 10 ? `${Math.floor(seconds)} s` : formatSeconds(seconds));
  }
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Pages that no stream feeds (data-poll): asks for their regions every second while they are visible.
 * It touches no element itself; `live-state` tells the shell whether what is shown is current.
 */

import { refreshSoon } from "./refresh.js";

const INTERVAL_MS = 1000;
const STALE_MS = 4000;
let refreshedAt = Date.now();
let state = "";

function poll() {
  if (document.hidden) {
    refreshedAt = Date.now();
    return;
  }
  refreshSoon();
  announce(Date.now() - refreshedAt > STALE_MS ? "stale" : "live");
}

function announce(next) {
  if (next === state) return;
  state = next;
  document.dispatchEvent(new CustomEvent("live-state", { detail: { state, since: new Date(refreshedAt) } }));
}

document.addEventListener("page-refreshed", () => {
  refreshedAt = Date.now();
  announce("live");
});
document.addEventListener("visibilitychange", poll);
setInterval(poll, INTERVAL_MS);
poll();

/**
 * The page of a node: refreshes it when the stream of its job says that something became of the node, or that it wrote
 * a line. Its log is followed while a worker may write it. It touches the region with data-refresh; the node of a job
 * that has finished is not followed.
 */

import { isAbout } from "./drawer.js";
import { connectJob, followLog, unfollowLog } from "./live.js";
import { refreshSoon } from "./refresh.js";

// The end of the log of a running job is two seconds old: what is still being written may come before it.
const LOG_MS = 2500;
const { nodePage: nodeId, job, open } = document.querySelector("[data-node-page]").dataset;
let cursor = "";
let timer = 0;
let isFollowed = false;

const position = () => ({ log_node_id: nodeId, log_cursor: cursor, log_since: cursor ? "" : "5s" });

function follow() {
  const isActive = "active" in document.querySelector("[data-node-page]").dataset;
  if (isActive === isFollowed) return;
  isFollowed = isActive;
  if (isActive) followLog(job, position);
  else unfollowLog(position);
}

function refreshLater() {
  timer ||= setTimeout(() => { timer = 0; refreshSoon(); }, LOG_MS);
}

function refreshTwice() {
  refreshSoon();
  refreshLater();
}

if (open !== undefined) {
  follow();
  connectJob(job);
  document.addEventListener("page-refreshed", follow);
  document.addEventListener("job-end", refreshTwice);
  for (const type of ["job-delta", "job-tasks"]) document.addEventListener(type, ({ detail }) => isAbout(detail, nodeId) && refreshTwice());
  document.addEventListener("job-log", ({ detail }) => {
    cursor = detail.cursor;
    refreshLater();
  });
}

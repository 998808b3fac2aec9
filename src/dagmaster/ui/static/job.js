/**
 * The pages of a job: follows its stream, refreshes what the server renders, and opens nodes beside the page.
 * It touches regions with data-refresh, and the drawer; the graph, timeline, map and log listen to the stream themselves.
 */

import { connectJob } from "./live.js";
import { openDrawer } from "./drawer.js";
import { refreshSoon } from "./refresh.js";

const region = document.querySelector("[data-refresh='summary']");

document.addEventListener("node-open", ({ detail }) => {
  openDrawer(`${location.pathname.split("/").slice(0, 4).join("/")}/nodes/${encodeURIComponent(detail.nodeId)}`);
});

if (region && "open" in region.dataset) {
  connectJob(region.dataset.job);
  for (const type of ["job-delta", "job-tasks", "job-end"]) document.addEventListener(type, () => refreshSoon());
}

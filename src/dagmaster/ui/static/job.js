/**
 * The pages of a job: follows its stream, refreshes what the server renders, and opens nodes next to the page.
 * It touches regions with data-refresh, the drawer, and the actions below the map. Graph and timeline listen to the
 * stream themselves; a job that has finished is also followed where one of them has to know its states.
 */

import { openDrawer } from "./drawer.js";
import { connectJob } from "./live.js";
import { refreshSoon } from "./refresh.js";

const summary = document.querySelector("[data-refresh='summary']");
const base = `/ui/jobs/${summary.dataset.job}`;
const isOpen = "open" in summary.dataset;

document.addEventListener("node-open", ({ detail }) => openDrawer(`${base}/nodes/${encodeURIComponent(detail.nodeId)}`));
document.addEventListener("nodes-selected", ({ detail }) => offerActions(detail.nodeIds));
document.addEventListener("page-refreshed", () => offerActions(document.querySelector("job-map")?.selected ?? []));

if (isOpen || document.querySelector("dag-graph, job-timeline")) connectJob(summary.dataset.job);
if (isOpen) {
  for (const type of ["job-delta", "job-tasks", "job-end"]) document.addEventListener(type, () => refreshSoon());
  document.addEventListener("job-delta", ({ detail }) => colourMap(detail.events));
  document.addEventListener("job-tasks", ({ detail }) => {
    document.querySelector("job-map")?.setStates(new Map(detail.tasks.map(({ node_id: id, status }) => [id, { status }])));
  });
}

/** Tell the map which children changed: events are about children, where deltas have the counts of their fan-out. */
function colourMap(events) {
  const statuses = { NodeDispatched: "DISPATCHED", NodeCompleted: "COMPLETED", NodeFailed: "FAILED", NodeCancelled: "CANCELLED" };
  const changed = events.filter(({ node_id: id, type }) => id && type in statuses);
  document.querySelector("job-map")?.setStates(new Map(changed.map(({ node_id: id, type }) => [id, { status: statuses[type] }])));
}

/** Offer what can be done with the nodes that are selected on the map. The links are the server's, the nodes ours. */
function offerActions(nodeIds) {
  const bar = document.querySelector("[data-map-actions]");
  if (!bar) return;
  bar.hidden = nodeIds.length === 0;
  bar.querySelector("[data-count]").textContent = `${nodeIds.length.toLocaleString("en")} selected`;
  for (const link of bar.querySelectorAll("a[data-nodes]")) limitLink(link, nodeIds, Number(bar.dataset.max));
  const isLimited = bar.querySelector("a[data-nodes]:not([hidden]) [data-limit]:not(:empty)") !== null;
  bar.querySelector("[data-limit-note]").hidden = !isLimited;
}

/**
 * Name the nodes of a link, and say on it how many these are where it cannot have all.
 * What is for failed or for open nodes only is offered if one is selected; the dialog says how many it concerns.
 */
function limitLink(link, nodeIds, max) {
  const states = link.dataset.states?.split(" ");
  const statusOf = document.querySelector("job-map").statusOf;
  const fitting = states ? nodeIds.filter((id) => states.includes(statusOf(id))) : nodeIds;
  link.hidden = fitting.length === 0;
  const named = nodeIds.length > max ? fitting.slice(0, max) : nodeIds;
  link.search = new URLSearchParams(named.map((id) => [link.dataset.nodes, id]));
  link.querySelector("[data-limit]").textContent = fitting.length > max ? ` the first ${max} of ${fitting.length.toLocaleString("en")}` : "";
}

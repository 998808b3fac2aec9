/** The list of jobs and the overview: follows the newest jobs, and refreshes the page when they change. */

import { connectList } from "./live.js";
import { refreshSoon } from "./refresh.js";

const list = document.querySelector("[data-stream]");

if (list) {
  connectList(new URL(list.dataset.stream, location.href).search.slice(1));
  document.addEventListener("list-delta", () => ("firstRun" in list.dataset ? location.reload() : refreshSoon()));
  document.addEventListener("list-snapshot", () => "firstRun" in list.dataset || refreshSoon());
}

/**
 * The children of a fan-out as a paged list next to its graph, with a filter by status.
 *
 * Reads `/api/v1/jobs/…/nodes/…/children`, and dispatches `node-open` from its own elements.
 */

import { icon, make } from "../dom.js";
import { statusIcon, statusTone, statusWord } from "../status.js";
import { formatNumber } from "./model.js";

const PAGE = 50;
const FILTERS = [["", "all"], ["FAILED", "failed"], ["RUNNING", "running"], ["COMPLETED", "ok"], ["PENDING", "pending"]];

export class ChildrenList {
  constructor(host, onClose) {
    this.host = host;
    this.element = make("section", { className: "dag-children" });
    this.element.hidden = true;
    this.title = make("h3", { className: "dag-children-title" });
    const close = make("button", { type: "button", className: "dag-tool" }, "×");
    close.setAttribute("aria-label", "Close the list");
    close.addEventListener("click", () => this.close());
    this.filter = make("select", { className: "dag-children-filter" });
    this.filter.setAttribute("aria-label", "Status of the children");
    for (const [value, text] of FILTERS) this.filter.append(new Option(text, value));
    this.filter.addEventListener("change", () => this.#load(true));
    const head = make("header", { className: "dag-children-head" });
    head.append(this.title, this.filter, close);
    this.items = make("ul", { className: "dag-children-items" });
    this.more = make("button", { type: "button", className: "button dag-children-more" }, "Show more");
    this.more.addEventListener("click", () => this.#load(false));
    this.note = make("p", { className: "dag-children-note" });
    this.note.setAttribute("role", "status");
    this.element.append(head, this.items, this.note, this.more);
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        this.close();
      }
    });
    this.onClose = onClose;
  }

  open(jobId, nodeId) {
    Object.assign(this, { jobId, nodeId });
    this.title.textContent = nodeId;
    this.element.setAttribute("aria-label", `Children of ${nodeId}`);
    this.element.hidden = false;
    this.filter.value = "";
    this.filter.focus();
    return this.#load(true);
  }

  close() {
    if (this.element.hidden) return;
    this.element.hidden = true;
    this.items.replaceChildren();
    this.onClose(this.nodeId);
  }

  async #load(isFirst) {
    if (isFirst) this.cursor = null;
    const asked = (this.asked = {});
    const query = new URLSearchParams({ limit: PAGE });
    if (this.filter.value) query.set("status", this.filter.value);
    if (this.cursor) query.set("cursor", this.cursor);
    const url = `/api/v1/jobs/${encodeURIComponent(this.jobId)}/nodes/${encodeURIComponent(this.nodeId)}/children?${query}`;
    this.note.textContent = "Loading…";
    try {
      const response = await fetch(url);
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      const page = await response.json();
      if (asked !== this.asked) return;
      if (isFirst) this.items.replaceChildren();
      this.items.append(...page.items.map((node) => this.#item(node)));
      this.cursor = page.next_cursor;
      this.more.hidden = !this.cursor;
      const shown = this.items.childElementCount;
      this.note.textContent = shown ? `${formatNumber(shown)} shown` : "None has this status.";
    } catch (error) {
      if (asked === this.asked) this.note.textContent = `The children cannot be shown: ${error.message}. Try again.`;
    }
  }

  #item(node) {
    const button = make("button", { type: "button", className: "dag-child" });
    button.classList.add(`tone-${statusTone(node.status)}`);
    const attempts = node.attempt > 1 ? ` · attempt ${node.attempt}` : "";
    button.append(icon(statusIcon(node.status)), make("span", { className: "dag-child-name" }, node.node_id), make("span", { className: "dag-child-status" }, statusWord(node.status) + attempts));
    const message = node.error?.message;
    if (message) button.append(make("span", { className: "dag-child-error" }, message));
    button.addEventListener("click", () =>
      this.host.dispatchEvent(new CustomEvent("node-open", { bubbles: true, detail: { nodeId: node.node_id } })),
    );
    const item = make("li");
    item.append(button);
    return item;
  }
}

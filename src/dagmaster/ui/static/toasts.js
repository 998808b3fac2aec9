/** Short messages at the corner of the window. Bad news stay until they are closed. */

import { icon, make } from "./dom.js";

const SECONDS = 6;

/** Show a message. `tone`: ok, warning or failed. */
export function showToast(text, tone = "ok") {
  const close = make("button", { className: "button button-quiet button-icon", type: "button", ariaLabel: "Close" }, icon("close"));
  const mark = icon(tone === "ok" ? "check" : "alert");
  const toast = make("div", { className: `toast tone-${tone}`, role: tone === "ok" ? "status" : "alert" }, mark, make("span", {}, text), close);
  close.addEventListener("click", () => toast.remove());
  if (tone === "ok") setTimeout(() => toast.remove(), SECONDS * 1000);
  document.querySelector("[data-toasts]").append(toast);
  return toast;
}

/** Dialogs: a page of the server that asks for a confirmation, shown above the page it belongs to. */

import { make } from "./dom.js";
import { fetchFragment } from "./fragments.js";

/** Show the content of a page in a dialog. */
export async function openDialog(url) {
  const body = make("div", { className: "modal-body" });
  const dialog = showModal(body, "Confirm");
  body.append(make("div", { className: "skeleton panel-body" }));
  try {
    const content = await fetchFragment(url);
    body.replaceChildren(...document.adoptNode(content).childNodes);
  } catch {
    location.assign(url);
    return dialog;
  }
  dialog.ariaLabel = body.querySelector("h1")?.textContent ?? "Confirm";
  body.querySelector("[autofocus]")?.focus();
  return dialog;
}

/** Show elements in a modal dialog, which is removed when it is closed. */
export function showModal(body, label) {
  const dialog = make("dialog", { className: "modal", ariaLabel: label }, body);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) {
      event.preventDefault();
      dialog.close();
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

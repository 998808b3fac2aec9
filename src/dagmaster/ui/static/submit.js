/** The page that submits jobs: a choice is applied at once, and a form is sent once. It touches its two forms. */

for (const form of document.querySelectorAll("[data-auto-submit]")) {
  form.querySelectorAll("[data-needs-no-script]").forEach((button) => (button.hidden = true));
  form.addEventListener("change", ({ target }) => {
    // Another workflow has other versions.
    if (target.name === "workflow_id") form.querySelector("[name=version]")?.remove();
    form.requestSubmit();
  });
}

for (const form of document.querySelectorAll("[data-submit]")) {
  form.addEventListener("submit", () => setTimeout(() => form.querySelectorAll("button").forEach((button) => (button.disabled = true))));
  addEventListener("pageshow", () => form.querySelectorAll("button").forEach((button) => (button.disabled = false)));
}

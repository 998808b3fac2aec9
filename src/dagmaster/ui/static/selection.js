/** The list of jobs: selects rows to change several at once, and filters as soon as a choice is made. */

document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-select-all]")) {
    for (const box of boxes()) box.checked = target.checked;
  }
  if (target.matches("[data-select-all], [name=job_id]")) countSelected();
  if (target.form?.matches("[data-filters]") && target.matches("[type=checkbox], select")) target.form.requestSubmit();
});
document.addEventListener("page-refreshed", countSelected);
countSelected();

function boxes() {
  return document.querySelectorAll("input[name=job_id][form=bulk]");
}

function countSelected() {
  const count = [...boxes()].filter((box) => box.checked).length;
  const note = document.querySelector("[data-selected]");
  if (!note) return;
  note.textContent = count ? `${count} selected` : "Select jobs to change several at once.";
  for (const button of document.querySelectorAll("[data-bulk] button")) button.disabled = count === 0;
}

/**
 * Takes the key of the address: `#key=dm_…`, as `dagmaster dev` prints it. The fragment never reaches a server.
 * It logs in by itself in mode dev only: elsewhere a link on another site could log a visitor in with its own key.
 */

const key = new URLSearchParams(location.hash.slice(1)).get("key");
const form = document.querySelector("[data-login]");
if (key && form) {
  // The key leaves the address and the history before anything else happens.
  history.replaceState(null, "", location.pathname + location.search);
  form.elements.key.value = key;
  if (form.dataset.login === "auto") form.submit();
}

/**
 * Takes the code of the address: `#login=dl_…`, as `dagmaster dev` prints it. The fragment never reaches a server, and the
 * code works once.
 * It logs in by itself in mode dev only: elsewhere a link on another site could log a visitor in with a code of its owner.
 */

const code = new URLSearchParams(location.hash.slice(1)).get("login");
const form = document.querySelector("[data-login]");
if (code && form) {
  // The code leaves the address and the history before anything else happens.
  history.replaceState(null, "", location.pathname + location.search);
  form.elements.key.value = code;
  if (form.dataset.login === "auto") form.submit();
}

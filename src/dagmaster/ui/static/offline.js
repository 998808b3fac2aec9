/** The page that is shown while the server cannot be reached: asks for it, and returns to the page that was opened. */

const SECONDS = 3;

async function check() {
  const isBack = await fetch("/livez", { cache: "no-store" }).then((response) => response.ok, () => false);
  if (isBack) location.reload();
  else setTimeout(check, SECONDS * 1000);
}

check();

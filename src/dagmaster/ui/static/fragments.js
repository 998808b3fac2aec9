/** Fetches parts of pages that the server renders. A key that is no longer accepted leads to the login and back. */

import { parseFragment } from "./dom.js";

/** Return the elements of a page's content, or of one block of its template. Throws if the server cannot be reached. */
export async function fetchFragment(url, block = "content") {
  const response = await fetch(url, { headers: { "X-Fragment": block }, redirect: "error" });
  if (response.status === 401) goToLogin();
  return parseFragment(await response.text());
}

/** Go to the login, which leads back to this page. */
export function goToLogin() {
  location.assign(`/ui/login?next=${encodeURIComponent(location.pathname + location.search)}`);
}

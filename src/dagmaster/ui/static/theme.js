/** Light or dark: the system's choice, or the one of the viewer, kept in a cookie so that the server renders it at once. */

const COOKIE = "dagmaster_theme";

/** Change between light and dark. */
export function toggleTheme() {
  const theme = isDark() ? "light" : "dark";
  const isSystems = theme === (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
  // The same as the system's: follow the system again.
  document.cookie = `${COOKIE}=${isSystems ? "" : theme}; path=/ui; max-age=${isSystems ? 0 : 31536000}; samesite=strict`;
  document.dispatchEvent(new CustomEvent("theme-changed", { detail: { theme } }));
}

/** Call back whenever colours change, by the system, by the viewer or by force, until the signal aborts. */
export function watchColours(callback, signal) {
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) matchMedia(query).addEventListener("change", callback, { signal });
  const observer = new MutationObserver(callback);
  observer.observe(document.documentElement, { attributes: true });
  signal.addEventListener("abort", () => observer.disconnect());
}

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

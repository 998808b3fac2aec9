/** How a status looks: an icon, a word and a tone. The table is statuses.json, which the server also reads. */

import { icon, make } from "./dom.js";
import STATUSES from "./statuses.json" with { type: "json" };

const UNKNOWN = { icon: "circle", tone: "pending" };

function look(status) {
  return STATUSES[status] ?? { ...UNKNOWN, word: String(status).toLowerCase() };
}

/** Return the badge of a status, as the macro status_badge makes it. */
export function statusBadge(status) {
  const { word, icon: name, tone } = look(status);
  return make("span", { className: `status status-${status.toLowerCase()} tone-${tone}` }, icon(name), word);
}

/** Return the word of a status. */
export function statusWord(status) {
  return look(status).word;
}

/** Return the name of an icon of icons.svg. */
export function statusIcon(status) {
  return look(status).icon;
}

/** Return one of the seven tones: ok, running, waiting, failed, skipped, pending, warning. */
export function statusTone(status) {
  return look(status).tone;
}

/** Return the colour of a status as it is now, light or dark: for a canvas, which knows no custom properties. */
export function statusColor(status) {
  return resolveColor(`--${look(status).tone}`);
}

/** Return the background tint of a status as it is now. */
export function statusTint(status) {
  return resolveColor(`--${look(status).tone}-tint`);
}

function resolveColor(property) {
  const probe = make("span", { hidden: true });
  // Forced colours would be one and the same for all; a canvas may have its own.
  probe.style.forcedColorAdjust = "none";
  probe.style.color = `var(${property})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

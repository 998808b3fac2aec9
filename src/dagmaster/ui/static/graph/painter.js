/**
 * Paints a graph on canvases: groups, edges, boxes when they are too small or too many for elements, and the minimap.
 *
 * Gets everything as arguments, and touches only the contexts it is given. Colours come from CSS (`readPalette`).
 */

import { BOX_HEAD } from "./groups.js";
import { ACTIVE, NOT_TAKEN, TONES, isSmall } from "./model.js";

/** The icons of tones, 16 × 16, as lines: a canvas cannot use icons.svg. */
const ICONS = {
  pending: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11",
  waiting: "M6 4v8M10 4v8",
  warning: "M8 3v6M8 12v.5",
  running: "M8 2.5a5.5 5.5 0 1 1-5.2 3.7",
  ok: "M3.5 8.5l3 3l6-6.5",
  failed: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  skipped: "M4 8h8",
};
const PALETTE = ["bg", "surface", "surface-2", "border", "text", "text-muted", "accent", "focus"];
const RADIUS = 8;
const EDGE_TONES = ["edge", "edge", "text-muted", "running", "failed"];
/** Below these scales curves are lines, arrows are left out, names are left out, boxes are plain. */
const CURVES = 0.22;
const ARROWS = 0.35;
const LABELS = 0.55;
const CARD_PIXELS = 11;
/** What has not run stays in the background. */
const QUIET = ["pending", "skipped"];
const BATCH = 16;

/** Return the colours of the page as a canvas takes them: `light-dark()` and variables are resolved by an element. */
export function readPalette(host) {
  const probe = host.ownerDocument.createElement("span");
  probe.hidden = true;
  host.append(probe);
  const style = getComputedStyle(probe);
  const isForced = matchMedia("(forced-colors: active)").matches;
  const read = (value) => {
    probe.style.color = "";
    probe.style.color = value;
    return style.color;
  };
  const palette = {};
  for (const name of PALETTE) palette[name] = read(`var(--${name})`);
  palette.edge = palette.quiet = read("color-mix(in srgb, var(--text-muted) 50%, var(--bg))");
  for (const tone of TONES) {
    palette[tone] = read(`var(--${tone})`);
    palette[`${tone}-tint`] = read(`var(--${tone}-tint, var(--surface))`);
  }
  if (isForced) {
    // Six system colours: the shape and the word of a status say the rest.
    for (const name of Object.keys(palette)) palette[name] = "CanvasText";
    for (const name of ["bg", "surface", "surface-2", ...TONES.map((tone) => `${tone}-tint`)]) palette[name] = "Canvas";
    Object.assign(palette, { edge: "GrayText", quiet: "GrayText", border: "GrayText", pending: "GrayText", skipped: "GrayText", running: "Highlight", accent: "Highlight", focus: "Highlight" });
  }
  palette.font = getComputedStyle(host).fontFamily;
  probe.remove();
  return palette;
}

/** Make a canvas as large as its box in device pixels, and return its context in CSS pixels. */
export function prepare(canvas, width, height) {
  const ratio = Math.min(devicePixelRatio || 1, 3);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Return left, top, right, bottom of every edge, one after the other: what is not seen is not painted. */
export function edgeBounds(model, layout) {
  const bounds = new Float32Array(model.edgeCount * 4);
  for (let e = 0; e < model.edgeCount; e++) {
    const s = model.edges[2 * e];
    const t = model.edges[2 * e + 1];
    const xs = [layout.x[s] + model.widths[s] / 2, layout.x[t] + model.widths[t] / 2];
    for (let i = 0; i < layout.lanes[e].length; i += 3) xs.push(layout.lanes[e][i]);
    bounds.set([Math.min(...xs), layout.y[s], Math.max(...xs), layout.y[t]], e * 4);
  }
  return bounds;
}

/** Paint the edges that are seen; return how many. `path`: the nodes and edges to stress, if any. */
export function paintEdges(context, { model, layout, bounds, palette, view, path }) {
  const groups = EDGE_TONES.map(() => []);
  for (const e of seenEdges(bounds, view.seen(20))) groups[model.edgeStates[e]].push(e);
  enter(context, view);
  groups.forEach((edges, state) => {
    if (!edges.length) return;
    context.strokeStyle = context.fillStyle = palette[EDGE_TONES[state]];
    const width = (state >= ACTIVE ? 1.75 : 1.25) / Math.min(1, Math.max(view.scale, 0.02) * 1.4);
    const plain = edges.filter((e) => !path || path.edges.has(e));
    const dimmed = path ? edges.filter((e) => !path.edges.has(e)) : [];
    context.lineWidth = view.scale < CURVES ? 0.75 / view.scale : width;
    context.globalAlpha = path ? 0.18 : 1;
    stroke(context, dimmed, model, layout, view, state);
    context.globalAlpha = 1;
    if (path) [context.strokeStyle, context.fillStyle, context.lineWidth] = [palette.accent, palette.accent, width * 1.5];
    stroke(context, plain, model, layout, view, state);
  });
  if (view.scale >= LABELS) paintLabels(context, groups.flat(), model, layout, palette);
  leave(context);
  return groups.reduce((sum, edges) => sum + edges.length, 0);
}

/** Paint moving dashes on active edges. Return whether there are any. */
export function paintMotion(context, { model, layout, bounds, palette, view }, now) {
  const active = [];
  for (const e of seenEdges(bounds, view.seen(20))) if (model.edgeStates[e] === ACTIVE) active.push(e);
  if (!active.length || active.length > 200) return false;
  enter(context, view);
  context.strokeStyle = palette.running;
  context.lineWidth = 3;
  context.lineCap = "round";
  context.setLineDash([1, 13]);
  context.lineDashOffset = -(now / 40) % 14;
  context.beginPath();
  for (const e of active) trace(context, e, model, layout, true);
  context.stroke();
  leave(context);
  return true;
}

function* seenEdges(bounds, { left, top, right, bottom }) {
  for (let e = 0, i = 0; i < bounds.length; e++, i += 4) {
    if (bounds[i] <= right && bounds[i + 1] <= bottom && bounds[i + 2] >= left && bounds[i + 3] >= top) yield e;
  }
}

function enter(context, view) {
  context.save();
  context.translate(view.x, view.y);
  context.scale(view.scale, view.scale);
}

function leave(context) {
  context.restore();
}

function stroke(context, edges, model, layout, view, state) {
  if (!edges.length) return;
  const isCurved = view.scale >= CURVES;
  const isDashed = (e) => isCurved && (state === NOT_TAKEN || model.isAlternative[e]);
  for (const dashed of [false, true]) {
    context.setLineDash(dashed ? [5, 5] : []);
    const group = edges.filter((e) => isDashed(e) === dashed);
    // One path of 10,000 crossing lines takes 80 ms to paint, short paths of the same lines take less than half of that.
    for (let begin = 0; begin < group.length; begin += BATCH) {
      context.beginPath();
      for (let i = begin; i < Math.min(begin + BATCH, group.length); i++) trace(context, group[i], model, layout, isCurved);
      context.stroke();
    }
  }
  context.setLineDash([]);
  if (view.scale < ARROWS) return;
  context.beginPath();
  for (const e of edges) {
    const t = model.edges[2 * e + 1];
    const x = layout.x[t] + model.widths[t] / 2;
    const y = layout.y[t];
    context.moveTo(x, y);
    context.lineTo(x - 4, y - 7);
    context.lineTo(x + 4, y - 7);
  }
  context.fill();
}

function trace(context, e, model, layout, isCurved) {
  const s = model.edges[2 * e];
  const t = model.edges[2 * e + 1];
  let x = layout.x[s] + model.widths[s] / 2;
  let y = layout.y[s] + model.heights[s];
  context.moveTo(x, y);
  const to = (nextX, nextY) => {
    const middle = (nextY - y) / 2;
    if (isCurved) context.bezierCurveTo(x, y + middle, nextX, nextY - middle, nextX, nextY);
    else context.lineTo(nextX, nextY);
    [x, y] = [nextX, nextY];
  };
  const lanes = layout.lanes[e];
  for (let i = 0; i < lanes.length; i += 3) {
    to(lanes[i], lanes[i + 1]);
    context.lineTo(x, (y = lanes[i + 2]));
  }
  to(layout.x[t] + model.widths[t] / 2, layout.y[t] - (isCurved ? 5 : 0));
}

function paintLabels(context, edges, model, layout, palette) {
  context.font = `11px ${palette.font}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const e of edges) {
    const text = model.labels[e];
    if (!text) continue;
    const t = model.edges[2 * e + 1];
    const s = model.edges[2 * e];
    const lanes = layout.lanes[e];
    // Above the first layer below the source; a first lane next to the source does not count.
    const k = lanes[1] <= layout.y[s] + model.heights[s] ? 3 : 0;
    const x = k < lanes.length ? lanes[k] : layout.x[t] + model.widths[t] / 2;
    const y = (k < lanes.length ? lanes[k + 1] : layout.y[t]) - 17;
    const width = Math.min(context.measureText(text).width, 140);
    context.fillStyle = palette.bg;
    context.fillRect(x - width / 2 - 4, y - 8, width + 8, 16);
    context.fillStyle = palette["text-muted"];
    context.fillText(text, x, y, 140);
  }
}

/** Paint the boxes around the members of groups: below everything else, the inner ones on the outer ones. */
export function paintGroups(context, { model, layout, palette, view, path }) {
  context.save();
  for (const [i, x, y, w, h] of seenGroups(model, layout, view)) {
    const tone = TONES[model.tones[i]];
    const isDimmed = path && !path.nodes.has(i);
    context.beginPath();
    context.roundRect(x, y, w, h, Math.min(12 * view.scale, w / 2, h / 2));
    context.globalAlpha = isDimmed ? 0.15 : 0.5;
    context.fillStyle = palette[QUIET.includes(tone) ? "surface-2" : `${tone}-tint`];
    context.fill();
    context.globalAlpha = isDimmed ? 0.25 : 0.75;
    context.strokeStyle = palette[QUIET.includes(tone) ? "quiet" : tone];
    context.stroke();
  }
  context.restore();
}

/** Paint the names of groups where they are no elements; over their members where the boxes have no room for them. */
export function paintGroupNames(context, { model, layout, palette, view, path }) {
  const head = BOX_HEAD * view.scale;
  const size = Math.min(13, Math.max(9.5, head * 0.55));
  context.save();
  context.font = `600 ${size}px ${palette.font}`;
  context.textBaseline = "middle";
  for (const [i, x, y, w, h] of seenGroups(model, layout, view)) {
    const isOver = head < size * 1.2;
    if (w < 48 || h < size * (isOver ? 5 : 2.5)) continue;
    const text = shorten(context, model.ids[i], w - size * 1.4);
    const [left, middle] = [x + size * 0.7, y + Math.max(head / 2, size * 0.9)];
    context.globalAlpha = path && !path.nodes.has(i) ? 0.3 : 1;
    if (isOver) {
      context.fillStyle = palette.bg;
      context.fillRect(left - 3, middle - size * 0.7, context.measureText(text).width + 6, size * 1.4);
    }
    context.fillStyle = palette.text;
    context.fillText(text, left, middle);
  }
  context.restore();
}

function* seenGroups(model, layout, view) {
  const { scale } = view;
  for (const i of model.boxes) {
    const [x, y] = [layout.x[i] * scale + view.x, layout.y[i] * scale + view.y];
    const [w, h] = [model.widths[i] * scale, model.heights[i] * scale];
    if (x <= view.width && y <= view.height && x + w >= 0 && y + h >= 0) yield [i, x, y, w, h];
  }
}

/** Paint boxes: cards with names, or plain colour when they are small. */
export function paintBoxes(context, boxes, { model, layout, palette, view, path }) {
  const isCard = view.scale * 48 >= CARD_PIXELS;
  const byTone = TONES.map(() => [[], []]);
  for (const i of boxes) byTone[model.tones[i]][path && !path.nodes.has(i) ? 1 : 0].push(i);
  context.save();
  byTone.forEach((groups, tone) =>
    groups.forEach((group, isDimmed) => {
      if (!group.length) return;
      context.globalAlpha = isDimmed ? 0.25 : 1;
      const name = TONES[tone];
      context.beginPath();
      for (const i of group) outline(context, i, model, layout, view, isCard);
      context.fillStyle = palette[isCard ? `${name}-tint` : QUIET.includes(name) ? "quiet" : name];
      context.fill();
      if (!isCard) return;
      context.strokeStyle = palette[name];
      context.lineWidth = 1;
      context.stroke();
      paintNames(context, group, model, layout, palette, view, name);
    }),
  );
  context.restore();
}

function outline(context, i, model, layout, view, isRound) {
  const { scale } = view;
  const [x, y] = [layout.x[i] * scale + view.x, layout.y[i] * scale + view.y];
  const [w, h] = [Math.max(1, model.widths[i] * scale), Math.max(1, model.heights[i] * scale)];
  if (isRound) context.roundRect(x, y, w, h, isSmall(model.nodes[i]) ? h / 2 : RADIUS * scale);
  else context.rect(x, y, w, h);
}

function paintNames(context, group, model, layout, palette, view, tone) {
  const { scale } = view;
  // Larger than the box is scaled: a name is read before anything else.
  const size = Math.min(13, Math.max(8.5, 20 * scale));
  const icon = new Path2D(ICONS[tone]);
  context.font = `500 ${size}px ${palette.font}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const i of group) {
    const [x, y] = [layout.x[i] * scale + view.x, layout.y[i] * scale + view.y];
    const [w, h] = [model.widths[i] * scale, model.heights[i] * scale];
    if (w < 30) continue;
    // Where a name is too long, its colour has to do without the icon.
    const hasIcon = context.measureText(model.ids[i]).width + size * 2 <= w;
    context.fillStyle = palette.text;
    context.fillText(shorten(context, model.ids[i], w - size * (hasIcon ? 2 : 0.7)), x + size * (hasIcon ? 1.6 : 0.4), y + h / 2);
    if (!hasIcon) continue;
    context.save();
    context.translate(x + size * 0.35, y + h / 2 - size / 2);
    context.scale(size / 16, size / 16);
    context.strokeStyle = palette[tone];
    context.lineWidth = 2;
    context.stroke(icon);
    context.restore();
  }
}

function shorten(context, text, width) {
  const full = context.measureText(text).width;
  return full <= width ? text : `${text.slice(0, Math.max(1, Math.floor((text.length * width) / full) - 1))}…`;
}

/** Paint the whole graph in a small box, with a frame around what is seen. Return the scale. */
export function paintMinimap(context, { model, layout, palette, view }, width, height) {
  const scale = Math.min((width - 8) / Math.max(layout.width, 1), (height - 8) / Math.max(layout.height, 1));
  const left = (width - layout.width * scale) / 2;
  const top = (height - layout.height * scale) / 2;
  context.fillStyle = palette["surface-2"];
  context.strokeStyle = palette.quiet;
  for (const i of model.boxes) {
    context.beginPath();
    context.rect(left + layout.x[i] * scale, top + layout.y[i] * scale, model.widths[i] * scale, model.heights[i] * scale);
    context.fill();
    context.stroke();
  }
  for (let tone = 0; tone < TONES.length; tone++) {
    context.beginPath();
    for (let i = 0; i < model.count; i++) {
      if (model.tones[i] !== tone || model.isBox[i]) continue;
      context.rect(left + layout.x[i] * scale, top + layout.y[i] * scale, Math.max(1.5, model.widths[i] * scale), Math.max(1.5, model.heights[i] * scale));
    }
    context.fillStyle = palette[QUIET.includes(TONES[tone]) ? "quiet" : TONES[tone]];
    context.fill();
  }
  const seen = view.seen();
  context.strokeStyle = palette.accent;
  context.lineWidth = 1.5;
  context.strokeRect(left + seen.left * scale, top + seen.top * scale, (seen.right - seen.left) * scale, (seen.bottom - seen.top) * scale);
  return { scale, left, top };
}

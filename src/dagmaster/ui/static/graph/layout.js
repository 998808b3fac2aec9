/**
 * A layered layout from top to bottom: longest-path layers, six barycentre sweeps, parents centred over their children.
 * A group is a box with its own layout, and in the layout around it a node like any other.
 *
 * Pure: numbers in, numbers out, and the same input always gives the same output. It knows no statuses, so that a graph
 * never moves while a job runs. The module is also the Web Worker that runs it: it touches neither DOM nor network.
 */

import { BOX_HEAD, BOX_PADDING, findDepths, liftEdges } from "./groups.js";

const GAP_X = 28;
const GAP_Y = 44;
const ROW_GAP = 14;
const LANE = 16;
const SWEEPS = 6;
const MIN_ROW = 24;
const MIN_ROW_ALONE = 6;
const UNIT = 340;
const MIN_END = 12;
/** The height of a turn to the border of a box: less than the gap between two layers. */
const TURN = 34;
const ARROW = 8;
const ASPECT = 2.4;
const BOX_WEIGHT = 4;
/** The most lanes of edges that cross several layers. They can grow with the square of a graph. */
const MAX_LANES = 12000;

/**
 * Place boxes. `edges`: source and target of each, one after the other; `parents`: the group that each is in, or -1.
 * Returns left (`x`) and top (`y`) of each box, for an edge that crosses layers its `lanes`: x, top, bottom of each
 * crossing, and the `sizes` of groups: number, width, height of each.
 */
export function layoutGraph({ widths, heights, edges, parents }) {
  if (!parents || parents.every((parent) => parent < 0)) {
    const { x, y, lanes, width, height } = layoutLevel({ widths, heights, edges });
    return { x, y, lanes, width, height, sizes: [] };
  }
  const sized = { widths: widths.slice(), heights: heights.slice() };
  const levels = findLevels(parents, edges);
  const places = new Map();
  for (const level of levels) {
    const place = layoutLevel(pick(level, sized), true);
    places.set(level.box, place);
    if (level.box < 0) continue;
    sized.widths[level.box] = Math.max(widths[level.box], place.width + 2 * BOX_PADDING);
    sized.heights[level.box] = BOX_HEAD + place.height + BOX_PADDING;
  }
  const x = new Float32Array(widths.length);
  const y = new Float32Array(widths.length);
  const lanes = Array.from({ length: edges.length / 2 }, () => ({ points: [], first: -1, last: -1 }));
  // The top and the bottom of the layer that each node is in, and the top and the height of its row.
  const [tops, bottoms, rows, rowHeights] = [0, 1, 2, 3].map(() => new Float32Array(widths.length));
  const membersOf = new Map(levels.map(({ box, nodes }) => [box, nodes]));
  // From the outside in: a level is placed when its box is.
  for (const { box, nodes, pairs, edges: numbers } of levels.reverse()) {
    const place = places.get(box);
    const left = box < 0 ? 0 : Math.round(x[box] + (sized.widths[box] - place.width) / 2);
    const top = box < 0 ? 0 : y[box] + BOX_HEAD;
    nodes.forEach((v, i) => {
      [x[v], y[v], tops[v], bottoms[v]] = [left + place.x[i], top + place.y[i], top + place.tops[i], top + place.bottoms[i]];
      [rows[v], rowHeights[v]] = [top + place.rowTops[i], place.rowHeights[i]];
    });
    numbers.forEach((same, i) => {
      const [u, v] = [pairs[2 * i], pairs[2 * i + 1]];
      const points = place.lanes[i].map((value, k) => value + (k % 3 ? top : left));
      for (const e of same) lanes[e] = { points, first: nodes[u], last: nodes[v] };
    });
  }
  const sizes = levels.filter(({ box }) => box >= 0).flatMap(({ box }) => [box, sized.widths[box], sized.heights[box]]);
  const { width, height } = places.get(-1);
  return { x, y, lanes: lanes.map((lane, e) => withEnds(lane, e)), width, height, sizes };

  function withEnds({ points, first, last }, e) {
    if (first < 0) return points;
    const [s, t] = [edges[2 * e], edges[2 * e + 1]];
    const out = waysOut(s, first, y[s] + sized.heights[s], true);
    const into = waysOut(t, last, y[t] - ARROW, false).reverse();
    return [...out.flat(), ...points, ...into.flatMap(([at, end, begin]) => [at, begin, end])];
  }

  /**
   * Return the ways from a node down, or up, to the end of the layer of `outer`, itself or a box that it is in: x, begin,
   * end of each. They are straight; where members of a box are in the way, the rest is next to them, at its border.
   */
  function waysOut(node, outer, begin, isDown) {
    const ends = isDown ? bottoms : tops;
    const ways = [];
    let at = x[node] + sized.widths[node] / 2;
    let from = begin;
    for (let v = node; v !== outer; v = parents[v]) {
      const end = isDown ? rows[v] + rowHeights[v] : rows[v];
      const beyond = membersOf.get(parents[v]).filter((member) => (isDown ? rows[member] >= end : rows[member] + rowHeights[member] <= end));
      if (!beyond.some((member) => Math.abs(x[member] + sized.widths[member] / 2 - at) < sized.widths[member] / 2 + 4)) continue;
      ways.push([at, from, end]);
      const [left, right] = [x[parents[v]] + BOX_PADDING / 2, x[parents[v]] + sized.widths[parents[v]] - BOX_PADDING / 2];
      at = at - left < right - at ? left : right;
      const gap = Math.min(...beyond.map((member) => (isDown ? rows[member] - end : end - rows[member] - rowHeights[member])));
      from = end + (isDown ? 1 : -1) * Math.min(gap, TURN);
    }
    ways.push([at, from, ends[outer]]);
    return ways.filter(([, start, end], i) => i || Math.abs(end - start) > MIN_END);
  }
}

/** Return what is laid out on its own, inner boxes first, the whole graph (-1) last: nodes, pairs of them, and the edges of each pair. */
function findLevels(parents, edges) {
  const levels = new Map([[-1, { box: -1, nodes: [], pairs: [], edges: [] }]]);
  const place = new Int32Array(parents.length);
  parents.forEach((parent, v) => {
    if (!levels.has(parent)) levels.set(parent, { box: parent, nodes: [], pairs: [], edges: [] });
    place[v] = levels.get(parent).nodes.push(v) - 1;
  });
  const lifted = liftEdges(parents, edges);
  const seen = new Map();
  for (let e = 0; e < edges.length / 2; e++) {
    const [box, u, v] = lifted.subarray(3 * e, 3 * e + 3);
    if (box === -2) continue;
    const level = levels.get(box);
    const key = u * parents.length + v;
    if (!seen.has(key)) {
      seen.set(key, level.edges.push([]) - 1);
      level.pairs.push(place[u], place[v]);
    }
    level.edges[seen.get(key)].push(e);
  }
  const depths = findDepths(parents);
  return [...levels.values()].sort((a, b) => (depths[b.box] ?? -1) - (depths[a.box] ?? -1));
}

function pick({ nodes, pairs }, { widths, heights }) {
  return { widths: Float32Array.from(nodes, (v) => widths[v]), heights: Float32Array.from(nodes, (v) => heights[v]), edges: pairs };
}

/** Place boxes that are in no group, or in one group. */
function layoutLevel({ widths, heights, edges }, isNested = false) {
  const count = widths.length;
  const layerOf = findLayers(count, edges);
  const graph = addLanes(count, edges, layerOf);
  const layers = order(graph);
  const units = (v) => (v < count ? Math.max(1, widths[v] / UNIT) : 0);
  // Members without edges among them can be a block.
  const perRow = rowLength(layers, units, isNested && !edges.length ? MIN_ROW_ALONE : MIN_ROW);
  const rows = layers.map((layer) => fold(layer, units, perRow));
  const center = placeAcross(graph, layers, rows, widths, count);
  return placeDown(graph, rows, center, widths, heights, count, edges);
}

/** Each node one layer below its lowest parent; a node without parents just above its highest child. */
function findLayers(count, edges) {
  const layer = new Int32Array(count);
  const waiting = new Int32Array(count);
  const children = lists(count, edges, 0, 1);
  for (let e = 1; e < edges.length; e += 2) waiting[edges[e]]++;
  const queue = [];
  const seen = new Uint8Array(count);
  for (let v = 0; v < count; v++) if (!waiting[v]) queue.push(v);
  for (let head = 0, next = 0; queue.length < count || head < queue.length; ) {
    if (head === queue.length) {
      // Only a draft in the editor has a cycle: it is cut at its first node.
      while (seen[next] || !waiting[next]) next++;
      waiting[next] = 0;
      queue.push(next);
    }
    const v = queue[head++];
    seen[v] = 1;
    for (const w of children[v]) {
      if (seen[w] || waiting[w] === 0) continue;
      layer[w] = Math.max(layer[w], layer[v] + 1);
      if (--waiting[w] === 0) queue.push(w);
    }
  }
  const parents = new Uint8Array(count);
  for (let e = 1; e < edges.length; e += 2) parents[edges[e]] = 1;
  for (let v = 0; v < count; v++) {
    if (parents[v] || !children[v].length) continue;
    let highest = Infinity;
    for (const w of children[v]) highest = Math.min(highest, layer[w]);
    layer[v] = Math.max(0, highest - 1);
  }
  return layer;
}

/** Split edges that cross layers into segments between vertices: boxes, and lanes, which are numbered after them. */
function addLanes(count, edges, layerOf) {
  let total = 0;
  for (let e = 0; e < edges.length; e += 2) total += Math.max(0, layerOf[edges[e + 1]] - layerOf[edges[e]] - 1);
  const withLanes = total <= MAX_LANES;
  const layers = Array.from(layerOf);
  const segments = [];
  const lanesOf = new Map();
  for (let e = 0; e < edges.length; e += 2) {
    const target = edges[e + 1];
    let from = edges[e];
    const lanes = [];
    if (withLanes) {
      for (let l = layerOf[from] + 1; l < layerOf[target]; l++) {
        const lane = layers.push(l) - 1;
        segments.push(from, lane);
        lanes.push((from = lane));
      }
    }
    segments.push(from, target);
    if (lanes.length) lanesOf.set(e / 2, lanes);
  }
  return {
    boxCount: count,
    layerOf: layers,
    lanesOf,
    up: lists(layers.length, segments, 1, 0),
    down: lists(layers.length, segments, 0, 1),
  };
}

function lists(count, pairs, from, to) {
  const all = Array.from({ length: count }, () => []);
  for (let e = 0; e < pairs.length; e += 2) all[pairs[e + from]].push(pairs[e + to]);
  return all;
}

/** Order the vertices of each layer so that few edges cross: the best of six sweeps. */
function order(graph) {
  const { layerOf, up, down } = graph;
  const size = layerOf.length;
  const layers = Array.from({ length: Math.max(0, ...layerOf.map((l) => l + 1)) }, () => []);
  const seen = new Uint8Array(size);
  for (let root = 0; root < size; root++) {
    // Depth first, so that what belongs together starts together.
    if (up[root].length && !seen[root]) continue;
    for (const stack = [root]; stack.length; ) {
      const v = stack.pop();
      if (seen[v]) continue;
      seen[v] = 1;
      layers[layerOf[v]].push(v);
      for (let i = down[v].length - 1; i >= 0; i--) stack.push(down[v][i]);
    }
  }
  for (let v = 0; v < size; v++) if (!seen[v]) layers[layerOf[v]].push(v);
  const place = new Float64Array(size);
  const number = (layer) => layer.forEach((v, i) => (place[v] = i));
  layers.forEach(number);
  const key = new Float64Array(size);
  let best = layers.map((layer) => layer.slice());
  let fewest = countCrossings(layers, graph, place);
  for (let sweep = 0; sweep < SWEEPS && fewest; sweep++) {
    const isDown = sweep % 2 === 0;
    const near = isDown ? up : down;
    for (let i = 1; i < layers.length; i++) {
      const layer = layers[isDown ? i : layers.length - 1 - i];
      for (const v of layer) {
        let sum = 0;
        for (const w of near[v]) sum += place[w];
        key[v] = near[v].length ? sum / near[v].length : place[v];
      }
      layer.sort((a, b) => key[a] - key[b] || place[a] - place[b]);
      number(layer);
    }
    const crossings = countCrossings(layers, graph, place);
    if (crossings < fewest) {
      fewest = crossings;
      best = layers.map((layer) => layer.slice());
    }
  }
  return best;
}

/** Count crossings. Crossings of edges between two boxes weigh more than crossings of lanes: they are what one looks at. */
function countCrossings(layers, { down, boxCount }, place) {
  let total = 0;
  for (let l = 0; l + 1 < layers.length; l++) {
    const size = layers[l + 1].length;
    const tree = new Int32Array(size + 1);
    let inserted = 0;
    for (const v of layers[l]) {
      const ends = down[v];
      const weigh = (w) => (v < boxCount && w < boxCount ? BOX_WEIGHT : 1);
      for (const w of ends) {
        let before = 0;
        for (let i = place[w] + 1; i > 0; i -= i & -i) before += tree[i];
        total += (inserted - before) * weigh(w);
      }
      for (const w of ends) {
        for (let i = place[w] + 1; i <= size; i += i & -i) tree[i] += weigh(w);
        inserted += weigh(w);
      }
    }
  }
  return total;
}

/** Return how many boxes a row may have so that the graph is not many times wider than high. A wide box counts as several. */
function rowLength(layers, units, shortest) {
  const sizes = layers.map((layer) => layer.reduce((sum, v) => sum + units(v), 0));
  let length = Math.max(shortest, ...sizes);
  for (; length > shortest; length = Math.ceil(length * 0.9) - 1) {
    const rows = sizes.reduce((sum, size) => sum + Math.ceil(size / length), 0);
    if (length * 200 <= ASPECT * (rows * 62 + layers.length * 30)) break;
  }
  return Math.max(length, shortest);
}

/** A layer of very many boxes becomes several rows, which have no room for lanes. */
function fold(layer, units, perRow) {
  const boxes = layer.filter((v) => units(v));
  const total = boxes.reduce((sum, v) => sum + units(v), 0);
  if (total <= perRow * 1.5) return [layer];
  const size = Math.ceil(total / Math.ceil(total / perRow));
  const rows = [[]];
  let used = 0;
  for (const v of boxes) {
    if (used && used + units(v) > size) {
      rows.push([]);
      used = 0;
    }
    rows.at(-1).push(v);
    used += units(v);
  }
  return rows;
}

/** The centre of each vertex: near its neighbours, in order, without overlap. */
function placeAcross(graph, layers, rows, widths, count) {
  const { up, down } = graph;
  const center = new Float64Array(graph.layerOf.length).fill(NaN);
  const width = (v) => (v < count ? widths[v] : 0);
  const space = (a, b) => (width(a) + width(b)) / 2 + (a < count && b < count ? GAP_X : a < count || b < count ? LANE + 6 : LANE);
  const offsets = rows.map((layerRows) =>
    layerRows.map((row) => {
      const at = new Float64Array(row.length);
      for (let i = 1; i < row.length; i++) at[i] = at[i - 1] + space(row[i - 1], row[i]);
      return at;
    }),
  );
  rows.forEach((layerRows, l) =>
    layerRows.forEach((row, r) => row.forEach((v, i) => (center[v] = offsets[l][r][i] - offsets[l][r][row.length - 1] / 2))),
  );
  // Without a bound a random graph of 50 layers drifts to four times the width of its widest row.
  const half = 0.6 * Math.max(0, ...offsets.map((layerOffsets) => Math.max(...layerOffsets.map((at) => at[at.length - 1] ?? 0))));
  const align = (l, near) => {
    if (rows[l].length > 1) {
      // A block of rows moves as one.
      let sum = 0;
      let members = 0;
      for (const row of rows[l]) {
        for (const v of row) {
          const x = mean(near[v], center, count);
          if (!Number.isNaN(x)) ((sum += x), members++);
        }
      }
      if (!members) return;
      const shift = sum / members;
      rows[l].forEach((row, r) => row.forEach((v, i) => (center[v] = shift + offsets[l][r][i] - offsets[l][r][row.length - 1] / 2)));
      return;
    }
    const row = rows[l][0];
    const at = offsets[l][0];
    // Least squares under an order (pool adjacent violators): blocks of boxes that touch share one shift.
    const blocks = [];
    for (let i = 0; i < row.length; i++) {
      const v = row[i];
      const x = mean(near[v], center, v < count ? count : Infinity);
      const isFree = Number.isNaN(x);
      const weight = isFree ? 0.01 : v < count ? near[v].length : 4;
      let block = { sum: ((isFree ? center[v] : x) - at[i]) * weight, weight, size: 1 };
      while (blocks.length && blocks[blocks.length - 1].sum / blocks[blocks.length - 1].weight >= block.sum / block.weight) {
        const before = blocks.pop();
        block = { sum: before.sum + block.sum, weight: before.weight + block.weight, size: before.size + block.size };
      }
      blocks.push(block);
    }
    let i = 0;
    for (const { sum, weight, size } of blocks) {
      const shift = Math.min(Math.max(sum / weight, -half), half - at[row.length - 1]);
      for (let end = i + size; i < end; i++) center[row[i]] = shift + at[i];
    }
  };
  for (let round = 0; round < 4; round++) {
    for (let l = 1; l < layers.length; l++) align(l, up);
    for (let l = layers.length - 2; l >= 0; l--) align(l, down);
  }
  return center;
}

/** The mean of some centres: of boxes (numbers below `count`); if there are none, of lanes. */
function mean(vertices, center, count) {
  let [boxes, lanes, boxSum, laneSum] = [0, 0, 0, 0];
  for (const v of vertices) {
    if (Number.isNaN(center[v])) continue;
    if (v < count) ((boxSum += center[v]), boxes++);
    else ((laneSum += center[v]), lanes++);
  }
  return boxes ? boxSum / boxes : laneSum / lanes;
}

function placeDown(graph, rows, center, widths, heights, count, edges) {
  const x = new Float32Array(count);
  const y = new Float32Array(count);
  const span = [];
  const [tops, bottoms, rowTops, rowHeights] = [0, 1, 2, 3].map(() => new Float32Array(count));
  let top = 0;
  let left = Infinity;
  let right = -Infinity;
  rows.forEach((layerRows, l) => {
    const begin = top;
    for (const row of layerRows) {
      let tall = 0;
      for (const v of row) if (v < count) tall = Math.max(tall, heights[v]);
      for (const v of row) {
        const half = v < count ? widths[v] / 2 : 0;
        left = Math.min(left, center[v] - half);
        right = Math.max(right, center[v] + half);
        if (v < count) [y[v], rowTops[v], rowHeights[v]] = [Math.round(top + (tall - heights[v]) / 2), top, tall];
      }
      top += tall + ROW_GAP;
    }
    span[l] = [begin, top - ROW_GAP];
    for (const row of layerRows) for (const v of row) if (v < count) [tops[v], bottoms[v]] = span[l];
    top += GAP_Y - ROW_GAP;
  });
  if (!count) left = right = top = 0;
  for (let v = 0; v < count; v++) x[v] = Math.round(center[v] - widths[v] / 2 - left);
  const lanes = [];
  for (let e = 0; e < edges.length / 2; e++) {
    const points = [];
    for (const lane of graph.lanesOf.get(e) ?? []) {
      const l = graph.layerOf[lane];
      if (rows[l].length === 1) points.push(Math.round(center[lane] - left), span[l][0], span[l][1]);
    }
    lanes.push(points);
  }
  return { x, y, lanes, tops, bottoms, rowTops, rowHeights, width: right - left, height: Math.max(0, top - GAP_Y) };
}

if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) {
  self.onmessage = ({ data }) => self.postMessage({ id: data.id, layout: layoutGraph(data.graph) });
}

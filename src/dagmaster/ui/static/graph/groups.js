/**
 * Groups as boxes around their members: which node is inside which box, and which edges are drawn then.
 *
 * Pure: numbers in, numbers out. A box is drawn only if nothing outside of it stands between two of its members; where
 * that is so, the group stays a node like any other.
 */

/** The room between a box and what is in it, and for its name. */
export const BOX_PADDING = 16;
export const BOX_HEAD = 36;
/** More interlocked groups than these are not looked at one by one. */
const MAX_ROUNDS = 16;

/**
 * Return the box that each node is in (`parents`, -1: none), which nodes are boxes (`isBox`), and the drawn edges.
 *
 * `nodes` as the API has them, `links`: {source, target, branches, isAlternative} by number. A member and its group have
 * no edge. What comes before every first member of a box comes before the box: one edge with `isEntry`, not one a member.
 */
export function nestGroups(nodes, index, links) {
  const parents = Int32Array.from(nodes, ({ group }) => (nodes[index.get(group)]?.kind === "group" ? index.get(group) : -1));
  if (parents.every((parent) => parent < 0)) return { parents, isBox: new Uint8Array(nodes.length), edges: links };
  cutCycles(parents);
  const pairs = Int32Array.from(links.flatMap(({ source, target }) => [source, target]));
  for (let round = 0; ; round++) {
    const tangled = findTangled(parents, pairs);
    if (!tangled.length) break;
    for (const box of round < MAX_ROUNDS ? tangled.slice(0, 1) : tangled) dissolve(box, parents);
  }
  const isBox = new Uint8Array(nodes.length);
  for (const parent of parents) if (parent >= 0) isBox[parent] = 1;
  return { parents, isBox, edges: drawnEdges(parents, isBox, links) };
}

/**
 * Return for each edge, three numbers a piece: the box in which it is drawn (-1: the whole graph), and what it connects
 * there, nodes or boxes. An edge between a box and what is inside of it is in no box: -2.
 */
export function liftEdges(parents, edges) {
  const depths = findDepths(parents);
  const lifted = new Int32Array((edges.length / 2) * 3);
  for (let e = 0; e < edges.length / 2; e++) {
    let u = edges[2 * e];
    let v = edges[2 * e + 1];
    while (depths[u] > depths[v]) u = parents[u];
    while (depths[v] > depths[u]) v = parents[v];
    if (u === v) {
      lifted.set([-2, u, v], 3 * e);
      continue;
    }
    while (parents[u] !== parents[v]) [u, v] = [parents[u], parents[v]];
    lifted.set([parents[u], u, v], 3 * e);
  }
  return lifted;
}

export function findDepths(parents) {
  const depths = new Int32Array(parents.length).fill(-1);
  for (let v = 0; v < parents.length; v++) {
    const path = [];
    let p = v;
    for (; p >= 0 && depths[p] < 0; p = parents[p]) path.push(p);
    let depth = p < 0 ? -1 : depths[p];
    while (path.length) depths[path.pop()] = ++depth;
  }
  return depths;
}

/** Only a draft has groups that are inside of each other. */
function cutCycles(parents) {
  for (let v = 0; v < parents.length; v++) {
    const seen = new Set([v]);
    for (let p = v; parents[p] >= 0; p = parents[p]) {
      if (seen.has(parents[p])) parents[p] = -1;
      else seen.add(parents[p]);
      if (parents[p] < 0) break;
    }
  }
}

/** Return the boxes that would have to be above and below something else, those with few members first. */
function findTangled(parents, pairs) {
  const lifted = liftEdges(parents, pairs);
  const isLeft = new Uint8Array(parents.length).fill(1);
  for (const [from, to] of [[1, 2], [2, 1]]) {
    const waiting = new Int32Array(parents.length);
    const next = Array.from(parents, () => []);
    for (let i = 0; i < lifted.length; i += 3) {
      const [u, v] = [lifted[i + from], lifted[i + to]];
      if (lifted[i] === -2 || !isLeft[u] || !isLeft[v]) continue;
      next[u].push(v);
      waiting[v]++;
    }
    const ready = [];
    for (let v = 0; v < parents.length; v++) if (isLeft[v] && !waiting[v]) ready.push(v);
    for (const v of ready) {
      isLeft[v] = 0;
      for (const w of next[v]) if (--waiting[w] === 0) ready.push(w);
    }
  }
  const sizes = new Int32Array(parents.length);
  for (const parent of parents) if (parent >= 0) sizes[parent]++;
  const tangled = [];
  for (let v = 0; v < parents.length; v++) if (isLeft[v] && sizes[v]) tangled.push(v);
  return tangled.sort((a, b) => sizes[a] - sizes[b] || a - b);
}

function dissolve(box, parents) {
  for (let v = 0; v < parents.length; v++) if (parents[v] === box) parents[v] = parents[box];
}

function drawnEdges(parents, isBox, links) {
  const { order, begin, end } = findInside(parents);
  const isInside = (v, box) => begin[v] > begin[box] && begin[v] < end[box];
  const incoming = Array.from(parents, () => []);
  links.forEach((link, e) => incoming[link.target].push(e));
  const isHidden = links.map(({ source, target }) => isBox[target] === 1 && isInside(source, target));
  const entries = [];
  // Outer boxes come first: what is before all of one is not before each box in it.
  for (const box of order) {
    if (!isBox[box]) continue;
    const bySource = new Map();
    let roots = 0;
    for (let k = begin[box] + 1; k < end[box]; k++) {
      const member = order[k];
      if (isBox[member]) continue;
      const isRoot = incoming[member].every((e) => !isInside(links[e].source, box));
      roots += isRoot;
      for (const e of incoming[member]) {
        const link = links[e];
        if (isHidden[e] || isInside(link.source, box)) continue;
        const key = link.branches.length || link.isAlternative ? JSON.stringify([link.source, link.branches, link.isAlternative]) : link.source;
        const entry = bySource.get(key) ?? { link, edges: [], roots: 0 };
        entry.edges.push(e);
        entry.roots += isRoot;
        bySource.set(key, entry);
      }
    }
    for (const { link, edges, roots: covered } of bySource.values()) {
      if (!covered || covered < roots) continue;
      entries.push({ ...link, target: box, isEntry: true });
      for (const e of edges) isHidden[e] = true;
    }
  }
  return [...links.filter((link, e) => !isHidden[e]), ...entries];
}

/** Number nodes so that what is inside a box follows it: from `begin` + 1 to before `end`, as places in `order`. */
function findInside(parents) {
  const children = Array.from(parents, () => []);
  const order = [];
  const begin = new Int32Array(parents.length);
  const end = new Int32Array(parents.length);
  const stack = [];
  for (let v = parents.length - 1; v >= 0; v--) (parents[v] < 0 ? stack : children[parents[v]]).push(v);
  while (stack.length) {
    const v = stack.pop();
    if (v < 0) {
      end[~v] = order.length;
      continue;
    }
    begin[v] = order.push(v) - 1;
    stack.push(~v);
    for (const child of children[v]) stack.push(child);
  }
  return { order, begin, end };
}

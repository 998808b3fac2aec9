/**
 * <job-map src="/api/v1/jobs/7/footprints">: the children of a job's fan-outs on a map, in the colours of their states.
 *
 * Beside the map is a table of the same features: everything that the map does can be done there with a keyboard.
 * Drag pans, the wheel and + - zoom; with Shift (or in the mode Box) a drag selects a box, with Alt (or Lasso) an area.
 * It reads `src` (again after a `job-snapshot` or `job-delta` of its job, see live.js) and `../land.json`, and touches
 * its own children only. It dispatches `node-open` {nodeId} and `nodes-selected` {nodeIds}; the page offers what can be done with them.
 */
import { make } from '../dom.js';
import { statusBadge, statusColor } from '../status.js';

const ROWS = 100;
/** The height of a label of the grid. */
const TEXT = 18;
const REFRESH_MS = 4000;
const MAX_FEATURES = 50000;
// Room for the tools above and the legend below.
const PAD = { x: 24, top: 52, bottom: 64 };
const STEPS = [60, 30, 15, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001];
const ORDER = ['FAILED', 'RUNNING', 'CLAIMED', 'DISPATCHED', 'READY', 'WAITING', 'PENDING', 'CANCELLED', 'SKIPPED', 'COMPLETED'];

/** Return the rings of a geometry as lists of points; a line is also a ring, and a point a ring of one. */
export function ringsOf({ type, coordinates }) {
  if (!Array.isArray(coordinates)) return [];
  switch (type) {
    case 'Point': return [[coordinates]];
    case 'MultiPoint': return coordinates.map((point) => [point]);
    case 'LineString': return [coordinates];
    case 'Polygon': case 'MultiLineString': return type === 'Polygon' ? coordinates.slice(0, 1) : coordinates;
    case 'MultiPolygon': return coordinates.map((polygon) => polygon[0]).filter(Boolean);
    default: return [];
  }
}

/** Return a ring whose longitudes do not jump: one that crosses the antimeridian goes on beyond 180. */
export function unwrap(ring) {
  let offset = 0;
  return ring.map(([x, y], index) => {
    if (index) {
      const step = x - ring[index - 1][0];
      if (step > 180) offset -= 360;
      else if (step < -180) offset += 360;
    }
    return [x + offset, y];
  });
}

/** Return the longitude around which boxes of [west, east] lie closest together. */
export function centerOf(spans) {
  const sorted = spans.map(([west, east]) => { const start = ((west % 360) + 360) % 360; return [start, start + (east - west)]; }).sort((a, b) => a[0] - b[0]);
  if (!sorted.length) return 0;
  let [gap, start, reach] = [-1, 0, sorted[0][1]];
  for (let i = 1; i <= sorted.length; i++) {
    const next = i < sorted.length ? sorted[i][0] : sorted[0][0] + 360;
    if (next - reach > gap) [gap, start] = [next - reach, next];
    if (i < sorted.length) reach = Math.max(reach, sorted[i][1]);
  }
  const end = start + 360 - Math.max(gap, 0);
  const center = (start + end) / 2;
  return ((center + 180) % 360 + 360) % 360 - 180;
}

function isInside(x, y, ring) {
  let inside = false;
  for (let i = 0, j = ring.length - 1; i < ring.length; j = i++) {
    const [[xi, yi], [xj, yj]] = [ring[i], ring[j]];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) inside = !inside;
  }
  return inside;
}

class JobMap extends HTMLElement {
  #features = [];
  #byId = new Map();
  #land = [];
  #selected = new Set();
  #view = { x: 0, y: 0, scale: 2, squeeze: 1 };
  #paths = null;
  #frame = 0;
  #drag = null;
  #hover = null;
  #shown = ROWS;
  #mode = 'pan';
  #filter = '';
  #observer = new ResizeObserver(() => this.#resize());
  #scheme = matchMedia('(prefers-color-scheme: dark)');
  #onScheme = () => this.#repaint();
  #timer = 0;
  #reading = Promise.resolve();
  #onDelta = ({ detail }) => detail.job?.job_id === this.getAttribute('job-id') && this.#refreshSoon();
  // What ended after the footprints were read and before the stream began is in no delta.
  #onSnapshot = ({ detail }) => detail.job_id === this.getAttribute('job-id') && this.#refreshSoon();

  connectedCallback() {
    if (!this.querySelector('canvas')) this.#build();
    this.#observer.observe(this.#canvas.parentElement);
    this.#scheme.addEventListener('change', this.#onScheme);
    document.addEventListener('theme-changed', this.#onScheme);
    document.addEventListener('job-delta', this.#onDelta);
    document.addEventListener('job-snapshot', this.#onSnapshot);
    this.load();
  }

  disconnectedCallback() {
    this.#observer.disconnect();
    this.#scheme.removeEventListener('change', this.#onScheme);
    document.removeEventListener('theme-changed', this.#onScheme);
    document.removeEventListener('job-delta', this.#onDelta);
    document.removeEventListener('job-snapshot', this.#onSnapshot);
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#frame);
    this.#frame = this.#timer = 0;
  }

  get selected() { return [...this.#selected]; }
  /** Return the status of a node as the map shows it. */
  statusOf = (id) => this.#byId.get(id)?.status;
  get #canvas() { return this.querySelector('canvas'); }

  #build() {
    const button = (name, text, label) => make('button', { type: 'button', textContent: text, data: { 'data-do': name, 'aria-label': label, title: label } });
    const modes = [['pan', 'Move'], ['box', 'Box'], ['lasso', 'Lasso']].map(([name, label]) => make('button', { type: 'button', textContent: label, data: { 'data-mode': name, 'aria-pressed': String(name === 'pan') } }));
    const canvas = make('canvas', { data: { role: 'img', 'aria-label': 'Map of footprints; the table next to it has the same content' } });
    const tip = make('div', { className: 'map-tip', hidden: true });
    const tools = make('div', { className: 'map-tools' }, make('span', { className: 'map-modes', data: { role: 'group', 'aria-label': 'What dragging does' } }, ...modes), button('in', '+', 'Zoom in'), button('out', '−', 'Zoom out'), button('fit', 'Fit', 'Show all footprints'));
    const stage = make('div', { className: 'map-stage' }, canvas, tools, tip, make('ul', { className: 'map-legend', data: { 'aria-label': 'States' } }));
    const head = make('thead', {}, make('tr', {}, make('th', { scope: 'col' }, make('input', { type: 'checkbox', className: 'map-all', data: { 'aria-label': 'Select all shown' } })), make('th', { scope: 'col', textContent: 'Node' }), make('th', { scope: 'col', textContent: 'State' }), make('th', { scope: 'col', className: 'number', textContent: 'Attempt' })));
    const side = make('div', { className: 'map-side' },
      make('p', { className: 'map-count', data: { role: 'status' } }),
      make('div', { className: 'map-scroll', tabIndex: 0, data: { role: 'region', 'aria-label': 'Footprints' } }, make('table', {}, head, make('tbody'))),
      make('button', { type: 'button', className: 'map-more', textContent: 'Show more', hidden: true }));
    this.replaceChildren(stage, side);
    canvas.addEventListener('pointerdown', (event) => this.#onDown(event));
    canvas.addEventListener('pointermove', (event) => this.#onMove(event));
    canvas.addEventListener('pointerup', (event) => this.#onUp(event));
    canvas.addEventListener('pointercancel', () => { this.#drag = null; this.#paint(); });
    canvas.addEventListener('pointerleave', () => this.#setHover(null));
    canvas.addEventListener('wheel', (event) => { event.preventDefault(); this.#zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), event.offsetX, event.offsetY); }, { passive: false });
    this.addEventListener('click', (event) => this.#onClick(event));
    this.addEventListener('change', (event) => this.#onChange(event));
    this.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.#selected.size) { event.stopPropagation(); this.#select([]); }
    });
  }

  /** Read all pages of the footprints, after those that are being read, and fit the view to them. */
  load() {
    this.setAttribute('aria-busy', 'true');
    this.#reading = this.#reading.then(() => this.#read());
    return this.#reading;
  }

  async #read() {
    const land = fetch(new URL('../land.json', import.meta.url)).then((response) => response.json()).catch(() => []);
    try {
      const features = [];
      let cursor = null;
      do {
        const url = new URL(this.getAttribute('src'), location.href);
        if (cursor) url.searchParams.set('cursor', cursor);
        const response = await fetch(url, { headers: { Accept: 'application/geo+json' } });
        const body = await response.json();
        if (!response.ok) throw new Error(body.detail || body.title || `the server answered ${response.status}`);
        features.push(...body.features);
        cursor = body.next_cursor;
      } while (cursor && features.length < MAX_FEATURES);
      this.#land = await land;
      this.setFeatures(features);
    } catch (error) {
      this.querySelector('.map-count').textContent = `The footprints cannot be read: ${error.message}`;
    }
    this.removeAttribute('aria-busy');
  }

  /** Read the footprints again: a delta counts the children of a fan-out, and does not name them. */
  #refreshSoon() {
    this.#timer ||= setTimeout(() => {
      // A delta that comes while they are read may be newer than what was read.
      this.#timer = 0;
      this.load();
    }, REFRESH_MS);
  }

  setFeatures(features) {
    const isSame = features.length > 0 && features.length === this.#features.length && features.every(({ id }) => this.#byId.has(id));
    if (isSame) {
      this.setStates(new Map(features.map(({ id, properties }) => [id, properties])));
      return;
    }
    const isFirst = !this.#features.length;
    const parts = features.map(({ id, geometry, properties }) => ({ id, properties, status: properties.status, rings: ringsOf(geometry).map(unwrap).filter((ring) => ring.length) })).filter(({ rings }) => rings.length);
    const spans = parts.flatMap(({ rings }) => rings.map((ring) => { const xs = ring.map(([x]) => x); return [Math.min(...xs), Math.max(...xs)]; }));
    const center = centerOf(spans);
    for (const part of parts) {
      // Each ring goes to the copy of the Earth that is closest to the centre: halves at both sides of 180° meet.
      part.rings = part.rings.map((ring) => {
        const middle = ring.reduce((sum, [x]) => sum + x, 0) / ring.length;
        const offset = -360 * Math.round((middle - center) / 360);
        return ring.map(([x, y]) => [x + offset, y]);
      });
      const points = part.rings.flat();
      const xs = points.map(([x]) => x);
      const ys = points.map(([, y]) => y);
      part.box = [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
    }
    this.#features = parts;
    this.#byId = new Map(parts.map((part) => [part.id, part]));
    this.#selected = new Set([...this.#selected].filter((id) => this.#byId.has(id)));
    this.#paths = null;
    if (isFirst) this.fit();
    else this.#paint();
    this.#drawTable();
  }

  /** Change states: a map or an object of node id to {status} or to a status. */
  setStates(states) {
    let hasChanged = false;
    for (const [id, state] of states instanceof Map ? states : Object.entries(states)) {
      const part = this.#byId.get(id);
      const status = state?.status ?? state;
      if (!part || part.status === status) continue;
      part.status = status;
      if (state?.node_id) part.properties = state;
      hasChanged = true;
    }
    if (!hasChanged) return;
    this.#paths = null;
    this.#paint();
    this.#drawTable();
  }

  fit() {
    const boxes = this.#features.map(({ box }) => box);
    if (!boxes.length) return this.#paint();
    const [west, south, east, north] = [0, 1, 2, 3].map((side) => boxes.reduce((value, box) => (side < 2 ? Math.min : Math.max)(value, box[side]), boxes[0][side]));
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const squeeze = Math.max(Math.cos(((south + north) / 2) * Math.PI / 180), 0.05);
    const scale = Math.min((width - 2 * PAD.x) / Math.max((east - west) * squeeze, 0.001), (height - PAD.top - PAD.bottom) / Math.max(north - south, 0.001), 2e5);
    this.#view = { x: (west + east) / 2, y: (south + north) / 2 - (PAD.bottom - PAD.top) / 2 / Math.max(scale, 1), scale: Math.max(scale, 1), squeeze };
    this.#paint();
  }

  // ── Pixels and degrees ──

  #toDegrees(px, py) {
    const { x, y, scale, squeeze } = this.#view;
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    return [x + (px - width / 2) / scale / squeeze, y - (py - height / 2) / scale];
  }

  #zoom(factor, px = this.#canvas.clientWidth / 2, py = this.#canvas.clientHeight / 2) {
    const before = this.#toDegrees(px, py);
    this.#view.scale = Math.min(Math.max(this.#view.scale * factor, 0.8), 1e6);
    const after = this.#toDegrees(px, py);
    this.#view.x += before[0] - after[0];
    this.#view.y = Math.max(-90, Math.min(90, this.#view.y + before[1] - after[1]));
    this.#paint();
  }

  #featureAt(px, py) {
    const [x, y] = this.#toDegrees(px, py);
    const slack = 6 / this.#view.scale;
    for (let i = this.#features.length - 1; i >= 0; i--) {
      const { box, rings } = this.#features[i];
      if (x < box[0] - slack || x > box[2] + slack || y < box[1] - slack || y > box[3] + slack) continue;
      const isSmall = box[2] - box[0] < slack && box[3] - box[1] < slack;
      if (isSmall || rings.some((ring) => isInside(x, y, ring))) return this.#features[i];
    }
    return null;
  }

  // ── Pointer ──

  #onDown(event) {
    if (event.button) return;
    this.#canvas.setPointerCapture(event.pointerId);
    const mode = event.shiftKey ? 'box' : event.altKey ? 'lasso' : this.#mode;
    this.#drag = { mode, points: [[event.offsetX, event.offsetY]], view: { ...this.#view }, adds: event.ctrlKey || event.metaKey };
  }

  #onMove(event) {
    const { offsetX: px, offsetY: py } = event;
    if (!this.#drag) return this.#setHover(this.#featureAt(px, py), px, py);
    const { mode, points, view } = this.#drag;
    this.#setHover(null);
    points.push([px, py]);
    if (mode === 'pan') {
      this.#view.x = view.x - (px - points[0][0]) / view.scale / view.squeeze;
      this.#view.y = Math.max(-90, Math.min(90, view.y + (py - points[0][1]) / view.scale));
    }
    this.#paint();
  }

  #onUp(event) {
    const drag = this.#drag;
    this.#drag = null;
    if (!drag) return;
    const [[startX, startY]] = drag.points;
    const { offsetX: px, offsetY: py } = event;
    const before = drag.adds ? this.selected : [];
    if (Math.hypot(px - startX, py - startY) < 4) {
      const part = this.#featureAt(px, py);
      if (part && drag.adds) this.#select(this.#selected.has(part.id) ? before.filter((id) => id !== part.id) : [...before, part.id]);
      else if (part && drag.mode === 'pan') this.#open(part.id);
      else this.#select(part ? [...before, part.id] : before);
    } else if (drag.mode !== 'pan') {
      const [[x1, y1], [x2, y2]] = [this.#toDegrees(startX, startY), this.#toDegrees(px, py)];
      const [west, east, south, north] = [Math.min(x1, x2), Math.max(x1, x2), Math.min(y1, y2), Math.max(y1, y2)];
      const ring = drag.points.map((point) => this.#toDegrees(...point));
      const isIn = drag.mode === 'box'
        ? ({ box }) => box[0] <= east && box[2] >= west && box[1] <= north && box[3] >= south
        : ({ box }) => isInside((box[0] + box[2]) / 2, (box[1] + box[3]) / 2, ring);
      this.#select([...before, ...this.#features.filter(isIn).map(({ id }) => id)]);
    }
    this.#paint();
  }

  #setHover(part, px, py) {
    const tip = this.querySelector('.map-tip');
    if (part !== this.#hover) {
      this.#hover = part;
      tip.hidden = !part;
      if (part) tip.replaceChildren(make('strong', { textContent: part.id }), statusBadge(part.status), ...(part.properties.error ? [make('span', { textContent: part.properties.error.slice(0, 200) })] : []));
      this.#canvas.style.cursor = part ? 'pointer' : '';
      this.#paint();
    }
    if (part) {
      tip.style.left = `${Math.min(px + 12, this.#canvas.clientWidth - tip.offsetWidth - 8)}px`;
      tip.style.top = `${py + 16 + tip.offsetHeight > this.#canvas.clientHeight ? py - tip.offsetHeight - 8 : py + 16}px`;
    }
  }

  #onClick(event) {
    const button = event.target.closest('button, a');
    if (!button) return;
    if (button.dataset.mode) {
      this.#mode = button.dataset.mode;
      this.querySelectorAll('[data-mode]').forEach((other) => other.setAttribute('aria-pressed', other === button));
      this.#canvas.style.touchAction = 'none';
    } else if (button.dataset.do === 'fit') this.fit();
    else if (button.dataset.do) this.#zoom(button.dataset.do === 'in' ? 1.6 : 1 / 1.6);
    else if (button.dataset.status !== undefined) {
      this.#filter = this.#filter === button.dataset.status ? '' : button.dataset.status;
      this.#shown = ROWS;
      this.#repaint();
      this.#drawTable();
    } else if (button.classList.contains('map-more')) {
      this.#shown += ROWS * 5;
      this.#drawTable();
    } else if (button.classList.contains('map-open')) {
      event.preventDefault();
      this.#open(button.textContent);
    }
  }

  #onChange({ target }) {
    if (target.classList.contains('map-all')) this.#select(target.checked ? this.#matching().map(({ id }) => id) : []);
    else if (target.classList.contains('map-pick')) this.#select(target.checked ? [...this.#selected, target.value] : this.selected.filter((id) => id !== target.value));
  }

  #open(nodeId) {
    this.dispatchEvent(new CustomEvent('node-open', { bubbles: true, detail: { nodeId } }));
  }

  #select(ids) {
    this.#selected = new Set(ids);
    this.#paint();
    this.#markTable();
    this.dispatchEvent(new CustomEvent('nodes-selected', { bubbles: true, detail: { nodeIds: this.selected } }));
  }

  // ── Table ──

  #matching() {
    const rank = ({ status }) => ORDER.indexOf(status);
    return this.#features.filter(({ status }) => !this.#filter || status === this.#filter).sort((a, b) => rank(a) - rank(b));
  }

  #drawTable() {
    const matching = this.#matching();
    const body = this.querySelector('tbody');
    const focused = body.contains(document.activeElement) ? document.activeElement.closest('tr')?.dataset.id : null;
    body.replaceChildren(...matching.slice(0, this.#shown).map((part) => make('tr', { data: { 'data-id': part.id } },
      make('td', {}, make('input', { type: 'checkbox', className: 'map-pick', value: part.id, data: { 'aria-label': `Select ${part.id}` } })),
      make('th', { scope: 'row' }, make('a', { className: 'map-open', href: `?node=${encodeURIComponent(part.id)}`, textContent: part.id })),
      make('td', {}, statusBadge(part.status)),
      make('td', { className: 'number', textContent: part.properties.attempt }))));
    this.querySelector('.map-more').hidden = matching.length <= this.#shown;
    if (focused) body.querySelector(`tr[data-id="${CSS.escape(focused)}"] a`)?.focus();
    const counts = new Map();
    this.#features.forEach(({ status }) => counts.set(status, (counts.get(status) || 0) + 1));
    this.querySelector('.map-legend').replaceChildren(...ORDER.filter((status) => counts.has(status)).map((status) => {
      const button = make('button', { type: 'button', title: `Show ${status.toLowerCase()} alone`, data: { 'data-status': status, 'aria-pressed': String(this.#filter === status) } }, statusBadge(status), ` ${counts.get(status).toLocaleString()}`);
      return make('li', {}, button);
    }));
    this.#markTable();
  }

  #markTable() {
    this.querySelectorAll('.map-pick').forEach((box) => {
      box.checked = this.#selected.has(box.value);
      box.closest('tr').classList.toggle('is-selected', box.checked);
    });
    const total = this.#features.length;
    const all = this.querySelector('.map-all');
    all.checked = total > 0 && this.#selected.size >= this.#matching().length;
    all.indeterminate = this.#selected.size > 0 && !all.checked;
    const noun = `footprint${total === 1 ? '' : 's'}`;
    this.querySelector('.map-count').textContent = this.#selected.size ? `${this.#selected.size.toLocaleString()} of ${total.toLocaleString()} selected` : total ? `${total.toLocaleString()} ${noun}` : 'No footprints yet';
  }

  // ── Canvas ──

  #resize() {
    const canvas = this.#canvas;
    const ratio = devicePixelRatio || 1;
    const isFirst = canvas.width === 300 && canvas.height === 150;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    if (isFirst) this.fit();
    this.#paintNow();
  }

  #repaint() {
    this.#paths = null;
    this.#paint();
  }

  #paint() {
    this.#frame ||= requestAnimationFrame(() => { this.#frame = 0; this.#paintNow(); });
  }

  /** One path a state in degrees, made when states change: a frame transforms and fills a few paths, not 5,000. */
  #makePaths() {
    const resolve = make('i', { hidden: true });
    resolve.style.forcedColorAdjust = 'none';
    this.append(resolve);
    const colorOf = (value) => { resolve.style.color = value; return getComputedStyle(resolve).color; };
    const paths = new Map();
    for (const part of this.#features) {
      const key = part.status;
      if (!paths.has(key)) paths.set(key, { path: new Path2D(), points: [], color: colorOf(statusColor(key)), isDimmed: Boolean(this.#filter && this.#filter !== key) });
      const { path, points } = paths.get(key);
      for (const ring of part.rings) {
        if (ring.length === 1) points.push(ring[0]);
        else trace(path, ring);
      }
    }
    // Failed ones last, on top of the others.
    const states = [...paths].sort((a, b) => ORDER.indexOf(b[0]) - ORDER.indexOf(a[0])).map(([, value]) => value);
    const land = new Path2D();
    for (const ring of this.#land) trace(land, ring);
    const theme = Object.fromEntries(['surface', 'surface-2', 'border', 'text', 'text-muted', 'accent'].map((name) => [name, colorOf(`var(--${name})`)]));
    resolve.remove();
    return { states, land, theme };
  }

  #paintNow() {
    const canvas = this.#canvas;
    if (!canvas?.clientWidth) return;
    const { states, land, theme } = (this.#paths ||= this.#makePaths());
    const context = canvas.getContext('2d');
    const ratio = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = canvas;
    const { x, y, scale, squeeze } = this.#view;
    const sx = scale * squeeze;
    const toEarth = (offset = 0) => context.setTransform(ratio * sx, 0, 0, -ratio * scale, ratio * (width / 2 - (x - offset) * sx), ratio * (height / 2 + y * scale));
    const toPixels = () => context.setTransform(ratio, 0, 0, ratio, 0, 0);
    toPixels();
    context.fillStyle = theme['surface-2'];
    context.fillRect(0, 0, width, height);
    const line = (path, style, pixels) => { context.strokeStyle = style; context.lineWidth = pixels / scale; context.stroke(path); };
    const half = width / 2 / sx;
    // The copies of the Earth that are in view: the map goes on beyond 180°.
    const turns = [];
    for (let turn = Math.ceil((x - half - 180) / 360); turn <= Math.floor((x + half + 180) / 360); turn++) turns.push(turn);
    for (const turn of turns) {
      toEarth(turn * 360);
      context.fillStyle = theme.surface;
      context.fill(land);
    }
    toPixels();
    const labels = this.#paintGrid(context, theme, width, height);
    // Outlines of small tiles would cover their colour.
    const outline = Math.min(0.9, Math.max(0.15, this.#tilePixels(scale) / 20));
    for (const { path, points, color, isDimmed } of states) {
      toEarth();
      context.globalAlpha = isDimmed ? 0.08 : 0.55;
      context.fillStyle = color;
      context.fill(path);
      context.globalAlpha = isDimmed ? 0.15 : outline;
      line(path, color, 1);
      context.globalAlpha = isDimmed ? 0.2 : 1;
      toPixels();
      context.beginPath();
      for (const [px, py] of points) {
        const [cx, cy] = [width / 2 + (px - x) * sx, height / 2 - (py - y) * scale];
        context.moveTo(cx + 4, cy);
        context.arc(cx, cy, 4, 0, 7);
      }
      context.fill();
    }
    context.globalAlpha = 0.5;
    for (const turn of turns) {
      toEarth(turn * 360);
      line(land, theme['text-muted'], 1);
    }
    context.globalAlpha = 1;
    const marked = new Path2D();
    for (const id of this.#selected) this.#byId.get(id)?.rings.forEach((ring) => trace(marked, ring));
    this.#hover?.rings.forEach((ring) => trace(marked, ring));
    toEarth();
    line(marked, theme.text, 2);
    toPixels();
    paintLabels(context, labels, theme);
    this.#paintDrag(context, theme);
  }

  #tilePixels(scale) {
    const [first] = this.#features;
    return first ? (first.box[3] - first.box[1]) * scale : 0;
  }

  /** Paint the lines of degrees; return their labels: text, x, y of each. They do not overlap, nor are they below the tools. */
  #paintGrid(context, theme, width, height) {
    const [[west, north], [east, south]] = [this.#toDegrees(0, 0), this.#toDegrees(width, height)];
    const step = STEPS.find((size) => (east - west) / size >= 4) ?? STEPS.at(-1);
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    const { x, y, scale, squeeze } = this.#view;
    context.strokeStyle = theme.border;
    context.globalAlpha = 0.6;
    context.lineWidth = 1;
    context.font = '11px system-ui, sans-serif';
    context.beginPath();
    const labels = [];
    const room = context.measureText(`${'8'.repeat(digits + 3)}.°W`).width + 8;
    let free = room;
    for (let degree = Math.ceil(west / step) * step; degree <= east; degree += step) {
      const px = Math.round(width / 2 + (degree - x) * scale * squeeze) + 0.5;
      context.moveTo(px, 0);
      context.lineTo(px, height);
      const named = ((degree + 180) % 360 + 360) % 360 - 180;
      // The corner belongs to the first degree of latitude.
      if (px < free || px + room > width) continue;
      free = px + room;
      labels.push([`${Math.abs(named).toFixed(digits)}°${named % 180 === 0 ? '' : named < 0 ? 'W' : 'E'}`, px + 4, height - 6]);
    }
    for (let degree = Math.ceil(Math.max(south, -90) / step) * step; degree <= Math.min(north, 90); degree += step) {
      const py = Math.round(height / 2 - (degree - y) * scale) + 0.5;
      context.moveTo(0, py);
      context.lineTo(width, py);
      if (py - TEXT < PAD.top - 8 || height - py < TEXT) continue;
      labels.push([`${Math.abs(degree).toFixed(digits)}°${degree === 0 ? '' : degree < 0 ? 'S' : 'N'}`, 6, py - 4]);
    }
    context.stroke();
    context.globalAlpha = 1;
    return labels;
  }

  #paintDrag(context, theme) {
    if (!this.#drag || this.#drag.mode === 'pan' || this.#drag.points.length < 2) return;
    const { mode, points } = this.#drag;
    const path = new Path2D();
    if (mode === 'box') path.rect(...points[0], points.at(-1)[0] - points[0][0], points.at(-1)[1] - points[0][1]);
    else trace(path, points);
    context.globalAlpha = 0.15;
    context.fillStyle = theme.accent;
    context.fill(path);
    context.globalAlpha = 1;
    context.strokeStyle = theme.accent;
    context.lineWidth = 1.5;
    context.setLineDash([5, 4]);
    context.stroke(path);
    context.setLineDash([]);
  }
}

/** Write the degrees over the tiles, each with a seam that separates it from their colours. */
function paintLabels(context, labels, theme) {
  context.lineWidth = 3;
  context.lineJoin = 'round';
  context.strokeStyle = theme['surface-2'];
  context.fillStyle = theme.text;
  for (const [text, px, py] of labels) {
    context.strokeText(text, px, py);
    context.fillText(text, px, py);
  }
}

function trace(path, ring) {
  ring.forEach(([x, y], index) => (index ? path.lineTo(x, y) : path.moveTo(x, y)));
  path.closePath();
}

customElements.define('job-map', JobMap);

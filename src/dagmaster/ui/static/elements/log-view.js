/**
 * <log-view src="/api/v1/jobs/7/logs?node_id=a&attempt=1" follow>: the log of a job or of one of its nodes.
 *
 * It shows the end of what was written, reads further pages when the reader scrolls, and follows what comes. A window
 * of pages is kept, not the log. Search and levels are asked of the server (`…/logs/lines`). What comes is on the
 * connection of the tab (live.js): `job-log`.
 * It touches its own children and, when a reader picks a line, the fragment of the address. Text becomes text nodes.
 */
import { make } from '../dom.js';
import { followLog, unfollowLog } from '../live.js';

const WINDOW_LINES = 6000;
const PAGE_LINES = 600;
// One may have thousands of lines, or one: the next request is sized by it.
const FIRST_CHUNKS = 1;
const BLOCK_LINES = 150;
const LINE_PIXELS = 20;
const EDGE_PIXELS = 1200;
// A search ends two seconds ago; the clock of an answer has no fractions of a second, and need not be the database's.
const SEARCH_OVERLAP_MS = 5000;
const LEVELS = ['DEBUG', 'INFO', 'WARNING', 'ERROR', 'CRITICAL'];
const RECORD = new RegExp(`^(${LEVELS.join('|')})\\b`);
const ESCAPE = /\x1b(?:\[([0-9;:]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])|[\x00-\x08\x0b-\x1f\x7f]/g;

/** Split a line into parts with the classes and colours of its ANSI escapes; other control characters are dropped. */
export function parseAnsi(line) {
  const text = line.includes('\r') ? line.replace(/\r+$/, '').split('\r').pop() : line;
  const parts = [];
  let style = { classes: new Set(), color: '', background: '' };
  let start = 0;
  const add = (end) => {
    if (end > start) parts.push({ text: text.slice(start, end), classes: [...style.classes], color: style.color, background: style.background });
  };
  for (const match of text.matchAll(ESCAPE)) {
    add(match.index);
    start = match.index + match[0].length;
    if (match[2] === 'm') style = applyCodes(style, match[1]);
  }
  add(text.length);
  return parts;
}

const NAMES = { 1: 'bold', 2: 'dim', 3: 'italic', 4: 'underline', 7: 'inverse', 9: 'strike' };
const ENDS = { 22: ['bold', 'dim'], 23: ['italic'], 24: ['underline'], 27: ['inverse'], 29: ['strike'] };

function applyCodes(before, text) {
  let style = { ...before, classes: new Set(before.classes) };
  const drop = (prefix) => style.classes.forEach((name) => name.startsWith(prefix) && style.classes.delete(name));
  const codes = text.split(/[;:]/).map(Number);
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i];
    if (code === 0) style = { classes: new Set(), color: '', background: '' };
    else if (NAMES[code]) style.classes.add(`ansi-${NAMES[code]}`);
    else if (ENDS[code]) ENDS[code].forEach((name) => style.classes.delete(`ansi-${name}`));
    else if (code === 38 || code === 48) {
      const [color, used] = extended(codes, i + 1);
      drop(code === 38 ? 'ansi-fg' : 'ansi-bg');
      style[code === 38 ? 'color' : 'background'] = color;
      i += used;
    } else if ((code >= 30 && code <= 39) || (code >= 90 && code <= 97)) {
      drop('ansi-fg');
      style.color = '';
      if (code !== 39) style.classes.add(`ansi-fg${code % 10 + (code >= 90 ? 8 : 0)}`);
    } else if ((code >= 40 && code <= 49) || (code >= 100 && code <= 107)) {
      drop('ansi-bg');
      style.background = '';
      if (code !== 49) style.classes.add(`ansi-bg${code % 10 + (code >= 100 ? 8 : 0)}`);
    }
  }
  return style;
}

/** Return the colour after 38 or 48, and how many codes it took. */
function extended(codes, at) {
  if (codes[at] === 2) return [rgb(codes.slice(at + 1, at + 4)), 4];
  const n = codes[at + 1] || 0;
  if (n >= 232) return [rgb(Array(3).fill(8 + (n - 232) * 10)), 2];
  const level = (part) => (part ? 55 + part * 40 : 0);
  if (n >= 16) return [rgb([Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6].map(level)), 2];
  return [`var(--ansi-${n})`, 2];
}

const rgb = (parts) => `rgb(${parts.map((part) => Math.min(255, part || 0)).join(' ')})`;

/** Return a function from a line to the level of the record that it belongs to, as the server decides it. */
function levelReader() {
  let level = '';
  let inTraceback = false;
  return (line) => {
    const own = RECORD.exec(line);
    if (own) [level, inTraceback] = [own[1], false];
    else if (/^(Traceback \(most|During handling of the above|The above exception was)/.test(line)) inTraceback = true;
    else if (line && !/^[ \t]/.test(line)) {
      const of = inTraceback ? level : '';
      [level, inTraceback] = [of, false];
      return of;
    }
    return level;
  };
}

class LogView extends HTMLElement {
  #pages = [];
  #seen = new Set();
  #isReceiving = false;
  #searchedAt = 0;
  // The last chunk that came, and the newest lines that a search found.
  #lastCursor = '';
  #foundLines = new Set();
  #isLoading = false;
  #isFollowing = false;
  #generation = 0;
  #chunks = FIRST_CHUNKS;
  #unread = 0;
  #lastTop = 0;
  #isAtStart = false;
  #isAtEnd = false;
  #failure = '';
  // The last rows of attempts that may go on, for a filter of what comes.
  #openRows = new Map();
  #position = () => this.#streamPosition();
  #onLog = ({ detail }) => this.#isReceiving && this.#receive(detail);
  #onState = ({ detail }) => detail.state === 'closed' && this.#onClosed(detail.reason);
  #onHash = () => this.#openLink();
  // Wherever the focus is: the browser would search what is drawn. Pressed again it does.
  #onFind = (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== 'f' || event.target === this.#search || document.querySelector('dialog:modal')) return;
    event.preventDefault();
    this.#search.select();
    this.#search.focus();
  };
  // Blocks have their true height only once they are drawn.
  #heights = new ResizeObserver(() => this.#isFollowing && this.#stickToEnd());

  connectedCallback() {
    if (!this.#lines) this.#build();
    document.addEventListener('job-log', this.#onLog);
    document.addEventListener('live-state', this.#onState);
    addEventListener('hashchange', this.#onHash);
    document.addEventListener('keydown', this.#onFind);
    if (!this.#openLink()) this.#restart();
  }

  disconnectedCallback() {
    this.#generation++;
    this.#disconnect();
    document.removeEventListener('job-log', this.#onLog);
    document.removeEventListener('live-state', this.#onState);
    removeEventListener('hashchange', this.#onHash);
    document.removeEventListener('keydown', this.#onFind);
    this.#heights.disconnect();
  }

  get #lines() { return this.querySelector('.log-lines'); }
  get #search() { return this.querySelector('.log-search'); }
  get #level() { return this.querySelector('.log-level').value; }
  get #hasFilter() { return Boolean(this.#search.value || this.#level); }

  #build() {
    const download = this.#url('/text', {});
    this.toggleAttribute('one-node', download.searchParams.getAll('node_id').length === 1);
    const toggle = (name, label, on) => make('button', { type: 'button', className: `log-${name}`, textContent: label, data: { 'aria-pressed': String(on) } });
    const levels = [['', 'All levels'], ...LEVELS.slice(1).map((name) => [name.toLowerCase(), name[0] + name.slice(1).toLowerCase() + (name === 'CRITICAL' ? '' : ' and above')])];
    const bar = make('div', { className: 'log-bar' },
      make('input', { type: 'search', className: 'log-search', placeholder: 'Search this log', data: { 'aria-label': 'Search this log', 'aria-keyshortcuts': 'Control+F', maxlength: 500 } }),
      make('select', { className: 'log-level', data: { 'aria-label': 'Level' } }, ...levels.map(([value, text]) => make('option', { value, textContent: text }))),
      toggle('wrap', 'Wrap', false), toggle('times', 'Times', true), toggle('follow', 'Follow', false),
      make('button', { type: 'button', className: 'log-top', textContent: 'Start' }),
      make('a', { className: 'log-download', href: download.href, textContent: 'Download', download: '' }),
      make('span', { className: 'log-state', data: { role: 'status' } }));
    const lines = make('div', { className: 'log-lines', tabIndex: 0, data: { role: 'region', 'aria-label': 'Log' } });
    this.replaceChildren(bar, lines, make('button', { type: 'button', className: 'log-new', hidden: true }));
    let timer;
    const refine = (delay) => { clearTimeout(timer); timer = setTimeout(() => this.#restart(), delay); };
    this.#search.addEventListener('input', () => refine(200));
    this.querySelector('.log-level').addEventListener('change', () => refine(0));
    lines.addEventListener('scroll', () => this.#onScroll(), { passive: true });
    this.addEventListener('keydown', (event) => this.#onKey(event));
    this.addEventListener('click', (event) => this.#onClick(event));
  }

  #onKey(event) {
    if (event.key === 'Escape' && event.target === this.#search && this.#search.value) {
      event.preventDefault();
      this.#search.value = '';
      this.#restart();
      this.#lines.focus();
    } else if (event.key === 'f' && event.target === this.#lines && !event.altKey) {
      event.stopPropagation();
      this.#setFollowing(!this.#isFollowing);
    } else if (event.target === this.#lines && event.key === 'End') this.#toEnd();
    else if (event.target === this.#lines && event.key === 'Home') this.#toStart();
  }

  #onClick(event) {
    const button = event.target.closest('button, a');
    if (!button) return;
    const name = button.className.replace('log-', '');
    if (name === 'wrap' || name === 'times') {
      const on = button.getAttribute('aria-pressed') !== 'true';
      button.setAttribute('aria-pressed', on);
      this.toggleAttribute(name === 'wrap' ? 'wrapped' : 'timeless', name === 'wrap' ? on : !on);
      if (this.#isFollowing) this.#stickToEnd();
    } else if (name === 'follow') this.#setFollowing(!this.#isFollowing);
    else if (name === 'new') this.#toEnd();
    else if (name === 'top') this.#toStart();
    else if (name === 'time') {
      event.preventDefault();
      this.#pick(button.closest('.log-line'));
    }
  }

  #setFollowing(on) {
    this.#setPressed(on);
    if (on) this.#toEnd();
  }

  #setPressed(on) {
    this.#isFollowing = on;
    this.querySelector('.log-follow').setAttribute('aria-pressed', on);
  }

  #toEnd() {
    this.#setPressed(true);
    if (this.#isAtEnd) this.#stickToEnd();
    else this.#restart();
  }

  async #toStart() {
    this.#setPressed(false);
    if (!this.#isAtStart) await this.#begin({ forward: true });
    this.#lines.scrollTop = 0;
  }

  async #restart() {
    this.#setPressed(true);
    await this.#begin({ forward: false });
    this.#stickToEnd();
    this.#connect();
  }

  /** Forget the window, and read its first page. */
  async #begin(where) {
    this.#isReceiving = false;
    this.#generation++;
    this.#isLoading = false;
    this.#chunks = FIRST_CHUNKS;
    this.#pages = [];
    this.#isAtStart = this.#isAtEnd = false;
    this.#lastCursor = '';
    this.#seen.clear();
    this.#foundLines.clear();
    this.#openRows.clear();
    this.#setUnread(0);
    this.#lines.replaceChildren();
    this.setAttribute('aria-busy', 'true');
    await this.#load(where);
    const isAll = () => (where.forward ? this.#isAtEnd : this.#isAtStart);
    if (this.#count() < PAGE_LINES / 2 && !isAll() && !this.#failure) await this.#load({ forward: where.forward });
    this.removeAttribute('aria-busy');
    if (!this.#isAtEnd) this.#disconnect();
  }

  #describe() {
    const state = this.querySelector('.log-state');
    const count = this.#count();
    const isAll = this.#isAtStart && this.#isAtEnd;
    const isLive = this.#isReceiving;
    let text = isLive ? 'Live' : '';
    if (this.#failure) text = this.#failure;
    else if (!count) text = this.#hasFilter ? 'No line matches' : isLive ? 'Waiting for the first line' : 'Nothing was written';
    else if (this.#hasFilter) text = `${count.toLocaleString()}${isAll ? '' : '+'} matching line${count === 1 ? '' : 's'}`;
    if (state.textContent !== text) state.textContent = text;
    state.classList.toggle('is-live', isLive && !this.#failure);
    state.classList.toggle('is-failed', Boolean(this.#failure));
  }

  #count() {
    return this.#pages.reduce((sum, page) => sum + page.count, 0);
  }

  /** Read a page: forward or back from the window's edge, or from a time. */
  async #load({ forward, since }) {
    if (this.#isLoading) return;
    this.#isLoading = true;
    const generation = this.#generation;
    const filtered = this.#hasFilter && !since;
    const isFirst = !this.#pages.length;
    const url = this.#url(filtered ? '/lines' : '', {
      contains: filtered ? this.#search.value : '',
      level: filtered ? this.#level : '',
      newest_first: forward ? '' : 'true',
      since,
      cursor: forward ? this.#pages.at(-1)?.last : this.#pages[0]?.first,
      limit: filtered ? PAGE_LINES / 2 : this.#chunks,
    });
    try {
      const response = await fetch(url, { headers: { Accept: 'application/json' } });
      const body = await response.json();
      if (generation !== this.#generation) return;
      if (!response.ok) throw new Error(body.detail || body.title || `the server answered ${response.status}`);
      this.#failure = '';
      const items = forward ? body.items : body.items.reverse();
      if (isFirst) [this.#isAtStart, this.#isAtEnd] = [forward && !since, !forward];
      if (filtered && (isFirst || forward)) {
        this.#searchedAt = (Date.parse(response.headers.get('Date')) || Date.now()) - SEARCH_OVERLAP_MS;
        items.forEach((item) => this.#foundLines.add(`${item.chunk} ${item.line}`));
      }
      if (body.next_cursor === null) {
        if (forward) this.#isAtEnd = true;
        else this.#isAtStart = true;
      }
      this.#addPage(items, forward, filtered);
    } catch (error) {
      if (generation === this.#generation) this.#failure = `The log cannot be read: ${error.message}`;
    } finally {
      if (generation === this.#generation) this.#isLoading = false;
      this.#describe();
    }
  }

  #url(suffix, params) {
    const url = new URL(this.getAttribute('src'), location.href);
    // Searches and files belong to the job: `…/jobs/7/nodes/a/logs` is `…/jobs/7/logs?node_id=a`.
    const [, job, node] = /^(.*\/jobs\/[^/]+)\/nodes\/(.+)\/logs$/.exec(url.pathname) || [];
    if (node) {
      url.pathname = `${job}/logs`;
      url.searchParams.set('node_id', decodeURIComponent(node));
    }
    url.pathname += suffix;
    Object.entries(params).forEach(([name, value]) => value && url.searchParams.set(name, value));
    return url;
  }

  #addPage(items, forward, filtered) {
    if (!items.length) return;
    const rows = filtered ? items.map(rowOfLine) : rowsOfChunks(items);
    // Chunks differ: a page may ask for four times as many as the one before, no more.
    if (!filtered) this.#chunks = Math.min(Math.max(Math.ceil((PAGE_LINES * items.length) / rows.length), 1), this.#chunks * 4, 1000);
    items.forEach((item) => this.#seen.add(item.cursor));
    const page = this.#makePage(items[0].cursor, items.at(-1).cursor);
    if (!filtered) this.#joinLines(rows, forward);
    this.#draw(page, rows);
    page.openRow = !filtered && rows.at(-1)?.isOpen ? rows.at(-1) : null;
    if (forward) {
      this.#pages.push(page);
      this.#lines.append(page.element);
    } else {
      const [anchor] = this.#pages;
      this.#pages.unshift(page);
      this.#keepPlace(anchor?.element, () => this.#lines.prepend(page.element));
    }
    this.#trim(forward);
  }

  /** Join the halves of a line that is split between a new page and the window. */
  #joinLines(rows, forward) {
    const kept = forward ? this.#pages.at(-1)?.openRow : this.#pages[0]?.element.querySelector('.log-line')?.row;
    const other = forward ? rows[0] : rows.at(-1);
    if (!kept || kept.key !== other.key || !(forward || other.isOpen)) return;
    if (forward) {
      kept.text += rows.shift().text;
      kept.isOpen = other.isOpen;
    } else kept.text = rows.pop().text + kept.text;
    kept.element.replaceWith((kept.element = drawRow(kept)));
  }

  #makePage(first, last) {
    const element = make('div', { className: 'log-page' });
    this.#heights.observe(element);
    return { element, count: 0, first, last, openRow: null };
  }

  /** Append rows to a page, in blocks that the browser skips while they are off the screen. */
  #draw(page, rows) {
    for (const row of rows) {
      let block = page.element.lastElementChild;
      if (!block || block.childElementCount >= BLOCK_LINES) {
        block = make('div', { className: 'log-block' });
        page.element.append(block);
      }
      row.element = drawRow(row);
      block.append(row.element);
    }
    for (const block of page.element.children) block.style.containIntrinsicBlockSize = `${block.childElementCount * LINE_PIXELS}px`;
    page.count += rows.length;
  }

  /** Change what is above, and keep what is on the screen where it is. */
  #keepPlace(anchor, change) {
    const before = anchor?.getBoundingClientRect().top;
    change();
    if (anchor) this.#lines.scrollTop += anchor.getBoundingClientRect().top - before;
  }

  /** Drop pages at the other side when the window is full. */
  #trim(forward) {
    while (this.#count() > WINDOW_LINES && this.#pages.length > 2) {
      if (forward) {
        const page = this.#pages.shift();
        this.#isAtStart = false;
        this.#keepPlace(this.#pages[0].element, () => page.element.remove());
      } else {
        this.#pages.pop().element.remove();
        this.#isAtEnd = false;
        this.#disconnect();
      }
    }
  }

  async #onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.#lines;
    const below = scrollHeight - scrollTop - clientHeight;
    if (this.#isFollowing && below > 4 * LINE_PIXELS && scrollTop < this.#lastTop) this.#setPressed(false);
    this.#lastTop = scrollTop;
    if (below < 2 * LINE_PIXELS) this.#setUnread(0);
    if (this.#isLoading || !this.#pages.length) return;
    if (scrollTop < EDGE_PIXELS && !this.#isAtStart) await this.#load({ forward: false });
    else if (below < EDGE_PIXELS && !this.#isAtEnd) {
      await this.#load({ forward: true });
      if (this.#isAtEnd) this.#connect();
    }
  }

  // ── Follow ──

  #connect() {
    if (this.#isReceiving || !this.hasAttribute('follow') || !this.#isAtEnd || !this.isConnected) return;
    this.#isReceiving = true;
    followLog(/\/jobs\/([^/]+)\/logs$/.exec(this.#url('', {}).pathname)[1], this.#position);
    this.#describe();
  }

  #disconnect() {
    this.#isReceiving = false;
    unfollowLog(this.#position);
  }

  /** Return the parameters of the stream: whose log, and after which chunk or time. */
  #streamPosition() {
    const own = this.#url('', {}).searchParams;
    const cursor = this.#lastCursor || (this.#hasFilter ? '' : this.#pages.at(-1)?.last);
    const since = this.#hasFilter && !cursor ? new Date(this.#searchedAt).toISOString() : '';
    return { log_node_id: own.getAll('node_id'), log_attempt: own.get('attempt'), log_cursor: cursor, log_since: since };
  }

  #onClosed(reason) {
    if (!this.#isReceiving) return;
    this.#isReceiving = false;
    if (reason === 'finished') this.removeAttribute('follow');
    this.#describe();
  }

  #receive(chunk) {
    this.#lastCursor = chunk.cursor;
    if (this.#seen.has(chunk.cursor)) return;
    this.#seen.add(chunk.cursor);
    // A stream that resumes sends the last seconds again, no more.
    if (this.#seen.size > 5000) this.#seen = new Set([...this.#seen].slice(-2500));
    let rows = rowsOfChunks([chunk]);
    if (this.#hasFilter) {
      const needle = this.#search.value.toLowerCase();
      const least = this.#level ? LEVELS.indexOf(this.#level.toUpperCase()) : -1;
      rows = this.#joinOpen(rows).filter((row) => !this.#foundLines.has(`${row.chunk} ${row.line}`) && row.text.toLowerCase().includes(needle) && LEVELS.indexOf(row.level) >= least);
    }
    const shown = rows.filter((row) => row.element);
    shown.forEach((row) => row.element.replaceWith((row.element = drawRow(row))));
    rows = rows.filter((row) => !row.element);
    if (!rows.length) return;
    const page = this.#pages.at(-1);
    const open = page?.openRow;
    if (open && !this.#hasFilter && open.node_id === chunk.node_id && open.attempt === chunk.attempt) {
      // The chunk before ended within a line, which goes on.
      const [rest] = rows.splice(0, 1);
      open.text += rest.text;
      open.isOpen = rest.isOpen;
      open.element.replaceWith((open.element = drawRow(open)));
    }
    if (!page || page.count >= PAGE_LINES) {
      const added = this.#makePage(chunk.cursor, chunk.cursor);
      this.#pages.push(added);
      this.#lines.append(added.element);
    }
    const last = this.#pages.at(-1);
    this.#draw(last, rows);
    last.last = chunk.cursor;
    last.openRow = rows.at(-1)?.isOpen ? rows.at(-1) : open?.isOpen && !rows.length ? open : null;
    this.#trim(true);
    if (this.#isFollowing) this.#stickToEnd();
    else this.#setUnread(this.#unread + rows.length);
    this.#describe();
  }

  /** Let the first row be the line that the chunk before of its attempt ended within. */
  #joinOpen(rows) {
    const open = this.#openRows.get(rows[0].key);
    if (open) {
      open.text += rows[0].text;
      open.isOpen = rows[0].isOpen;
      rows[0] = open;
    }
    const last = rows.at(-1);
    if (last.isOpen) this.#openRows.set(last.key, last);
    else this.#openRows.delete(last.key);
    return rows;
  }

  #stickToEnd() {
    this.#lines.scrollTop = this.#lines.scrollHeight;
    this.#lastTop = this.#lines.scrollTop;
    this.#setUnread(0);
  }

  #setUnread(count) {
    this.#unread = count;
    const button = this.querySelector('.log-new');
    button.hidden = !count;
    button.textContent = `${count.toLocaleString()} new line${count === 1 ? '' : 's'} ↓`;
  }

  // ── Links to a line: #L12@2026-11-17T17:46:01.5Z is the 12th line of what was written at that time ──

  async #pick(element) {
    const row = element.row;
    if (this.#hasFilter) {
      this.#search.value = '';
      this.querySelector('.log-level').value = '';
      await this.#reveal(row.at, (other) => other.chunk === row.chunk && other.line === row.line);
      return;
    }
    const rows = this.#rowsAt(row.at);
    history.replaceState(history.state, '', `#L${rows.indexOf(row) + 1}@${row.at}`);
    this.#mark(element);
  }

  #openLink() {
    const match = /^#L(\d+)@([\dTZ:.+-]+)$/.exec(decodeURIComponent(location.hash));
    if (!match) return false;
    const number = Number(match[1]);
    this.#reveal(match[2], (row, index) => index === number - 1);
    return true;
  }

  async #reveal(at, isSearched) {
    this.#setPressed(false);
    // From a little before: a time may have more digits than its text.
    await this.#begin({ forward: true, since: new Date(Date.parse(at) - 1).toISOString() });
    while (!this.#rowsAt(at).some(isSearched) && this.#lastRow()?.at <= at && !this.#isAtEnd && !this.#failure) await this.#load({ forward: true });
    const rows = this.#rowsAt(at);
    const row = rows.find(isSearched) ?? rows[0];
    if (!this.#isAtStart) await this.#load({ forward: false });
    this.#connect();
    if (!row) return;
    this.#mark(row.element);
    row.element.scrollIntoView({ block: 'center' });
    history.replaceState(history.state, '', `#L${rows.indexOf(row) + 1}@${at}`);
    this.#lines.focus({ preventScroll: true });
  }

  #lastRow() {
    return this.#pages.at(-1)?.element.lastElementChild?.lastElementChild?.row;
  }

  #rowsAt(at) {
    return [...this.querySelectorAll('.log-line')].map((element) => element.row).filter((row) => row.at === at);
  }

  #mark(element) {
    this.querySelector('.log-line[aria-current]')?.removeAttribute('aria-current');
    element.setAttribute('aria-current', 'location');
  }
}

function rowOfLine(line) {
  return { ...line, level: (line.level || '').toUpperCase() };
}

/** Split chunks into rows. A line goes on in the next chunk if that is of the same attempt. */
function rowsOfChunks(chunks) {
  const rows = [];
  const readers = new Map();
  for (const { node_id, attempt, at, text, cursor } of chunks) {
    const key = `${attempt} ${node_id}`;
    if (!readers.has(key)) readers.set(key, levelReader());
    const parts = text.split('\n');
    const isOpen = parts.at(-1) !== '';
    if (!isOpen) parts.pop();
    const before = rows.at(-1);
    parts.forEach((part, index) => {
      if (!index && before?.isOpen && before.key === key) {
        before.text += part;
        before.isOpen = isOpen && parts.length === 1;
        return;
      }
      const level = readers.get(key)(part);
      rows.push({ node_id, attempt, at, text: part, level, key, chunk: cursor, line: index + 1, isOpen: isOpen && index === parts.length - 1 });
    });
  }
  return rows;
}

const TIME = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3, hourCycle: 'h23' });

function drawRow(row) {
  const text = make('span', { className: 'log-text' });
  for (const part of parseAnsi(row.text)) {
    const span = part.classes.length || part.color || part.background ? make('span', { className: part.classes.join(' '), textContent: part.text }) : part.text;
    if (part.color) span.style.color = part.color;
    if (part.background) span.style.backgroundColor = part.background;
    text.append(span);
  }
  const time = make('a', { className: 'log-time', href: `#L1@${row.at}`, textContent: TIME.format(new Date(row.at)), title: `${row.at} · link to this line`, tabIndex: -1 });
  const node = make('span', { className: 'log-node', textContent: row.attempt > 1 ? `${row.node_id} (${row.attempt})` : row.node_id });
  const element = make('div', { className: 'log-line' }, time, node, text);
  if (row.level) element.dataset.level = row.level.toLowerCase();
  element.row = row;
  return element;
}

customElements.define('log-view', LogView);

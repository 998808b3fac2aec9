/**
 * <code-editor language="yaml|json" completions="/ui/…json"><textarea></textarea></code-editor>
 *
 * The textarea stays the form field, and keeps caret, selection, undo and input methods. Around it are drawn: line
 * numbers, colours, problems at their lines, completions. Only lines on the screen are drawn, so that thousands are
 * quick. Tab indents; after Escape it leaves the editor.
 *
 * Properties: `value`, `problems` ([{line, column, message, hint, severity}]), `completions`
 * ([{label, kind: key|handler|expression|value, detail, after}]: `after` names the key whose values they are).
 * It dispatches `edited` when the text has changed. It touches its own children, and reads `completions`.
 */
import { make } from '../dom.js';

const EXTRA = 4;
const SHOWN_COMPLETIONS = 50;

// Alternatives in order: the first that matches at a place wins. Names become classes `code-…`.
const YAML = [
  ['comment', /(?<=^|\s)#.*/y],
  ['expression', /\{\{.*?(?:\}\}|$)/y],
  ['key', /(?:"(?:[^"\\]|\\.)*"|'[^']*'|[\w$][\w .$/-]*?)(?=\s*:(?:\s|$))/y],
  ['string', /"(?:[^"\\{]|\\.|\{(?!\{))*"?|'(?:[^'{]|\{(?!\{))*'?/y],
  ['number', /-?\b\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?=\s*(?:[,\]}#]|$))/y],
  ['word', /\b(?:true|false|null)\b|~/y],
  ['mark', /^---|^\.\.\.|[-?:](?=\s|$)|[[\]{},]|[|>][+-]?(?=\s*$)/y],
];
const JSON_TOKENS = [
  ['expression', /\{\{.*?(?:\}\}|$)/y],
  ['key', /"(?:[^"\\]|\\.)*"(?=\s*:)/y],
  ['string', /"(?:[^"\\{]|\\.|\{(?!\{))*"?/y],
  ['number', /-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y],
  ['word', /\b(?:true|false|null)\b/y],
  ['mark', /[[\]{},:]/y],
];

/** Split a line into [class, text]; the class is empty for plain text. */
export function tokens(line, language) {
  const rules = language === 'json' ? JSON_TOKENS : YAML;
  const parts = [];
  let plain = 0;
  let at = 0;
  while (at < line.length) {
    let end = at + 1;
    let name = '';
    for (const [kind, pattern] of rules) {
      pattern.lastIndex = at;
      const match = pattern.exec(line);
      if (match?.[0]) {
        [name, end] = [kind, at + match[0].length];
        break;
      }
    }
    if (name) {
      if (plain < at) parts.push(['', line.slice(plain, at)]);
      parts.push([name, line.slice(at, end)]);
      plain = end;
    } else while (end < line.length && /\w/.test(line[end]) && /\w/.test(line[at])) end++;
    at = end;
  }
  if (plain < line.length) parts.push(['', line.slice(plain)]);
  return parts;
}

/** Return what can be completed at the end of a text: its kind, the key it belongs to, and the part that is typed. */
export function contextOf(before) {
  const line = before.slice(before.lastIndexOf('\n') + 1);
  const open = line.lastIndexOf('{{');
  if (open >= 0 && line.indexOf('}}', open) < 0) return { kind: 'expression', typed: /[\w.]*$/.exec(line)[0] };
  const value = /^\s*(?:- )?["']?([\w.-]+)["']?:\s+\[?(?:[^\s,]+,\s*)*["']?([\w./-]*)$/.exec(line);
  if (value) return { kind: value[1] === 'handler' ? 'handler' : 'value', after: value[1], typed: value[2] };
  const key = /^\s*(?:- )?["']?([\w-]*)$/.exec(line);
  return key ? { kind: 'key', typed: key[1] } : null;
}

class CodeEditor extends HTMLElement {
  #lines = [''];
  #problems = [];
  #completions = [];
  #options = [];
  #chosen = 0;
  #isLeaving = false;
  #frame = 0;
  #lineHeight = 20;
  #observer = new ResizeObserver(() => this.#paint());
  #onSelection = () => document.activeElement === this.#area && this.#paint();

  connectedCallback() {
    if (!this.querySelector('.code-gutter')) this.#build();
    this.#observer.observe(this.#area);
    document.addEventListener('selectionchange', this.#onSelection);
    const source = this.getAttribute('completions');
    if (source) fetch(source).then((response) => (response.ok ? response.json() : { items: [] })).then(({ items }) => (this.#completions = items)).catch(() => {});
    const problems = this.getAttribute('problems');
    if (problems) this.problems = JSON.parse(problems);
    this.#read();
  }

  disconnectedCallback() {
    this.#observer.disconnect();
    document.removeEventListener('selectionchange', this.#onSelection);
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
  }

  get value() { return this.#area.value; }
  set value(text) {
    if (text === this.#area.value) return;
    // As typed, so that it can be undone.
    this.#replace(0, this.#area.value.length, text);
  }

  get problems() { return this.#problems; }
  set problems(problems) {
    this.#problems = [...problems].sort((a, b) => a.line - b.line);
    const isWrong = problems.some(({ severity }) => severity !== 'warning');
    this.#area.toggleAttribute('aria-invalid', isWrong);
    if (isWrong) this.#area.setAttribute('aria-invalid', 'true');
    this.#drawProblems();
    this.#paint();
  }

  set completions(items) { this.#completions = items; }

  get #area() { return this.querySelector('textarea'); }
  get #list() { return this.querySelector('.code-options'); }
  get #language() { return this.getAttribute('language') || 'yaml'; }

  goTo(line, column = 1) {
    const start = this.#lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    const at = Math.min(start + column - 1, this.#area.value.length);
    this.#area.focus();
    this.#area.setSelectionRange(at, at);
    this.#area.scrollLeft = 0;
    this.reveal(line);
  }

  /** Show a line, and leave the focus where it is. */
  reveal(line) {
    this.#area.scrollTop = Math.max(0, (line - 1) * this.#lineHeight - this.#area.clientHeight / 3);
    this.#paint();
  }

  #build() {
    const area = this.#area;
    const id = area.id || `code-${Math.random().toString(36).slice(2)}`;
    Object.assign(area, { id, wrap: 'off', spellcheck: false, autocapitalize: 'off', autocomplete: 'off' });
    const stage = make('div', { className: 'code-stage' });
    area.replaceWith(stage);
    stage.append(make('div', { className: 'code-gutter', data: { 'aria-hidden': 'true' } }, make('div')), make('div', { className: 'code-paint', data: { 'aria-hidden': 'true' } }, make('div')), area,
      make('ul', { className: 'code-options', id: `${id}-options`, hidden: true, data: { role: 'listbox', 'aria-label': 'Completions' } }));
    this.append(make('p', { className: 'code-hint', id: `${id}-hint`, textContent: 'Tab indents; Escape, then Tab leaves. Ctrl-Space completes.' }),
      make('ol', { className: 'code-problems', id: `${id}-problems`, data: { 'aria-live': 'polite', 'aria-label': 'Problems' } }));
    area.setAttribute('aria-describedby', [area.getAttribute('aria-describedby'), `${id}-hint`, `${id}-problems`].filter(Boolean).join(' '));
    area.setAttribute('aria-autocomplete', 'list');
    area.addEventListener('input', (event) => { this.#read(); this.#offer(event.inputType === 'insertText'); this.dispatchEvent(new CustomEvent('edited', { bubbles: true })); });
    area.addEventListener('scroll', () => { this.#paint(); this.#close(); }, { passive: true });
    area.addEventListener('keydown', (event) => this.#onKey(event));
    area.addEventListener('blur', () => { this.#isLeaving = false; setTimeout(() => this.#close(), 150); });
    area.addEventListener('click', () => this.#close());
    area.form?.addEventListener('reset', () => setTimeout(() => this.#read()));
    this.#list.addEventListener('pointerdown', (event) => {
      event.preventDefault();
      const index = [...this.#list.children].indexOf(event.target.closest('li'));
      if (index >= 0) this.#accept(this.#options[index]);
    });
    this.addEventListener('click', (event) => {
      const place = event.target.closest('.code-problems button');
      if (place) this.goTo(Number(place.dataset.line), Number(place.dataset.column) || 1);
    });
  }

  #read() {
    this.#lines = this.#area.value.split('\n');
    this.#paint();
  }

  /** Replace a range as if it was typed: the browser can undo it. */
  #replace(start, end, text) {
    const area = this.#area;
    const focused = document.activeElement;
    area.focus();
    area.setSelectionRange(start, end);
    const isDone = text ? document.execCommand('insertText', false, text) : start === end || document.execCommand('delete');
    if (!isDone) {
      area.setRangeText(text, start, end, 'end');
      area.dispatchEvent(new InputEvent('input', { bubbles: true, inputType: 'insertReplacementText' }));
    }
    if (focused && focused !== area && focused !== document.body) focused.focus();
  }

  // ── Keys ──

  #onKey(event) {
    const { key } = event;
    if (!this.#list.hidden) {
      if (key === 'ArrowDown' || key === 'ArrowUp') {
        event.preventDefault();
        this.#choose((this.#chosen + (key === 'ArrowDown' ? 1 : -1) + this.#options.length) % this.#options.length);
        return;
      }
      if (key === 'Enter' || key === 'Tab') {
        event.preventDefault();
        this.#accept(this.#options[this.#chosen]);
        return;
      }
      if (key === 'Escape') {
        event.preventDefault();
        event.stopPropagation();
        this.#close();
        return;
      }
    }
    if (key === 'Escape') {
      this.#isLeaving = true;
      return;
    }
    if (key === 'Tab' && !this.#isLeaving && !event.ctrlKey && !event.altKey) {
      event.preventDefault();
      this.#indent(event.shiftKey);
    } else if (key === ' ' && event.ctrlKey) {
      event.preventDefault();
      this.#offer(true, true);
    } else if (key === 'Enter' && !event.isComposing && !event.ctrlKey && !event.metaKey) {
      const before = this.#area.value.slice(0, this.#area.selectionStart);
      const line = before.slice(before.lastIndexOf('\n') + 1);
      const deeper = this.#language === 'yaml' ? /:\s*$|^\s*-\s*$/ : /[[{]\s*$/;
      const space = /^\s*/.exec(line)[0] + (deeper.test(line) ? '  ' : '');
      if (space) {
        event.preventDefault();
        this.#replace(this.#area.selectionStart, this.#area.selectionEnd, `\n${space}`);
      }
    }
    if (key !== 'Tab' && key !== 'Shift') this.#isLeaving = false;
  }

  #indent(isBack) {
    const { value, selectionStart: start, selectionEnd: end } = this.#area;
    if (start === end && !isBack) return this.#replace(start, end, '  ');
    const first = value.lastIndexOf('\n', start - 1) + 1;
    const text = value.slice(first, end);
    const changed = isBack ? text.replace(/^ {1,2}/gm, '') : text.replace(/^(?=.)/gm, '  ');
    if (changed === text) return;
    this.#replace(first, end, changed);
    const shift = changed.length - text.length;
    if (start === end) this.#area.setSelectionRange(Math.max(first, start + shift), Math.max(first, start + shift));
    else this.#area.setSelectionRange(first, end + shift);
  }

  // ── Completions ──

  #offer(isTyped, isAsked = false) {
    const { value, selectionStart: caret, selectionEnd } = this.#area;
    const context = isTyped && caret === selectionEnd && this.#completions.length ? contextOf(value.slice(0, caret)) : null;
    if (!context || (!isAsked && !context.typed && context.kind !== 'handler')) return this.#close();
    const typed = context.typed.toLowerCase();
    const fits = this.#completions.filter((item) => item.kind === context.kind && (!item.after || item.after === context.after) && item.label.toLowerCase().includes(typed) && item.label !== context.typed);
    fits.sort((a, b) => b.label.toLowerCase().startsWith(typed) - a.label.toLowerCase().startsWith(typed));
    this.#options = fits.slice(0, SHOWN_COMPLETIONS).map((item) => ({ ...item, typed: context.typed.length }));
    if (!this.#options.length) return this.#close();
    const list = this.#list;
    list.replaceChildren(...this.#options.map((item, index) => make('li', { id: `${list.id}-${index}`, data: { role: 'option' } }, make('span', { textContent: item.label }), make('small', { textContent: item.detail || '' }))));
    list.hidden = false;
    this.#area.setAttribute('aria-controls', list.id);
    this.#choose(0);
    const row = value.slice(0, caret).split('\n').length;
    const column = caret - value.lastIndexOf('\n', caret - 1) - 1 - context.typed.length;
    const { scrollTop, scrollLeft, clientHeight, clientWidth } = this.#area;
    const top = row * this.#lineHeight - scrollTop + 6;
    list.style.insetInlineStart = `calc(${Math.max(0, Math.min(column * this.#charWidth() - scrollLeft, clientWidth - 260))}px + var(--code-gutter))`;
    list.style.insetBlockStart = `${top + list.offsetHeight > clientHeight && top > list.offsetHeight ? top - this.#lineHeight - list.offsetHeight - 6 : top}px`;
  }

  #charWidth() {
    const context = (this.measure ||= make('canvas').getContext('2d'));
    context.font = getComputedStyle(this.#area).font;
    return context.measureText('0').width;
  }

  #choose(index) {
    this.#chosen = index;
    [...this.#list.children].forEach((item, number) => item.setAttribute('aria-selected', number === index));
    this.#list.children[index].scrollIntoView({ block: 'nearest' });
    this.#area.setAttribute('aria-activedescendant', this.#list.children[index].id);
  }

  #accept(option) {
    const caret = this.#area.selectionStart;
    const suffix = option.kind === 'key' && this.#language === 'yaml' ? ': ' : '';
    this.#replace(caret - option.typed, caret, option.label + suffix);
    this.#close();
  }

  #close() {
    if (this.#list.hidden) return;
    this.#list.hidden = true;
    this.#area.removeAttribute('aria-activedescendant');
    this.#area.removeAttribute('aria-controls');
  }

  // ── Drawing ──

  #drawProblems() {
    this.querySelector('.code-problems').replaceChildren(...this.#problems.map(({ line, column, message, hint, severity, path }) => make('li', { className: `is-${severity || 'error'}` },
      line ? make('button', { type: 'button', textContent: `${line}:${column || 1}`, title: 'Go to this line', data: { 'data-line': line, 'data-column': column || 1 } }) : make('span', { textContent: path || '' }),
      make('span', {}, make('span', { className: 'code-severity', textContent: `${severity || 'error'}: ` }), message, ...(hint ? [make('small', { textContent: hint })] : [])))));
  }

  #paint() {
    this.#frame ||= requestAnimationFrame(() => { this.#frame = 0; this.#paintNow(); });
  }

  #paintNow() {
    const area = this.#area;
    if (!area?.clientHeight) return;
    const style = getComputedStyle(area);
    this.#lineHeight = parseFloat(style.lineHeight) || 20;
    const { scrollTop, scrollLeft, clientHeight, selectionStart } = area;
    const first = Math.max(0, Math.floor(scrollTop / this.#lineHeight) - EXTRA);
    const last = Math.min(this.#lines.length, first + Math.ceil(clientHeight / this.#lineHeight) + 2 * EXTRA);
    const caretLine = document.activeElement === area ? area.value.slice(0, selectionStart).split('\n').length - 1 : -1;
    const worst = new Map();
    for (const problem of this.#problems) if (!worst.has(problem.line - 1) || problem.severity === 'error') worst.set(problem.line - 1, problem);
    const numbers = [];
    const painted = [];
    for (let index = first; index < last; index++) {
      const problem = worst.get(index);
      const mark = `${problem ? ` is-${problem.severity || 'error'}` : ''}${index === caretLine ? ' is-current' : ''}`;
      numbers.push(make('div', { className: `code-number${mark}`, textContent: index + 1, title: problem?.message || '' }));
      const spans = tokens(this.#lines[index], this.#language).map(([name, text]) => (name ? make('span', { className: name === 'number' ? 'code-number-token' : `code-${name}`, textContent: text }) : text));
      if (problem) spans.push(make('span', { className: 'code-message', textContent: problem.message }));
      painted.push(make('div', { className: `code-line${mark}` }, ...spans));
    }
    const [numberBox] = this.querySelector('.code-gutter').children;
    const [paintBox] = this.querySelector('.code-paint').children;
    numberBox.replaceChildren(...numbers);
    paintBox.replaceChildren(...painted);
    const top = first * this.#lineHeight - scrollTop;
    numberBox.style.transform = `translateY(${top}px)`;
    paintBox.style.transform = `translate(${-scrollLeft}px, ${top}px)`;
    this.style.setProperty('--code-gutter', `${String(this.#lines.length).length + 3}ch`);
  }
}

customElements.define('code-editor', CodeEditor);

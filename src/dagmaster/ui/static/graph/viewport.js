/**
 * What is seen of a large plane: scale and offset, moved by wheel, drag, pinch and buttons.
 *
 * Touches one element: it listens to its pointers. It draws nothing, and calls back when the view has changed.
 */

const MAX_SCALE = 2;
const DRAG_PIXELS = 4;
const ANIMATION_MS = 180;

export const allowsMotion = () => !matchMedia("(prefers-reduced-motion: reduce)").matches;

export class Viewport {
  constructor(element, onChange) {
    this.element = element;
    this.onChange = onChange;
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.width = 0;
    this.height = 0;
    this.content = { width: 1, height: 1 };
    /** Whether the pointer moved so far that the click after it does not count. */
    this.hasDragged = false;
    this.isMoving = false;
    this.pointers = new Map();
    element.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    for (const name of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) {
      element.addEventListener(name, (event) => this.#pointer(event));
    }
  }

  get minScale() {
    return Math.min(0.5, this.fitScale() * 0.7);
  }

  fitScale() {
    const { width, height } = this.content;
    return Math.min(1, (this.width - 48) / Math.max(width, 1), (this.height - 48) / Math.max(height, 1));
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
  }

  /** Show everything. */
  fit(isAnimated = false) {
    const scale = Math.max(this.fitScale(), 0.004);
    this.moveTo(scale, (this.width - this.content.width * scale) / 2, Math.max(24, (this.height - this.content.height * scale) / 2), isAnimated);
  }

  /** Zoom by a factor around a point of the element; by default its centre. */
  zoom(factor, px = this.width / 2, py = this.height / 2, isAnimated = false) {
    const scale = Math.min(MAX_SCALE, Math.max(this.minScale, this.scale * factor));
    const ratio = scale / this.scale;
    this.moveTo(scale, px - (px - this.x) * ratio, py - (py - this.y) * ratio, isAnimated);
  }

  pan(dx, dy) {
    this.moveTo(this.scale, this.x + dx, this.y + dy);
  }

  /** Show a point of the plane in the middle, at least at a scale. */
  center(x, y, minScale = 0, isAnimated = false) {
    const scale = Math.max(this.scale, minScale);
    this.moveTo(scale, this.width / 2 - x * scale, this.height / 2 - y * scale, isAnimated);
  }

  /** Return whether a box of the plane is seen completely. */
  shows(x, y, width, height, margin = 8) {
    const left = x * this.scale + this.x;
    const top = y * this.scale + this.y;
    return left >= margin && top >= margin && left + width * this.scale <= this.width - margin && top + height * this.scale <= this.height - margin;
  }

  /** Return the part of the plane that is seen, with a margin in pixels. */
  seen(margin = 0) {
    const { scale, x, y, width, height } = this;
    return { left: (-margin - x) / scale, top: (-margin - y) / scale, right: (width + margin - x) / scale, bottom: (height + margin - y) / scale };
  }

  moveTo(scale, x, y, isAnimated = false) {
    cancelAnimationFrame(this.animation);
    // Some of the content always stays in sight.
    const keep = 60;
    x = Math.min(this.width - keep, Math.max(keep - this.content.width * scale, x));
    y = Math.min(this.height - keep, Math.max(keep - this.content.height * scale, y));
    if (!isAnimated || !allowsMotion()) {
      Object.assign(this, { scale, x, y });
      this.onChange();
      return;
    }
    const from = { scale: this.scale, x: this.x, y: this.y };
    const began = performance.now();
    const step = (now) => {
      const t = Math.min(1, Math.max(0, (now - began) / ANIMATION_MS));
      const eased = 1 - (1 - t) ** 3;
      this.scale = from.scale + (scale - from.scale) * eased;
      this.x = from.x + (x - from.x) * eased;
      this.y = from.y + (y - from.y) * eased;
      this.onChange();
      if (t < 1) this.animation = requestAnimationFrame(step);
    };
    this.animation = requestAnimationFrame(step);
  }

  #wheel(event) {
    event.preventDefault();
    const box = this.element.getBoundingClientRect();
    const lines = event.deltaMode === 1 ? 16 : 1;
    this.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0018)), event.clientX - box.left, event.clientY - box.top);
  }

  #pointer(event) {
    const { pointers } = this;
    const before = pointers.get(event.pointerId);
    if (event.type === "pointerdown") {
      if (event.button) return;
      pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      if (pointers.size === 1) {
        this.hasDragged = false;
        this.began = { x: event.clientX, y: event.clientY };
      }
    } else if (event.type !== "pointermove") {
      pointers.delete(event.pointerId);
      this.isMoving = pointers.size > 0 && this.isMoving;
      this.element.classList.toggle("is-dragging", this.isMoving);
    } else if (before) {
      if (!this.isMoving) {
        if (Math.hypot(event.clientX - this.began.x, event.clientY - this.began.y) < DRAG_PIXELS) return;
        this.isMoving = this.hasDragged = true;
        this.element.setPointerCapture(event.pointerId);
        this.element.classList.add("is-dragging");
      }
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const box = this.element.getBoundingClientRect();
        const distance = (point) => Math.hypot(point.clientX - other.x, point.clientY - other.y) || 1;
        this.zoom(distance(event) / distance({ clientX: before.x, clientY: before.y }), (event.clientX + other.x) / 2 - box.left, (event.clientY + other.y) / 2 - box.top);
      } else {
        this.pan(event.clientX - before.x, event.clientY - before.y);
      }
      Object.assign(before, { x: event.clientX, y: event.clientY });
    }
  }
}

// Lists of any length: only what is near the screen is in the document.

import { h } from "./dom.js";

/** Rows of one height. `more` is called near the end, and returns whether it has added rows. */
export class RowList {
  constructor({ row, height, more, label }) {
    this.items = [];
    this.row = row;
    this.height = height;
    this.more = more;
    this.rows = new Map();
    this.inner = h("div", { class: "rows-inner" });
    this.element = h("div", { class: "rows", role: "list", "aria-label": label }, this.inner);
    this.draw = this.draw.bind(this);
    window.addEventListener("scroll", this.draw, { passive: true });
    window.addEventListener("resize", this.draw, { passive: true });
  }

  close() {
    window.removeEventListener("scroll", this.draw);
    window.removeEventListener("resize", this.draw);
  }

  rowHeight() {
    return this.height();
  }

  /** Replaces rows that have changed; the others stay. */
  set(items) {
    this.items = items;
    for (const [at, row] of this.rows) {
      if (row.item !== items[at]) {
        row.element.remove();
        this.rows.delete(at);
      }
    }
    this.draw();
  }

  draw() {
    const height = this.rowHeight();
    this.inner.style.setProperty("height", `${this.items.length * height}px`);
    const top = -this.element.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / height) - 10);
    const last = Math.min(this.items.length, Math.ceil((top + window.innerHeight) / height) + 10);
    for (const [at, row] of this.rows) {
      if (at < first || at >= last) {
        if (row.element.contains(document.activeElement)) continue;
        row.element.remove();
        this.rows.delete(at);
      }
    }
    for (let at = first; at < last; at += 1) {
      if (this.rows.has(at)) continue;
      const element = h("div", { class: "slot", role: "listitem", "aria-posinset": at + 1, "aria-setsize": -1 }, this.row(this.items[at]));
      element.style.setProperty("top", `${at * height}px`);
      element.style.setProperty("height", `${height}px`);
      const next = [...this.rows.keys()].filter((each) => each > at).sort((a, b) => a - b)[0];
      this.inner.insertBefore(element, next === undefined ? null : this.rows.get(next).element);
      this.rows.set(at, { element, item: this.items[at] });
    }
    if (last > this.items.length - 30) this.more();
  }
}

const CHUNK = 30;

/** Parts of any height, in chunks. A chunk far from the screen is a box of its last height. */
export class PartList {
  constructor(element, estimate, root = null) {
    this.element = element;
    this.estimate = estimate;
    this.parts = [];
    this.chunks = [];
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const chunk = this.chunks[Number(entry.target.dataset.chunk)];
        if (entry.isIntersecting) this.fill(chunk);
        else this.empty(chunk);
      }
    }, { root, rootMargin: "1500px 0px" });
  }

  close() {
    this.observer.disconnect();
  }

  push(part) {
    const at = this.parts.push(part) - 1;
    part.at = at;
    let chunk = this.chunks.at(-1);
    if (!chunk || chunk.end - chunk.start >= CHUNK) {
      chunk = { start: at, end: at, isFull: false, box: h("div", { class: "chunk", "data-chunk": this.chunks.length }) };
      this.chunks.push(chunk);
      this.element.append(chunk.box);
      this.observer.observe(chunk.box);
    }
    chunk.end = at + 1;
    if (chunk.isFull) chunk.box.append(this.make(part));
    else chunk.box.style.setProperty("height", `${(chunk.end - chunk.start) * this.estimate}px`);
  }

  make(part) {
    part.element = part.draw();
    part.element.dataset.seq = part.seq;
    part.element.tabIndex = -1;
    return part.element;
  }

  /** Draws a part anew, if it is in the document. What is folded open in it stays so. */
  refresh(part) {
    const before = part.element;
    if (!before?.isConnected) return;
    const open = [...before.querySelectorAll("details")].map((each) => each.open);
    const hadFocus = before.contains(document.activeElement);
    const element = this.make(part);
    [...element.querySelectorAll("details")].forEach((each, at) => {
      if (open[at] !== undefined) each.open = open[at];
    });
    before.replaceWith(element);
    if (hadFocus) element.focus({ preventScroll: true });
  }

  fill(chunk) {
    if (chunk.isFull) return;
    chunk.isFull = true;
    chunk.box.style.removeProperty("height");
    chunk.box.replaceChildren(...this.parts.slice(chunk.start, chunk.end).map((part) => this.make(part)));
  }

  empty(chunk) {
    if (!chunk.isFull || chunk.box.contains(document.activeElement) || chunk.box.querySelector("details[open]")) return;
    chunk.box.style.setProperty("height", `${chunk.box.offsetHeight}px`);
    chunk.box.replaceChildren();
    chunk.isFull = false;
    for (const part of this.parts.slice(chunk.start, chunk.end)) part.element = null;
  }

  /** Scrolls to the last part that begins at or before a record, and returns it. */
  showRecord(seq) {
    let match = null;
    for (const part of this.parts) if (part.seqs.some((each) => each === seq)) match = part;
    match ??= this.parts.findLast((part) => part.seq <= seq) ?? this.parts[0];
    if (match) this.show(match);
    return match;
  }

  show(part) {
    const chunk = this.chunks.find((each) => part.at < each.end);
    this.fill(chunk);
    part.element.scrollIntoView({ block: "center" });
    part.element.focus({ preventScroll: true });
    for (const each of this.element.querySelectorAll(".flash")) each.classList.remove("flash");
    requestAnimationFrame(() => part.element.classList.add("flash"));
  }
}

// The timeline: turns above, calls in lanes below, in time. Laid out by the server (as `toolspeak show --svg` draws it).

import { h, middleCut, oneLine, seconds, svg } from "./dom.js";

const LANE = 22, BAR = 16, TOP = 34, BOTTOM = 22, MOST_LANES = 14;
const KINDS = { turn: "model turn", cut: "turn that was cut off", reads: "call that reads", writes: "call that changes something",
  wait: "wait", question: "question to a person", outside: "wait for something outside" };

export class Timeline {
  constructor(open) {
    this.open = open;
    this.chart = { seconds: 0, lanes: 1, bars: [], marks: [], records: 0, idle: 0 };
    this.from = 0;
    this.to = 0;
    this.isWhole = true;
    this.selected = -1;
    this.setAt = 0;
    this.isDriven = false;
    this.picture = svg("svg", { "aria-hidden": "true" });
    this.box = h("div", { class: "lanes", tabindex: 0, role: "group", "aria-roledescription": "timeline",
      onkeydown: (event) => this.key(event), onwheel: (event) => this.wheel(event),
      onpointerdown: (event) => this.grab(event) }, this.picture);
    this.info = h("p", { class: "faint info", "aria-live": "polite" });
    const button = (label, text, action) => h("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
    this.element = h("section", { class: "timeline", "aria-label": "Timeline" },
      h("div", { class: "bar-head" }, h("h2", {}, "Timeline"), this.info,
        button("Zoom in", "+", () => this.zoom(0.5)), button("Zoom out", "−", () => this.zoom(2)), button("Show all", "⤢", () => this.whole())),
      this.box,
      h("p", { class: "legend" }, Object.entries(KINDS).map(([kind, words]) => h("span", {}, h("i", { class: kind }), words)), h("span", {}, h("i", { class: "failed" }), "failed")));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.box);
  }

  close() {
    this.observer.disconnect();
  }

  /** `isDriven`: a process drives the run, so what goes on in it grows with the clock, and the axis with it. `isPaused`: the
      clock goes on, the axis does not. */
  set(chart, { isDriven = false, isPaused = false } = {}) {
    this.chart = chart;
    this.setAt = performance.now();
    this.isDriven = isDriven;
    this.isPaused = isPaused;
    if (this.isWhole) [this.from, this.to] = [0, this.length];
    const idle = chart.idle > 1 ? `, and ${seconds(chart.idle)} in which nothing drove it` : "";
    this.box.setAttribute("aria-label", `Timeline of ${chart.bars.length} bars. Arrows move and select, plus and minus zoom, Enter goes to the record.`);
    this.idle = idle;
    this.describeAll();
    this.draw();
  }

  /** Seconds since the chart was made. */
  get age() {
    return (performance.now() - this.setAt) / 1000;
  }

  /** The length of the axis by now. */
  get length() {
    return this.chart.seconds + (this.isDriven ? this.age : 0) || 1;
  }

  endOf(bar) {
    return bar.end + (bar.state === "open" && this.isDriven ? this.age : 0);
  }

  describe(bar) {
    const state = bar.state === "open" ? "goes on" : bar.state === "failed" ? "failed" : "";
    const waited = bar.waited_for?.length ? oneLine(`waited for ${bar.waited_for.join(", ")}`, 120) : "";
    const took = (bar.seconds ?? bar.end - bar.start) + (bar.state === "open" && (this.isDriven || this.isPaused) ? this.age : 0);
    return [KINDS[bar.kind], oneLine(bar.label, 120), oneLine(bar.detail ?? "", 80), waited, seconds(took), state].filter(Boolean).join(" · ");
  }

  describeAll() {
    const bar = this.chart.bars[this.selected];
    this.info.textContent = bar ? this.describe(bar) : `${seconds(this.chart.seconds + (this.isDriven ? this.age : 0))}${this.idle ?? ""}`;
  }

  /** Draws what goes on as long as it is by now. */
  grow() {
    if (!this.isDriven || !this.chart.bars.some((bar) => bar.state === "open")) return;
    if (this.isWhole) [this.from, this.to] = [0, this.length];
    this.draw();
  }

  whole() {
    this.isWhole = true;
    [this.from, this.to] = [0, this.length];
    this.draw();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    const total = this.length;
    const span = Math.min(total, Math.max(total / 50000, (this.to - this.from) * factor));
    const part = (at - this.from) / (this.to - this.from);
    this.move(at - span * part, span);
  }

  move(from, span = this.to - this.from) {
    const total = this.length;
    this.from = Math.min(Math.max(0, from), Math.max(0, total - span));
    this.to = this.from + span;
    this.isWhole = span >= total;
    this.draw();
  }

  wheel(event) {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const place = event.clientX - this.box.getBoundingClientRect().left;
    const at = this.from + (place / this.box.clientWidth) * (this.to - this.from);
    if (event.ctrlKey) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, at);
    else this.move(this.from + (event.deltaY / 500) * (this.to - this.from));
  }

  grab(event) {
    if (event.button !== 0) return;
    const { clientX, pointerId } = event;
    const from = this.from;
    let isDrag = false;
    const move = (next) => {
      if (Math.abs(next.clientX - clientX) < 4 && !isDrag) return;
      isDrag = true;
      this.box.setPointerCapture(pointerId);
      this.move(from - ((next.clientX - clientX) / this.box.clientWidth) * (this.to - this.from));
    };
    const end = (last) => {
      this.box.removeEventListener("pointermove", move);
      const bar = last.target.closest?.("[data-bar]");
      if (!isDrag && bar) this.select(Number(bar.getAttribute("data-bar")), true);
    };
    this.box.addEventListener("pointermove", move);
    this.box.addEventListener("pointerup", end, { once: true });
  }

  key(event) {
    const step = (this.to - this.from) / 5;
    const bars = this.chart.bars.length;
    switch (event.key) {
      case "ArrowLeft": this.move(this.from - step); break;
      case "ArrowRight": this.move(this.from + step); break;
      case "ArrowDown": if (bars) this.select(Math.min(bars - 1, this.selected + 1)); break;
      case "ArrowUp": if (bars) this.select(Math.max(0, this.selected - 1)); break;
      case "+": case "=": this.zoom(0.5); break;
      case "-": this.zoom(2); break;
      case "0": this.whole(); break;
      case "Enter": if (this.selected >= 0) this.open(this.chart.bars[this.selected].seq); break;
      default: return;
    }
    event.preventDefault();
  }

  select(at, opens = false) {
    this.selected = at;
    const bar = this.chart.bars[at];
    if (!bar) return;
    this.describeAll();
    if (this.endOf(bar) < this.from || bar.start > this.to) this.move(bar.start - (this.to - this.from) / 3);
    else this.draw();
    if (opens) this.open(bar.seq);
  }

  draw() {
    const width = this.box.clientWidth;
    if (!width) return;
    const { chart, from } = this;
    const scale = width / Math.max(1e-9, this.to - from);
    const height = TOP + LANE * chart.lanes + BOTTOM;
    for (const [name, value] of [["width", width], ["height", height], ["viewBox", `0 0 ${width} ${height}`]]) this.picture.setAttribute(name, value);
    this.box.style.setProperty("max-height", `${TOP + LANE * Math.min(chart.lanes, MOST_LANES) + BOTTOM + 4}px`);
    const parts = [];
    for (const tick of ticks(from, this.to, width)) {
      const x = (tick - from) * scale;
      parts.push(svg("line", { class: "grid", x1: x, y1: TOP - 8, x2: x, y2: height - BOTTOM + 4 }),
        svg("text", { class: "faint", x: x + 3, y: height - 6 }, seconds(tick)));
    }
    let free = -1;
    for (const mark of chart.marks) {
      const x = (mark.at - from) * scale;
      if (x < -1 || x > width + 1) continue;
      parts.push(svg("line", { class: `mark ${mark.kind}`, x1: x, y1: 18, x2: x, y2: height - BOTTOM }, svg("title", {}, oneLine(mark.label))));
      const label = oneLine(mark.label, 24);
      const room = label.length * 7;
      const start = Math.max(0, Math.min(x, width - room));
      if (start >= free) {
        parts.push(svg("text", { class: "faint", x: start, y: 13 }, label));
        free = start + room + 10;
      }
    }
    const ends = new Map();
    let drawn = 0;
    chart.bars.forEach((bar, at) => {
      const x = (bar.start - from) * scale, end = (this.endOf(bar) - from) * scale;
      if (end < 0 || x > width || drawn > 3000) return;
      const isSelected = at === this.selected;
      const kind = bar.state === "failed" && bar.kind !== "cut" ? "failed" : bar.kind;
      // Within a pixel that has a bar like it already it would not be seen. A failure behind a wait is.
      const alike = `${bar.lane} ${kind} ${bar.state}`;
      if (!isSelected && end - x < 0.7 && x < (ends.get(alike) ?? -1) + 0.7) return;
      ends.set(alike, end);
      drawn += 1;
      const left = Math.max(-4, x), span = Math.max(2, Math.min(width + 4, end) - left);
      const y = TOP + LANE * bar.lane;
      parts.push(svg("rect", { class: `${kind} ${bar.state}${isSelected ? " selected" : ""}`, x: left, y, width: span, height: BAR, rx: 3, "data-bar": at },
        svg("title", {}, this.describe(bar))));
      const room = Math.floor((span - 8 - Math.max(0, -left)) / 6.6);
      if (room >= 4) {
        const label = oneLine(bar.label, 80);
        const isPale = bar.kind === "wait" || bar.kind === "outside" || bar.state === "open";
        const short = bar.lane > 0 ? middleCut(bar.label, room) : label.length <= room ? label : label.slice(0, room - 1) + "…";
        parts.push(svg("text", { class: isPale ? "under" : "on", x: Math.max(left, 0) + 4, y: y + 12, "data-bar": at }, short));
      }
    });
    this.picture.replaceChildren(...parts);
  }
}

function* ticks(from, to, width) {
  const span = (to - from) / Math.max(2, width / 130);
  const unit = 10 ** Math.floor(Math.log10(span));
  const step = [1, 2, 5, 10].map((each) => each * unit).find((each) => each >= span) ?? span;
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) yield Math.max(0, Number(tick.toPrecision(8)));
}

// Elements from values. Content reaches the document as text alone: nothing here parses HTML.

const ODD = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;
// Also what looks like nothing: fillers, variation selectors, odd spaces, characters that no font has.
const STRICT =
  /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;
const HARMLESS = new Set(["\n", "\t", "\u200c", "\u200d"]);

/** An element with attributes, handlers (`onclick`), and children: texts, elements, lists, or nothing. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else element.setAttribute(key, String(value));
  }
  element.append(...children.flat(9).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

/** Whether each character of a text can be seen, or is a line break or a tab. */
export const isPlain = (text) => !(String(text).match(STRICT) ?? []).some((each) => each !== "\n" && each !== "\t");

/** JSON in which what cannot be seen is written as an escape. It stands within strings alone. */
export const escapedJson = (json) => json.replace(STRICT, (each) => (each === "\n" || each === "\t" ? each
  : each.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join("")));

/** A text in which everything is visible that would change how it reads: parts of it are elements. */
export function visible(text, strict = false) {
  const parts = [];
  let start = 0;
  for (const match of String(text).matchAll(strict ? STRICT : ODD)) {
    if (match[0] === "\n" || match[0] === "\t" || (!strict && HARMLESS.has(match[0]))) continue;
    if (match.index > start) parts.push(text.slice(start, match.index));
    parts.push(h("span", { class: "odd" }, spelled(match[0])));
    start = match.index + match[0].length;
  }
  if (start < text.length) parts.push(text.slice(start));
  return parts;
}

function spelled(character) {
  const code = character.codePointAt(0);
  if (code === 0x1b) return "⟨ESC⟩";
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** Text on one line, for titles and labels. */
export function oneLine(text, most = 300) {
  const line = String(text).slice(0, most * 2).replace(/\s+/g, " ").replace(ODD, (each) => (HARMLESS.has(each) ? each : spelled(each)));
  return line.length > most ? line.slice(0, most) + "…" : line;
}

export const svg = (name, attributes = {}, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
};

const NUMBER = new Intl.NumberFormat("en");
export const number = (value) => NUMBER.format(value);

export function seconds(value) {
  if (value >= 86400) return `${(value / 86400).toFixed(1)} d`;
  if (value >= 3600) return `${(value / 3600).toFixed(1)} h`;
  if (value >= 120) return `${(value / 60).toFixed(1)} min`;
  if (value >= 1 || value === 0) return `${Number(value.toPrecision(3))} s`;
  return value >= 1e-3 ? `${Number((value * 1e3).toPrecision(3))} ms` : `${Math.round(value * 1e6)} µs`;
}

export function dollars(value) {
  if (value === null || value === undefined) return "unknown";
  return value === 0 ? "$0" : `$${value < 0.01 ? value.toPrecision(2) : value.toFixed(2)}`;
}

/** A text of at most so many characters, on one line. A long one has its beginning and its end: calls of one tool begin alike. */
export function middleCut(text, most) {
  const line = [...oneLine(text, 400)];
  if (line.length <= most) return line.join("");
  const tail = Math.floor((most - 1) / 2);
  return `${line.slice(0, most - 1 - tail).join("")}…${line.slice(line.length - tail).join("")}`;
}

/** A time as an element: how long ago, with the time itself as its title. `renewTimes` keeps it true. */
export function ago(time) {
  const date = new Date(time * 1000);
  return h("time", { datetime: date.toISOString(), title: date.toLocaleString(), "data-since": time }, sinceText(time));
}

function sinceText(time) {
  const past = Math.max(0, Date.now() / 1000 - time);
  return past < 90 ? `${Math.round(past)} s ago` : past < 5400 ? `${Math.round(past / 60)} min ago`
    : past < 129600 ? `${Math.round(past / 3600)} h ago` : new Date(time * 1000).toISOString().slice(0, 10);
}

/** Says again how long ago the times of the page are. */
export function renewTimes() {
  for (const each of document.querySelectorAll("time[data-since]")) {
    const words = sinceText(Number(each.dataset.since));
    if (each.textContent !== words) each.textContent = words;
  }
}

const STATUSES = {
  answered: "good", failed: "bad", no_answer: "bad", awaiting_approval: "asks", running: "live", queued: "calm",
  waiting: "calm", suspended: "calm", interrupted: "warn",
};

export function statusChip(status) {
  return h("span", { class: `chip ${STATUSES[status] ?? "calm"}` }, status.replaceAll("_", " "));
}

/** Says something to the user for a while. */
export function notice(text, kind = "") {
  const element = h("div", { class: `notice ${kind}` }, visible(text),
    h("button", { type: "button", "aria-label": "Close this notice", onclick: () => element.remove() }, "×"));
  document.getElementById("notices").append(element);
  setTimeout(() => element.remove(), kind === "bad" ? 20000 : 7000);
}

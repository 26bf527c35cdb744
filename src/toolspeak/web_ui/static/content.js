// Texts, JSON, diffs and images of records. What a record has only the beginning of is read in parts.

import { get, imageUrl, runPath } from "./api.js";
import { h, notice, number, visible } from "./dom.js";
import { coloured, languageOf } from "./syntax.js";

const PART = 100000;
const FOLD = 1600;
const DEEP = 2;
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** Where a value is: the run, the record, the place in its event, and what the record's `cut` says. */
export class Place {
  constructor(runId, record, path, strict = false) {
    this.runId = runId;
    this.record = record;
    this.path = path;
    this.strict = strict;
  }

  at(...keys) {
    return new Place(this.runId, this.record, [...this.path, ...keys], this.strict);
  }

  /** How long the whole value is, if the record has only the beginning of it. */
  get length() {
    const key = JSON.stringify(this.path);
    return this.record?.cut?.find((each) => JSON.stringify(each.place) === key)?.length;
  }
}

/** A text in full. A long one is folded; the rest of a cut one comes on demand. `onwhole`: once all of it is shown. */
export function text(value, place, { onwhole, kind = "" } = {}) {
  const strict = place?.strict ?? false;
  const isDiff = kind === "diff", file = { language: undefined };
  const body = h("div", { class: `text ${kind}` }, isDiff ? diffLines(value, strict, file) : visible(value, strict));
  const total = place?.length;
  const box = h("div", { class: "text-box" }, body);
  if (total !== undefined) {
    let start = [...value].length; // the server counts code points
    const button = h("button", { type: "button", class: "more", onclick: async () => {
      button.disabled = true;
      try {
        const piece = await get(runPath(place.runId, `/records/${place.record.seq}/text`),
          { place: JSON.stringify(place.path), start, length: PART });
        start = Math.min(piece.start + PART, piece.total);
        body.append(h("div", { class: "text" }, isDiff ? diffLines(piece.text, strict, file) : visible(piece.text, strict)));
        label();
        if (start >= piece.total) {
          button.remove();
          onwhole?.();
        }
      } catch (error) {
        notice(error.message, "bad");
      }
      button.disabled = false;
    } });
    const label = () => {
      button.textContent = `Show ${number(Math.min(PART, total - start))} of ${number(total - start)} more characters`;
    };
    label();
    box.append(button);
  } else onwhole?.();
  if (!strict && value.length > FOLD) {
    box.classList.add("folded");
    const toggle = h("button", { type: "button", class: "more", onclick: () => {
      const isFolded = box.classList.toggle("folded");
      toggle.textContent = isFolded ? "Unfold" : "Fold";
    } }, "Unfold");
    box.append(toggle);
  }
  return box;
}

/** The lines of a diff. `file.language` is that of the file whose lines come, also from one part to the next. */
function diffLines(value, strict, file) {
  return value.split("\n").map((line, at, lines) => {
    const kind = diffKind(line);
    if (line.startsWith("+++ ") || line.startsWith("--- ")) file.language = languageOf(line.slice(4)) ?? (line[0] === "+" ? file.language : undefined);
    const isCode = kind !== "file" && kind !== "hunk";
    const parts = isCode ? [line.slice(0, 1), coloured(line.slice(1), file.language, strict)] : visible(line, strict);
    return h("span", { class: `line ${kind}` }, isCode && !"+- ".includes(line[0] ?? " ") ? visible(line, strict) : parts, at < lines.length - 1 ? "\n" : "");
  });
}

function diffKind(line) {
  if (line.startsWith("+++") || line.startsWith("---")) return "file";
  if (line.startsWith("@@")) return "hunk";
  return line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
}

export function isDiff(value) {
  return /^--- .*\n\+\+\+ .*\n@@ /m.test(value.slice(0, 5000));
}

/** A JSON value as a tree. `open`: everything is unfolded. */
export function jsonTree(value, place, { open = false, depth = 0, onwhole } = {}) {
  if (typeof value === "string") {
    if (value.length < 80 && !value.includes("\n") && place?.length === undefined) {
      onwhole?.();
      return h("span", { class: "json string" }, '"', visible(value, place?.strict), '"');
    }
    return text(value, place, { onwhole, kind: isDiff(value) ? "diff" : "json string" });
  }
  if (value === null || typeof value !== "object") {
    onwhole?.();
    return h("span", { class: "json literal" }, String(value));
  }
  const entries = Array.isArray(value) ? value.map((each, at) => [at, each]) : Object.entries(value);
  const total = place?.length ?? entries.length;
  if (!entries.length && total === 0) {
    onwhole?.();
    return h("span", { class: "json literal" }, Array.isArray(value) ? "[]" : "{}");
  }
  let rest = entries.length + (total > entries.length ? 1 : 0);
  const done = () => {
    rest -= 1;
    if (rest === 0) onwhole?.();
  };
  const isNew = { yes: true };
  const list = h("ul", { class: "tree" });
  const fill = () => {
    if (!isNew.yes) return;
    isNew.yes = false;
    for (const [key, each] of entries) {
      list.append(h("li", {}, h("span", { class: "key" }, visible(String(key), place?.strict)), ": ",
        jsonTree(each, place?.at(key), { open, depth: depth + 1, onwhole: done })));
    }
    if (total > entries.length) {
      list.append(h("li", {}, h("button", { type: "button", class: "more", onclick: async (event) => {
        event.target.replaceWith(await wholeJson(place, done));
      } }, `Show all ${number(total)} entries`)));
    }
  };
  const summary = Array.isArray(value) ? `[${number(total)}]` : `{${number(total)}}`;
  const isOpen = open || depth < DEEP;
  const details = h("details", { open: isOpen, ontoggle: fill }, h("summary", { class: "json" }, summary), list);
  if (isOpen) fill();
  return details;
}

/** All of a value that a record has only the beginning of: a text, or another value's JSON. */
export async function wholeText(place) {
  let whole = "";
  for (let start = 0; ;) {
    const piece = await get(runPath(place.runId, `/records/${place.record.seq}/text`),
      { place: JSON.stringify(place.path), start, length: PART * 5 });
    whole += piece.text;
    start = piece.start + PART * 5;
    if (start >= piece.total) return whole;
  }
}

async function wholeJson(place, done) {
  const box = h("div", { class: "text" });
  let start = 0;
  try {
    for (;;) {
      const piece = await get(runPath(place.runId, `/records/${place.record.seq}/text`),
        { place: JSON.stringify(place.path), start, length: PART * 5 });
      box.append(h("div", { class: "text" }, visible(piece.text, place.strict)));
      start = piece.start + PART * 5;
      if (start >= piece.total) break;
    }
    done();
  } catch (error) {
    notice(error.message, "bad");
  }
  return box;
}

/** The arguments of a call: each with its name, all of them in full. */
export function argumentList(values, place, { open = false, onwhole } = {}) {
  const names = Object.keys(values ?? {});
  const total = place?.length ?? names.length;
  if (!names.length && total === 0) {
    onwhole?.();
    return h("p", { class: "faint" }, "no arguments");
  }
  let rest = names.length + (total > names.length ? 1 : 0);
  const done = () => {
    rest -= 1;
    if (rest === 0) onwhole?.();
  };
  const list = h("dl", { class: "arguments" });
  for (const name of names) {
    list.append(h("dt", {}, visible(name, place?.strict)), h("dd", {}, jsonTree(values[name], place?.at(name), { open, onwhole: done })));
  }
  if (total > names.length) {
    list.append(h("dt", {}, "…"), h("dd", {}, h("button", { type: "button", class: "more", onclick: async (event) => {
      event.target.replaceWith(await wholeJson(place, done));
    } }, `Show all ${number(total)} arguments`)));
  }
  return list;
}

/** The parts of a message or a result. */
export function contentParts(parts, place) {
  return (parts ?? []).map((part, at) => {
    const here = place.at(at);
    switch (part.type) {
      case "TextPart":
        return text(part.text ?? "", here.at("text"), { kind: isDiff(part.text ?? "") ? "diff" : "" });
      case "ReasoningPart":
        return h("details", { class: "thoughts" }, h("summary", {}, "Thoughts"), text(part.text ?? "", here.at("text")));
      case "JsonPart":
        return jsonTree(part.value ?? null, here.at("value"));
      case "ImagePart":
        if (part.data && place.record && IMAGES.has(part.media_type)) {
          return h("img", { src: imageUrl(place.runId, place.record.seq, here.path), alt: `An image of the type ${part.media_type}`, loading: "lazy" });
        }
        return h("p", { class: "faint" }, "An image (", visible(part.media_type ?? ""), `)${part.url ? " at " : ""}`, visible(part.url ?? ""));
      case "FilePart":
        return h("p", { class: "faint" }, "The file ", visible(part.name ?? ""), " (", visible(part.media_type ?? ""), ")");
      default:
        return jsonTree(part, here);
    }
  });
}

// The words of a line of code in colour: of the languages of most diffs, and without knowing more than their words.

import { h, visible } from "./dom.js";

const LONGEST = 2000;
const KEYWORDS = new Set(("and as async await break case catch class const continue def del do elif else enum except export extends "
  + "False false finally fn for from func function global if impl import in interface is lambda let match mod None not null "
  + "or package pass private pub public raise return self static struct super switch this throw trait True true try type use var "
  + "void while with yield").split(" "));
const REST = String.raw`(?<string>"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)|(?<number>\b\d[\w.]*)|(?<word>[A-Za-z_]\w*)`;
const HASH = new RegExp(`(?<comment>#.*)|${REST}`, "g");
const SLASHES = new RegExp(`(?<comment>//.*|/\\*.*?(?:\\*/|$))|${REST}`, "g");
const LANGUAGES = new Map([
  ...["py", "sh", "toml", "yaml", "yml", "rb"].map((each) => [each, HASH]),
  ...["js", "mjs", "ts", "tsx", "jsx", "json", "c", "h", "cc", "cpp", "cs", "go", "rs", "java", "kt", "php", "swift"].map((each) => [each, SLASHES]),
]);

/** The language of a file by its path; undefined for one that is not known. */
export function languageOf(path) {
  return LANGUAGES.get(path.trim().split(".").at(-1).toLowerCase());
}

/** A line of a language as parts. */
export function coloured(line, language, strict) {
  if (!language || line.length > LONGEST) return visible(line, strict);
  const parts = [];
  let start = 0;
  for (const match of line.matchAll(language)) {
    const [kind] = Object.entries(match.groups).find(([, value]) => value !== undefined);
    if (kind === "word" && !KEYWORDS.has(match[0])) continue;
    parts.push(...visible(line.slice(start, match.index), strict), h("span", { class: `code-${kind}` }, visible(match[0], strict)));
    start = match.index + match[0].length;
  }
  parts.push(...visible(line.slice(start), strict));
  return parts;
}

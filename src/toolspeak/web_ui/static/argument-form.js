// The arguments of a call as a form, by the schema of its tool. What the form does not change keeps its JSON to the digit.

import { escapedJson, h, isPlain, oneLine, visible } from "./dom.js";

const MOST_FIELDS = 60, MOST_CHOICES = 200, MOST_ROWS = 8;
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/, INTEGER = /^-?(?:0|[1-9]\d*)$/;
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** The form of arguments that are written as JSON: its `element`, and `text()`, the arguments as JSON by now, which throws
    an Error that names the field. Null if the schema or the arguments have no form. */
export function argumentForm(schema, text, id) {
  const properties = isObject(schema) && isObject(schema.properties) ? schema.properties : null;
  const given = properties && fieldsOf(text);
  if (!given) return null;
  const names = [...new Set([...given.keys(), ...Object.keys(properties)])];
  if (names.length > MOST_FIELDS) return null;
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = names.map((name, at) => field(name, isObject(properties[name]) ? properties[name] : {}, given.get(name), required.has(name), `${id}-${at}`));
  return {
    element: h("div", { class: "argument-form" }, fields.map((each) => each.element)),
    text: () => `{${fields.filter((each) => each.isGiven()).map((each) => `${JSON.stringify(each.name)}: ${each.json()}`).join(", ")}}`,
  };
}

function field(name, schema, raw, isRequired, id) {
  const { element: control, json } = controlOf(name, schema, raw, id);
  const box = isRequired ? null : h("input", { type: "checkbox", id: `${id}-given`, checked: raw !== undefined, onchange: () => {
    control.disabled = !box.checked;
  } });
  control.disabled = box !== null && raw === undefined;
  const words = typeof schema.description === "string" ? oneLine(schema.description, 300) : "";
  return {
    name,
    json,
    isGiven: () => box === null || box.checked,
    element: h("div", { class: "field" },
      h("div", { class: "field-head" }, h("label", { for: id }, visible(name, true)), box ? h("label", { class: "inline", for: box.id }, box, " given") : null),
      words ? h("p", { class: "faint" }, words) : null, control),
  };
}

/** The control of an argument, and what gives its JSON. `raw`: its JSON as it is; undefined if it is not there. */
function controlOf(name, schema, raw, id) {
  const kinds = (Array.isArray(schema.type) ? schema.type : [schema.type]).filter((each) => each !== "null");
  const kind = kinds.length === 1 ? kinds[0] : "";
  const choices = Array.isArray(schema.enum) ? schema.enum : kind === "boolean" ? [true, false] : null;
  if (choices && choices.length <= MOST_CHOICES && choices.every((each) => !(each instanceof Object) && isPlain(String(each)))) {
    const texts = choices.map((each) => JSON.stringify(each));
    if (raw === undefined || texts.includes(raw)) {
      const element = h("select", { id }, choices.map((each, at) => h("option", { value: texts[at] }, oneLine(String(each), 120))));
      if (raw !== undefined) element.value = raw;
      return { element, json: () => element.value };
    }
  }
  if (kind === "string" && (raw === undefined || raw.startsWith('"'))) {
    const value = raw === undefined ? "" : JSON.parse(raw);
    if (isPlain(value)) { // else a person would not see what is in it
      const element = h("textarea", { id, rows: Math.min(MOST_ROWS, value.split("\n").length + Math.floor(value.length / 60)), spellcheck: "false" });
      element.value = value;
      return { element, json: () => (raw !== undefined && element.value === value ? raw : JSON.stringify(element.value)) };
    }
  }
  if ((kind === "number" || kind === "integer") && (raw === undefined || NUMBER.test(raw))) {
    const element = h("input", { id, inputmode: kind === "integer" ? "numeric" : "decimal", autocomplete: "off" });
    element.value = raw ?? "";
    return { element, json: () => {
      const number = element.value.trim();
      if (number === raw || (kind === "integer" ? INTEGER : NUMBER).test(number)) return number;
      throw new Error(`${name}: write ${kind === "integer" ? "a whole number" : "a number"}`);
    } };
  }
  const element = h("textarea", { id, rows: 3, spellcheck: "false", title: "as JSON" });
  element.value = raw === undefined ? "null" : escapedJson(raw);
  return { element, json: () => {
    try {
      JSON.parse(element.value);
    } catch (error) {
      throw new Error(`${name}: this is no JSON: ${error.message}`);
    }
    return element.value;
  } };
}

/** The entries of a JSON object, each with its JSON as it is written; null for what is no object. */
function fieldsOf(text) {
  try {
    if (!isObject(JSON.parse(text))) return null;
  } catch {
    return null;
  }
  const fields = new Map();
  let at = after(text, text.indexOf("{") + 1);
  while (text[at] !== "}") {
    const keyEnd = stringEnd(text, at);
    const start = after(text, after(text, keyEnd) + 1); // behind the colon
    const end = valueEnd(text, start);
    fields.set(JSON.parse(text.slice(at, keyEnd)), text.slice(start, end).trimEnd());
    at = text[end] === "," ? after(text, end + 1) : end;
  }
  return fields;
}

/** The place of the first character that is no white space. */
function after(text, at) {
  while (" \t\r\n".includes(text[at])) at += 1;
  return at;
}

function stringEnd(text, at) {
  for (at += 1; text[at] !== '"'; at += 1) if (text[at] === "\\") at += 1;
  return at + 1;
}

function valueEnd(text, at) {
  for (let depth = 0; ;) {
    const character = text[at];
    if (character === '"') {
      at = stringEnd(text, at);
      continue;
    }
    if (character === "{" || character === "[") depth += 1;
    if (depth === 0 && (character === "," || character === "}")) return at;
    if (character === "}" || character === "]") depth -= 1;
    at += 1;
  }
}

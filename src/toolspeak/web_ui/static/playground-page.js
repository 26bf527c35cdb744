// The playground: what a dialect reads in a reply, and where in the text it knows it.

import { post } from "./api.js";
import { jsonTree } from "./content.js";
import { h, number, visible } from "./dom.js";
import { spanned } from "./turn-views.js";

const EXAMPLE = 'I look it up.\n<tool_call>\n{"name": "read", "arguments": {"path": "notes.md"}}\n</tool_call>';
const WAIT = 300;

export function playgroundPage(main) {
  document.title = "Playground · toolspeak";
  let readings = null, timer = null, epoch = 0;
  const reply = h("textarea", { id: "reply", rows: 12, maxlength: 20000, spellcheck: "false", class: "mono" });
  reply.value = EXAMPLE;
  const dialect = h("select", { id: "dialect" }, h("option", { value: "auto" }, "auto"));
  const cut = h("input", { id: "cut", type: "range", min: 0, max: EXAMPLE.length, value: EXAMPLE.length });
  const state = h("p", { class: "faint", role: "status" });
  const raw = h("div", { class: "text mono raw-reply", tabindex: 0, role: "region", "aria-label": "The reply until the cut" });
  const read = h("div", { class: "read", tabindex: 0, role: "region", "aria-label": "What is read until the cut" });
  const others = h("div", { class: "others" });
  main.append(h("div", { class: "head" }, h("h1", {}, "Playground")),
    h("p", { class: "faint" }, "Paste a reply of a model. Move the cut to see what a stream that has come so far says."),
    h("div", { class: "pair" },
      h("section", {}, h("label", { for: "reply" }, "Reply"), reply,
        h("div", { class: "buttons" }, h("label", { for: "dialect" }, "Dialect"), dialect, h("label", { for: "cut" }, "Cut"), cut), state, raw),
      h("section", {}, h("h2", {}, "What is read"), read)),
    h("section", {}, h("h2", {}, "Each dialect"), others));

  async function ask() {
    const mine = (epoch += 1);
    try {
      const answer = await post("/readings", { dialect: dialect.value, text: reply.value });
      if (mine !== epoch) return;
      readings = answer;
      if (dialect.options.length === 1) {
        for (const each of answer.dialects) dialect.append(h("option", { value: each.dialect }, each.dialect));
      }
      cut.max = [...reply.value].length;
      cut.value = cut.max;
      draw();
      others.replaceChildren(h("ul", { class: "dialects" }, answer.dialects.filter((each) => each.calls.length || each.malformed).map((each) =>
        h("li", {}, h("button", { type: "button", class: "plain", onclick: () => {
          dialect.value = each.dialect;
          void ask();
        } }, each.dialect), ` ${number(each.completed)} calls${each.malformed ? `, ${each.malformed} malformed` : ""}: `, visible(each.calls.join(", "))))));
      const silent = answer.dialects.filter((each) => !each.calls.length && !each.malformed).length;
      others.append(h("p", { class: "faint" }, `${silent} dialects read no call in it.`));
    } catch (error) {
      state.textContent = error.message;
    }
  }

  function draw() {
    const upto = Number(cut.value);
    const characters = [...reply.value];
    state.textContent = `${readings.dialect}: ${number(upto)} of ${number(characters.length)} characters`;
    raw.replaceChildren(...spanned(reply.value, readings.spans, upto), h("span", { class: "cut-mark" }, "│"),
      h("span", { class: "faint" }, visible(characters.slice(upto).join(""))));
    read.replaceChildren(...joined(readings.steps.filter((step) => step.offset <= upto)).map(({ from, to, delta }) => {
      const { type, format, ...fields } = delta;
      return h("details", { class: "step", open: type !== "PartEnded" },
        h("summary", {}, h("b", {}, type), h("span", { class: "faint" }, ` after ${number(from)}${to > from ? ` to ${number(to)}` : ""}`)),
        typeof fields.text === "string" && Object.keys(fields).length <= 2 ? h("div", { class: "text" }, visible(fields.text)) : jsonTree(fields, null));
    }));
  }

  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT);
  };
  reply.addEventListener("input", later);
  dialect.addEventListener("change", () => void ask());
  cut.addEventListener("input", () => readings && draw());
  void ask();
  return () => clearTimeout(timer);
}

const PIECES = new Set(["TextDelta", "TextAside", "ReasoningDelta", "ArgumentsDelta"]);

/** Steps in which the pieces of one text that come after each other are one. */
function joined(steps) {
  const result = [];
  for (const { offset, delta } of steps) {
    const last = result.at(-1);
    if (last && PIECES.has(delta.type) && last.delta.type === delta.type && last.delta.index === delta.index) {
      last.to = offset;
      last.delta = { ...last.delta, text: last.delta.text + delta.text };
    } else result.push({ from: offset, to: offset, delta });
  }
  return result;
}

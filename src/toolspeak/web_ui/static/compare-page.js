// Two runs side by side, from where they part.

import { get, runPath } from "./api.js";
import { Conversation } from "./conversation.js";
import { h, notice, number, oneLine, statusChip, visible } from "./dom.js";
import { openDialog } from "./run-list.js";
import { PartList } from "./virtual-list.js";

export function comparePage(main) {
  const query = new URLSearchParams(location.search);
  const ids = [query.get("a") ?? "", query.get("b") ?? ""];
  document.title = "Two runs · toolspeak";
  let isOpen = true;
  const verdict = h("p", { role: "status" }, "Comparing …");
  const sides = ids.map((runId) => {
    const head = h("h2", {}, oneLine(runId, 40));
    const box = h("div", { class: "side", tabindex: 0, role: "region", "aria-label": `Conversation of ${oneLine(runId, 40)}` });
    const list = new PartList(box, 120, box);
    return { runId, head, box, list, conversation: new Conversation(runId, list, null) };
  });
  main.append(h("div", { class: "head" }, h("h1", {}, "Two runs")), verdict,
    h("div", { class: "pair" }, sides.map((side) => h("section", {}, side.head, side.box))));

  async function load(side) {
    const detail = get(runPath(side.runId));
    let start = 0;
    for (;;) {
      const page = await get(runPath(side.runId, "/records"), { start, limit: 500 });
      if (!isOpen) return;
      for (const record of page.records) side.conversation.add(record);
      start = page.next;
      if (page.is_last) break;
    }
    const { run } = await detail;
    side.head.replaceChildren(h("a", { href: `/runs/${encodeURIComponent(run.run_id)}` }, visible(oneLine(run.title || run.run_id, 120))), " ", statusChip(run.status));
  }

  async function compare() {
    try {
      const [outcome] = await Promise.all([get(runPath(ids[0], "/comparison"), { other: ids[1] }), ...sides.map(load)]);
      if (!isOpen) return;
      const seqs = [outcome.seq, outcome.other_seq];
      const isSame = seqs.every((seq) => seq === null);
      verdict.textContent = isSame ? `The runs did the same: ${number(outcome.common)} records say the same.`
        : `The runs are the same for ${number(outcome.common)} records, without times, tokens and ids. They part where you see it marked.`;
      sides.forEach((side, at) => {
        if (seqs[at] !== null) side.list.showRecord(seqs[at])?.element.classList.add("parted");
        else if (!isSame) side.box.append(h("p", { class: "notes" }, "This run has ended here."));
      });
    } catch (error) {
      verdict.textContent = error.message;
    }
  }

  void compare();
  return () => {
    isOpen = false;
    for (const side of sides) side.list.close();
  };
}

/** Asks with which run to compare. */
export async function compareDialog(runId, go) {
  const other = h("input", { id: "other-run", list: "recent-runs", required: true, autocomplete: "off" });
  const recent = h("datalist", { id: "recent-runs" });
  const dialog = h("dialog", { "aria-labelledby": "compare-title" }, h("form", { method: "dialog", onsubmit: (event) => {
    event.preventDefault();
    dialog.close();
    go(`/compare?${new URLSearchParams({ a: runId, b: other.value.trim() })}`);
  } },
  h("h2", { id: "compare-title" }, "Compare with another run"), h("label", { for: "other-run" }, "Its id"), other, recent,
  h("div", { class: "buttons" }, h("button", { class: "main", type: "submit" }, "Compare"), h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))));
  openDialog(dialog);
  try {
    const page = await get("/runs", { limit: 50 });
    recent.append(...page.runs.filter((run) => run.run_id !== runId).map((run) => h("option", { value: run.run_id }, oneLine(run.title, 80))));
  } catch (error) {
    notice(error.message, "bad");
  }
}

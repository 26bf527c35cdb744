// The list of sessions.

import { get } from "./api.js";
import { ago, h, oneLine, visible } from "./dom.js";
import { RowList } from "./virtual-list.js";

export function sessionList(main) {
  document.title = "Sessions · toolspeak";
  let sessions = [], next = null, isLoading = false, isFirst = true;
  const state = h("p", { class: "faint", role: "status" }, "Loading …");
  const list = new RowList({ row, height: () => (window.innerWidth < 760 ? 84 : 46), more: () => void load(), label: "Sessions" });

  async function load() {
    if (isLoading || (!isFirst && next === null)) return;
    isLoading = true;
    try {
      const page = await get("/sessions", { after: next, limit: 200 });
      sessions = sessions.concat(page.sessions);
      next = page.next;
      isFirst = false;
      state.textContent = sessions.length ? `${sessions.length} sessions${next ? " so far" : ""}` : "There are no sessions.";
      list.set(sessions);
    } catch (error) {
      state.textContent = error.message;
    } finally {
      isLoading = false;
    }
  }

  main.append(h("div", { class: "head" }, h("h1", {}, "Sessions")), state, list.element);
  void load();
  return () => list.close();
}

function row(session) {
  return h("a", { class: "row", href: `/?session=${encodeURIComponent(session.session_id)}` },
    h("span", { class: "chip calm" }, session.runs === 1 ? "1 run" : `${session.runs} runs`),
    h("span", { class: "title" }, visible(oneLine(session.title || session.session_id))),
    h("span", { class: "facts" }, visible(oneLine([session.principal && `for ${session.principal}`, session.forked_from && "a fork"].filter(Boolean).join(" · ")))),
    h("span", { class: "count" }), ago(session.updated));
}

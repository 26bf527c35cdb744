// The list of runs, with filters and a search in their texts.

import { get, may, me, post } from "./api.js";
import { ago, h, notice, oneLine, statusChip, visible } from "./dom.js";
import { RowList } from "./virtual-list.js";

const STATUSES = ["awaiting_approval", "running", "queued", "waiting", "suspended", "answered", "no_answer", "failed"];
const FILTERS = ["prefix", "agent", "model", "principal", "folder", "dialect"];
const LABELS = { prefix: "id" };
const PAGE = 200;
const AGAIN = 3000;
const MOST_MATCHES = 50;

/** A time in Unix seconds as a field of the browser has it: local, in minutes. */
const fieldTime = (time) => {
  const date = new Date(time * 1000);
  const local = new Date(time * 1000 - date.getTimezoneOffset() * 60000);
  return time && !Number.isNaN(local.getTime()) ? local.toISOString().slice(0, 16) : "";
};

export function runRow(run) {
  const facts = [run.agent, run.model, run.folder, run.principal && `for ${run.principal}`].filter(Boolean);
  return h("a", { class: "row", href: `/runs/${encodeURIComponent(run.run_id)}` },
    statusChip(run.status),
    h("span", { class: "title" }, visible(oneLine(run.title || run.run_id)), run.parent_run_id ? h("span", { class: "faint" }, " · of another run") : null),
    h("span", { class: "facts" }, visible(oneLine(facts.join(" · ")))),
    h("span", { class: "count" }, `${run.records} records`),
    ago(run.created));
}

export function runList(main, go) {
  document.title = "Runs · toolspeak";
  const query = new URLSearchParams(location.search);
  let runs = [], next = null, isLoading = false, isOpen = true, epoch = 0, searches = 0;

  const status = h("select", { "aria-label": "Status", onchange: change },
    h("option", { value: "" }, "any status"), STATUSES.map((each) => h("option", { value: each }, each.replaceAll("_", " "))));
  status.value = query.get("status") ?? "";
  const inputs = Object.fromEntries(FILTERS.map((name) =>
    [name, h("input", { "aria-label": LABELS[name] ?? name, placeholder: LABELS[name] ?? name, value: query.get(name) ?? "", size: 12, onchange: change })]));
  const order = h("select", { "aria-label": "Order", onchange: change }, h("option", { value: "" }, "newest first"), h("option", { value: "true" }, "oldest first"));
  order.value = query.get("oldest_first") === "true" ? "true" : "";
  const from = h("input", { type: "datetime-local", "aria-label": "Begin the list at this time", title: "Begin the list at this time", value: fieldTime(Number(query.get("from_time"))), onchange: change });
  const search = h("input", { type: "search", "aria-label": "Search the texts of runs", placeholder: "Search texts ( / )", value: query.get("q") ?? "", oninput: (event) => {
    if (!search.value) void find(event); // it was emptied
  } });
  const state = h("p", { class: "faint", role: "status" });
  const matches = h("div", { class: "matches" });
  const list = new RowList({ row: runRow, height: () => (window.innerWidth < 760 ? 84 : 46), more: () => void load(), label: "Runs" });

  function filters() {
    const values = { status: status.value, session: query.get("session"), parent: query.get("parent"), oldest_first: order.value };
    values.from_time = from.value ? new Date(from.value).getTime() / 1000 : "";
    for (const name of FILTERS) values[name] = inputs[name].value.trim();
    return values;
  }

  function change() {
    const values = { ...filters(), q: search.value.trim() };
    const address = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
    history.replaceState(null, "", address.size ? `/?${address}` : "/");
    void restart();
  }

  async function restart() {
    epoch += 1;
    runs = [];
    next = null;
    isLoading = false;
    list.set(runs);
    state.textContent = "Loading …";
    await load(true);
  }

  async function load(isFirst = false) {
    if (isLoading || (!isFirst && next === null)) return;
    isLoading = true;
    const mine = epoch;
    try {
      const page = await get("/runs", { ...filters(), after: next, limit: PAGE });
      if (mine !== epoch || !isOpen) return;
      runs = runs.concat(page.runs);
      next = page.next;
      state.textContent = runs.length ? (next ? `${runs.length} runs so far` : `${runs.length} runs`) : "There are no such runs.";
    } catch (error) {
      state.textContent = error.message;
    } finally {
      if (mine === epoch) isLoading = false;
    }
    list.set(runs);
  }

  /** Brings new runs and new statuses of the first page. */
  async function renew() {
    if (!isOpen || document.hidden || !runs.length) return;
    const mine = epoch;
    try {
      const page = await get("/runs", { ...filters(), limit: 100 });
      if (mine !== epoch || !isOpen) return;
      const ids = new Set(page.runs.map((run) => run.run_id));
      const last = page.runs.at(-1);
      const rest = runs.filter((run) => !ids.has(run.run_id) && last && page.next
        && (run.created < last.created || (run.created === last.created && run.run_id < last.run_id)) !== (order.value === "true"));
      const known = new Map(runs.map((run) => [run.run_id, run]));
      const fresh = page.runs.map((run) => {
        const before = known.get(run.run_id);
        return before && JSON.stringify(before) === JSON.stringify(run) ? before : run;
      });
      runs = fresh.concat(rest);
      list.set(runs);
    } catch {
      // The next look may succeed.
    }
  }

  /** Shows the texts with the words in place of the list; without words the list. */
  async function find(event) {
    event.preventDefault();
    change();
    const words = search.value.trim();
    const mine = (searches += 1);
    matches.replaceChildren();
    list.element.hidden = state.hidden = Boolean(words);
    list.draw();
    if (!words) return;
    try {
      const answer = await get("/search", { q: words, limit: MOST_MATCHES });
      if (mine !== searches || !isOpen) return;
      const runCount = new Set(answer.matches.map((each) => each.run_id)).size;
      const count = `${answer.matches.length}${answer.matches.length === MOST_MATCHES ? " or more" : ""} in ${runCount === 1 ? "1 run" : `${runCount} runs`}`;
      matches.append(h("div", { class: "head" }, h("h2", {}, answer.matches.length ? `Texts with these words: ${count}` : "No text has these words"),
        h("button", { type: "button", onclick: (clicked) => {
          search.value = "";
          void find(clicked);
        } }, "Show all runs")),
        ...answer.matches.map((each) => h("a", { class: "match", href: `/runs/${encodeURIComponent(each.run_id)}#${each.seq}` },
          h("span", { class: "faint" }, `${each.role} · `, ago(each.time), " · ", visible(oneLine(each.title))),
          h("span", {}, visible(each.snippet)))));
    } catch (error) {
      notice(error.message, "bad");
    }
  }

  const session = query.get("session"), parent = query.get("parent");
  const only = session ? `Runs of session ${session}` : parent ? `Runs that run ${parent} started` : "Runs";
  main.append(
    h("div", { class: "head" }, h("h1", {}, oneLine(only, 80)), may("run") ? h("button", { type: "button", onclick: () => newRun(go) }, "New run") : null),
    h("form", { class: "filters", role: "search", onsubmit: find }, search, status, order, from, me.sees === null ? Object.values(inputs) : FILTERS.filter((name) => name !== "principal").map((name) => inputs[name]), h("button", { type: "submit" }, "Find")),
    matches, state, list.element);
  void restart();
  if (search.value) void find(new Event("submit"));
  const timer = setInterval(renew, AGAIN);
  return () => {
    isOpen = false;
    clearInterval(timer);
    list.close();
  };
}

function newRun(go) {
  const agent = h("input", { id: "new-agent", required: true, maxlength: 200 });
  const task = h("textarea", { id: "new-task", rows: 5, required: true });
  const dialog = h("dialog", { "aria-labelledby": "new-title" }, h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    try {
      const answer = await post("/runs", { agent: agent.value, task: task.value });
      dialog.close();
      go(`/runs/${encodeURIComponent(answer.run_id)}`);
    } catch (error) {
      notice(error.message, "bad");
    }
  } },
  h("h2", { id: "new-title" }, "New run"),
  h("p", { class: "faint" }, "A worker that has the agent drives it."),
  h("label", { for: "new-agent" }, "Agent"), agent, h("label", { for: "new-task" }, "Task"), task,
  h("div", { class: "buttons" }, h("button", { class: "main", type: "submit" }, "Start"),
    h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))));
  openDialog(dialog);
}

/** Shows a dialog, which leaves the document when it is closed. */
export function openDialog(dialog) {
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

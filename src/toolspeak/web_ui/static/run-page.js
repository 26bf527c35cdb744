// One run: its timeline, its conversation as it happens, its questions, and what can be done with it.

import { ApiError, get, may, post, runPath } from "./api.js";
import { compareDialog } from "./compare-page.js";
import { contentParts, Place } from "./content.js";
import { Conversation } from "./conversation.js";
import { ago, dollars, h, notice, number, oneLine, statusChip, visible } from "./dom.js";
import { LiveRun } from "./live.js";
import { Questions } from "./questions.js";
import { openDialog, runRow } from "./run-list.js";
import { Timeline } from "./timeline.js";
import { PartList } from "./virtual-list.js";

const PAGE = 2000, FIRST_PAGE = 60;
const AGAIN = 400;
const TICK = 1000, PAUSED_TICKS = 15;

const isUnderWay = (detail) => ["running", "queued"].includes(detail.run.status);
const isPaused = (detail) => ["awaiting_approval", "waiting", "suspended"].includes(detail.run.status);

export function runPage(main, runId, go) {
  document.title = `${oneLine(runId, 20)} · toolspeak`;
  let isOpen = true, detail = null, drawnAt = 0, redraw = null, renewal = null, isRenewing = false, isDue = false, selected = -1, isAtEnd = true;

  const title = h("h1", {}, oneLine(runId, 60));
  const status = h("span", { class: "status", role: "status" });
  const connection = h("span", { class: "connection faint" });
  const actions = h("div", { class: "buttons" });
  const facts = h("dl", { class: "facts-list" });
  const subRuns = h("div");
  const timeline = new Timeline((seq) => openRecord(seq));
  const box = h("div", { class: "conversation", role: "feed", "aria-label": "Conversation", "aria-busy": "true" });
  const list = new PartList(box, 120);
  const conversation = new Conversation(runId, list, (seq) => void showMessages(runId, seq),
    may("run") ? (seq, place, text) => detail && forkDialog(runId, detail, { seq, place, text }, go) : null);
  const questions = new Questions(runId, () => renew());
  const words = h("textarea", { id: "say", rows: 2, maxlength: 500000, placeholder: "Say something to the run" });
  const unread = h("p", { class: "notes" });
  const say = h("form", { class: "say", hidden: true, onsubmit: (event) => void send(event) },
    h("label", { for: "say", class: "hidden" }, "Message to the run"), words, h("button", { type: "submit" }, "Say"));

  main.append(
    h("div", { class: "head" }, h("div", { class: "titles" }, title, h("div", { class: "line" }, status, connection)), actions),
    timeline.element,
    h("div", { class: "columns" }, h("div", { class: "left" }, box, say, unread),
      h("aside", { class: "right", "aria-label": "About the run" }, questions.element, facts, subRuns)));

  const live = new LiveRun(runId, {
    record: (record) => {
      add(record);
      if (record.kind !== "ModelTextReceived") renew();
    },
    deltas: (pieces) => {
      conversation.deltas(pieces);
      stayAtEnd();
    },
    state: (state) => {
      if (state === "away") conversation.forgetPieces();
      connection.textContent = { live: "live", away: "the server does not answer; trying again …", over: "" }[state];
      renew();
    },
  });

  function add(record) {
    conversation.add(record);
    stayAtEnd();
  }

  /** Scrolls on while the reader is at the end. */
  function stayAtEnd() {
    if (isAtEnd && detail && isUnderWay(detail)) {
      requestAnimationFrame(() => window.scrollTo(0, document.documentElement.scrollHeight));
    }
  }

  const onscroll = () => {
    isAtEnd = window.innerHeight + window.scrollY > document.documentElement.scrollHeight - 80;
  };
  window.addEventListener("scroll", onscroll, { passive: true });

  async function load() {
    try {
      let page = await get(runPath(runId, "/records"), { start: 0, limit: FIRST_PAGE });
      renew();
      for (;;) {
        // The next page is on its way while this one is added.
        const next = page.is_last ? null : get(runPath(runId, "/records"), { start: page.next, limit: PAGE });
        for (const record of page.records) conversation.add(record);
        stayAtEnd();
        if (!next) break;
        page = await next;
        if (!isOpen) return;
      }
      const start = page.next;
      if (!isOpen) return;
      box.setAttribute("aria-busy", "false");
      const record = location.hash.match(/^#(\d+)$/);
      if (record) openRecord(Number(record[1]));
      live.begin(start);
    } catch (error) {
      if (isOpen) box.replaceChildren(h("p", { class: "problem" }, error.message));
    }
  }

  function openRecord(seq) {
    const part = list.showRecord(seq);
    if (part) selected = part.at;
    history.replaceState(null, "", `#${seq}`);
  }

  /** Reads how the run stands and its timeline: soon, and once for many records. */
  function renew() {
    isDue = true;
    if (isRenewing || renewal !== null || !isOpen) return;
    renewal = setTimeout(async () => {
      renewal = null;
      isDue = false;
      isRenewing = true;
      try {
        // The chart of a long run is large: while it goes on it is drawn now and then.
        const isDrawn = detail !== null && isUnderWay(detail) && Date.now() - drawnAt < 2 * timeline.chart.bars.length;
        const [now, chart] = await Promise.all([get(runPath(runId)), isDrawn ? null : get(runPath(runId, "/timeline"))]);
        if (!isOpen) return;
        if (isDrawn) {
          clearTimeout(redraw);
          redraw = setTimeout(renew, isUnderWay(now) ? 2 * timeline.chart.bars.length : 0);
        }
        detail = now;
        drawDetail();
        if (chart) {
          timeline.set(chart, { isDriven: now.run.status === "running", isPaused: isPaused(now) });
          conversation.sayEnd(chart.marks.findLast((each) => each.kind === "end")?.label ?? "");
          drawnAt = Date.now();
        }
        await questions.set(now);
      } catch (error) {
        if (error instanceof ApiError && error.status === 404) status.textContent = error.message;
        else if (error instanceof ApiError && error.status === 401) location.reload();
      } finally {
        isRenewing = false;
        if (isDue && isOpen) renew();
      }
    }, detail ? AGAIN : 0);
  }

  function drawDetail() {
    const { run, totals } = detail;
    const isOver = ["answered", "no_answer", "failed"].includes(run.status);
    title.replaceChildren(...visible(oneLine(run.title || run.run_id, 200)));
    document.title = `${oneLine(run.title || run.run_id, 60)} · toolspeak`;
    status.replaceChildren(statusChip(run.status), detail.error ? h("span", { class: "bad-text" }, " ", visible(oneLine(detail.error, 300))) : "");
    const about = totals.is_estimated ? "~" : "";
    const rows = [
      ["Agent", run.agent], ["Model", run.model], ["Dialect", run.dialect], ["Folder", run.folder], ["On behalf of", run.principal],
      ["Tokens", `${about}${number(totals.input)} in${totals.cached ? ` (${number(totals.cached)} cached)` : ""}, ${about}${number(totals.output)} out${totals.reasoning ? ` (${number(totals.reasoning)} thoughts)` : ""}`],
      ["Cost", dollars(totals.cost)], ["Steps", `${detail.step}${detail.limits.steps ? ` of ${detail.limits.steps} at most` : ""}`], ["Calls", number(totals.calls)],
      ["Started", ago(run.created)], ["Last change", ago(run.updated)],
      ["Goes on", detail.until ? `at ${new Date(detail.until * 1000).toLocaleString()} at the latest` : null],
      ["Run", h("code", {}, visible(oneLine(run.run_id, 140)))],
      ["Session", run.session_id ? h("a", { href: `/?session=${encodeURIComponent(run.session_id)}` }, oneLine(run.session_id, 12)) : null],
      ["Started by", run.parent_run_id ? h("a", { href: `/runs/${encodeURIComponent(run.parent_run_id)}` }, "a tool of another run") : null],
    ];
    facts.replaceChildren(...rows.filter(([, value]) => value !== null && value !== undefined && value !== "").flatMap(([name, value]) =>
      [h("dt", {}, name), h("dd", {}, typeof value === "string" ? visible(oneLine(value, 400)) : value)]));
    subRuns.replaceChildren(...(detail.sub_runs.length ? [h("h2", {}, "Runs of its tools"), ...detail.sub_runs.map(runRow)] : []));
    say.hidden = isOver || !may("run");
    unread.replaceChildren(detail.unread_messages.length ? `Not read yet: ${detail.unread_messages.map((each) => oneLine(each, 80)).join(" · ")}` : "");
    actions.replaceChildren(button("Compare", () => void compareDialog(runId, go)), ...(may("run") ? [
      ["running", "queued", "waiting", "interrupted"].includes(run.status) ? button("Suspend", () => act("/suspension", (answer) => (answer.status === "suspended" ? "The run is suspended." : "The run stops after its current step."))) : null,
      run.status === "suspended" ? button("Resume", () => act("/resumption", () => "A worker will go on with the run.")) : null,
      isOver ? null : button("Message", () => {
        say.scrollIntoView({ block: "center" });
        words.focus();
      }),
      button("Fork", () => forkDialog(runId, detail, selected >= 0 ? { seq: list.parts[selected].seq, place: "the part that you selected" } : null, go)),
    ] : []).filter(Boolean));
  }

  const button = (label, action) => h("button", { type: "button", onclick: action }, label);

  async function act(path, outcomeOf) {
    try {
      notice(outcomeOf(await post(runPath(runId, path))), "good");
    } catch (error) {
      notice(error.message, "bad");
    }
    renew();
  }

  async function send(event) {
    event.preventDefault();
    const value = words.value.trim();
    if (!value) return;
    try {
      await post(runPath(runId, "/messages"), { text: value, key: crypto.randomUUID?.() ?? String(Math.random()) });
      words.value = "";
      notice("Sent. The run reads it at its next step.", "good");
    } catch (error) {
      notice(error.message, "bad");
    }
    renew();
  }

  const onkey = (event) => {
    if (event.target.closest?.("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "j" || event.key === "k") {
      selected = Math.max(0, Math.min(list.parts.length - 1, selected + (event.key === "j" ? 1 : -1)));
      if (list.parts[selected]) list.show(list.parts[selected]);
    } else if (event.key === "t") {
      timeline.box.scrollIntoView({ block: "center" });
      timeline.box.focus();
    }
  };
  document.addEventListener("keydown", onkey);
  let ticks = 0;
  const clock = setInterval(() => {
    if (document.hidden || !detail) return;
    ticks += 1;
    timeline.grow();
    if (isPaused(detail) && ticks % PAUSED_TICKS === 0) renew(); // its question or wait goes on, and nothing is recorded
  }, TICK);
  void load();
  return () => {
    isOpen = false;
    clearTimeout(renewal);
    clearTimeout(redraw);
    clearInterval(clock);
    live.close();
    list.close();
    timeline.close();
    window.removeEventListener("scroll", onscroll);
    document.removeEventListener("keydown", onkey);
  };
}

/** What the model read at a record, a page at a time. */
async function showMessages(runId, seq) {
  const body = h("div", { class: "messages" });
  const more = h("button", { type: "button", class: "more" }, "Show more");
  const close = h("button", { type: "button" }, "Close");
  const heading = h("h2", { id: "messages-title" }, "What the model read");
  const dialog = h("dialog", { class: "wide", "aria-labelledby": "messages-title" }, h("div", { class: "head" }, heading, close),
    h("p", { class: "faint" }, "The conversation at this step. The driver adds the instructions and the tools when it asks the model."), body, more);
  close.addEventListener("click", () => dialog.close());
  let start = 0;
  async function load() {
    more.disabled = true;
    try {
      const page = await get(runPath(runId, `/records/${seq}/messages`), { start, limit: 50 });
      start += page.messages.length;
      for (const each of page.messages) {
        body.append(h("div", { class: `message ${each.role}` }, h("h3", {}, each.role),
          each.parts.map((part) => (part.type === "ToolCall" || part.type === "ToolResult" ? callLine(part) : contentParts([part], new Place(runId, null, []))))));
      }
      heading.textContent = `What the model read: ${number(page.total)} messages`;
      more.hidden = start >= page.total;
    } catch (error) {
      notice(error.message, "bad");
    }
    more.disabled = false;
  }
  more.addEventListener("click", () => void load());
  openDialog(dialog);
  await load();
}

function callLine(part) {
  if (part.type === "ToolCall") return h("p", {}, h("b", {}, visible(part.name)), " ", h("code", {}, visible(JSON.stringify(part.arguments ?? {}))));
  return h("div", {}, h("p", { class: "faint" }, "result of ", visible(part.name ?? "")), contentParts(part.content, new Place("", null, [])));
}

/** `from`: the record before which the fork begins, what it is in words, and the text that stood there; null: after the last one. */
function forkDialog(runId, detail, from, go) {
  const last = detail.run.records;
  const seq = h("input", { id: "fork-seq", type: "number", min: 1, max: last, value: from ? Math.max(1, from.seq) : last, required: true });
  const place = h("p", {}, from ? `It begins before ${from.place}.` : "It begins after the last part.");
  seq.addEventListener("input", () => {
    place.textContent = `It begins before record ${seq.value}.`;
  });
  const task = h("textarea", { id: "fork-task", rows: 4, placeholder: "empty: the task that the conversation ends with" });
  task.value = from?.text ?? "";
  const agent = h("input", { id: "fork-agent", value: detail.run.agent, required: true });
  const model = h("input", { id: "fork-model", placeholder: detail.run.model });
  const dialect = h("input", { id: "fork-dialect", placeholder: detail.run.dialect ?? "" });
  const dialog = h("dialog", { "aria-labelledby": "fork-title" }, h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    const body = { seq: Number(seq.value) };
    if (task.value.trim()) body.task = task.value;
    if (agent.value !== detail.run.agent) body.agent = agent.value;
    if (model.value.trim()) body.model = model.value.trim();
    if (dialect.value.trim()) body.dialect = dialect.value.trim();
    try {
      const answer = await post(runPath(runId, "/forks"), body);
      dialog.close();
      go(`/runs/${encodeURIComponent(answer.run_id)}`);
    } catch (error) {
      notice(error.message, "bad");
    }
  } },
  h("h2", { id: "fork-title" }, "Fork the run"),
  h("p", { class: "faint" }, "A new run continues the conversation as it was at a place. “Fork before it” at a message or a turn begins there."), place,
  h("label", { for: "fork-task" }, "Task"), task,
  h("details", {}, h("summary", {}, "Another place"), h("label", { for: "fork-seq" }, `Before record (1 to ${last})`), seq),
  h("label", { for: "fork-agent" }, "Agent"), agent,
  detail.can_fork_model ? [h("label", { for: "fork-model" }, "Another model"), model, h("label", { for: "fork-dialect" }, "Another dialect"), dialect] : null,
  h("div", { class: "buttons" }, h("button", { class: "main", type: "submit" }, "Fork"), h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))));
  openDialog(dialog);
}

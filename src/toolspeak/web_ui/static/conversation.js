// A run's records as parts of a conversation: messages, turns, calls with their results, and what happened between.

import { Place, argumentList, contentParts, text } from "./content.js";
import { dollars, h, middleCut, number, oneLine, seconds, visible } from "./dom.js";
import { showRequest, writtenText } from "./turn-views.js";

export class Conversation {
  /** `list` shows the parts; `openMessages` shows what the model read at a record; `fork` begins a fork before a record. */
  constructor(runId, list, openMessages, fork = null) {
    this.runId = runId;
    this.list = list;
    this.openMessages = openMessages;
    this.fork = fork;
    this.endPart = null;
    this.endWords = "";
    this.calls = new Map();
    this.turn = null;
    this.startedAt = 0;
  }

  place(record, ...path) {
    return new Place(this.runId, record, path);
  }

  /** Adds the next record. */
  add(record) {
    const { kind, event, seq, time } = record;
    switch (kind) {
      case "RunStarted": {
        this.startedAt = time;
        const messages = event.messages ?? [];
        if (messages.length > 1) this.mark(record, `The run goes on from ${messages.length - 1} earlier messages.`, () => this.earlier(record, messages));
        const last = messages.length - 1;
        if (last >= 0) this.message(record, messages[last], ["messages", last]);
        break;
      }
      case "UserMessageQueued":
        this.message(record, event.message, ["message"], event.by);
        break;
      case "ModelAsked":
        if (this.turn) this.finishTurn(record, "cut off: the turn was asked for again");
        this.turn = this.part(record, { model: event.model, asked: record, text: "", thoughts: "", raw: "", attempts: [], pieces: null, answered: null }, (part) => this.drawTurn(part));
        break;
      case "ModelTextReceived":
        if (this.turn) {
          this.turn.raw += (event.reasoning ?? "") + (event.text ?? "");
          this.turn.seqs.push(seq);
          this.changed(this.turn);
        }
        break;
      case "ModelAnswered": {
        const turn = this.turn ?? this.part(record, { model: "", asked: record, raw: "", attempts: [] }, (part) => this.drawTurn(part));
        turn.answered = record;
        turn.seqs.push(seq);
        turn.pieces = null;
        this.turn = null;
        this.changed(turn);
        (event.message?.parts ?? []).forEach((part, at) => {
          if (part.type === "ToolCall" || part.type === "MalformedCall") this.call(record, part, ["message", "parts", at]);
        });
        break;
      }
      case "RetryScheduled": {
        const again = `again after ${seconds(event.seconds)}${event.by ? ` (${event.by})` : ""}: ${event.error}`;
        if (event.call_id) this.happened(record, `attempt ${event.attempt ?? 1} failed, it runs ${again}`);
        else if (this.turn) {
          this.turn.attempts.push({ at: time, words: `Attempt ${event.attempt ?? 1} failed, the model is asked ${again}`, raw: this.turn.raw });
          this.turn.raw = "";
          this.turn.pieces = null;
          this.turn.seqs.push(seq);
          this.changed(this.turn);
        } else this.mark(record, `The model's API failed, it is asked ${again}`, null, "bad");
        break;
      }
      case "ModelFailed":
        if (this.turn) this.finishTurn(record, "failed");
        this.mark(record, `The model's API failed: ${event.error}`, null, "bad");
        break;
      case "ApprovalRequested": {
        const call = this.calls.get(event.call_id) ?? this.call(record, event.call, ["call"]);
        call.questions.push(record);
        this.touch(call, record, "asked for approval");
        break;
      }
      case "ApprovalDecided":
        this.happened(record, `${event.approved ? "approved" : "refused"} by ${event.by || "someone"}${event.arguments ? ", with other arguments" : ""}${event.reason ? `: ${event.reason}` : ""}`);
        break;
      case "ToolStarted": {
        const call = this.known(record, event.call_id, event.name, event.changed);
        call.startedAt = time;
        if (event.changed && call.path[0] !== "changed") call.changed = record;
        const waited = event.waited_for?.length ? `, after ${event.waited_for.map((id) => this.callLabel(id)).join(", ")}` : "";
        this.touch(call, record, `started${call.isStarted ? " again" : ""}${waited}${event.early ? ", before its turn was over" : ""}`);
        call.isStarted = true;
        break;
      }
      case "CallSuspended":
        this.happened(record, event.event ? `waits for ${event.event}` : event.event === "" ? "waits for a time" : "waits for a run that it started");
        break;
      case "WaitEnded":
        this.happened(record, event.expired ? "the time is over" : `${event.event || "the time"} has come${event.by ? `, from ${event.by}` : ""}`);
        break;
      case "ToolFinished": {
        const call = this.known(record, event.result.call_id, event.result.name);
        call.result = record;
        this.touch(call, record, "");
        break;
      }
      case "SubRunUsed":
        this.mark(record, `${event.agent} ran for a call`, () => h("a", { href: `/runs/${encodeURIComponent(event.run_id)}` }, "Its run"));
        break;
      case "RunPaused":
        this.mark(record, event.reason === "awaiting_approval" ? "The run waits for approval." : `The run is ${event.reason}.`);
        break;
      case "RunResumed":
        if (this.turn) this.finishTurn(record, "cut off: the process that drove the run was lost");
        this.mark(record, "A process goes on with the run.");
        break;
      case "LimitReached":
        this.mark(record, `The limit of ${event.allowed} ${event.limit} is reached.`, null, "warn");
        break;
      case "HistoryCompacted":
        this.mark(record, `The history was made shorter: ${number(event.tokens_before ?? 0)} tokens became ${number(event.tokens_after ?? 0)}.`,
          event.summary ? () => text(event.summary, this.place(record, "summary")) : null);
        break;
      case "HandedOff":
        this.mark(record, `${event.agent} continues, with ${event.model}.`);
        break;
      case "AnswerRejected":
        this.mark(record, "The answer does not have the type that was asked for.", () => text(event.reason ?? "", this.place(record, "reason")), "warn");
        break;
      case "StopRequested":
        this.mark(record, `The run is to stop (${event.reason}): ${event.message}`, null, "warn");
        break;
      case "InterceptorFailed":
        this.mark(record, `The interceptor ${event.interceptor} failed: ${event.error}`, null, "bad");
        break;
      case "RunFinished":
        if (this.turn) this.finishTurn(record, "cut off");
        this.endPart = this.part(record, {}, () => h("article", { class: `part mark ${event.status === "answered" ? "good" : "bad"}` },
          h("p", {}, visible(`The run is over: ${this.endWords || event.status.replaceAll("_", " ")}.`), " ", this.at(time))));
        break;
      case "RunConfigured":
      case "MetadataSet":
        break;
      default:
        this.mark(record, kind);
    }
  }

  /** How the run ended, in words of the server. */
  sayEnd(words) {
    if (words === this.endWords) return;
    this.endWords = words;
    if (this.endPart) this.changed(this.endPart);
  }

  /** Shows pieces of the turn under way. */
  deltas(pieces) {
    for (const piece of pieces) {
      if (piece.type === "ToolProgress") {
        const call = this.calls.get(piece.call_id);
        if (call && !call.result) {
          call.progress = piece.message;
          this.changed(call);
        }
        continue;
      }
      const turn = this.turn;
      if (!turn) continue;
      turn.pieces ??= { text: "", thoughts: "", calls: new Map() };
      const now = turn.pieces;
      switch (piece.type) {
        case "TextDelta": case "TextAside": now.text += piece.text; break;
        case "ReasoningDelta": now.thoughts += piece.text; break;
        case "TextWasReasoning": [now.thoughts, now.text] = [now.thoughts + now.text, ""]; break;
        case "TurnRestarted": turn.pieces = null; break;
        case "CallStarted": now.calls.set(piece.index, { name: piece.name, text: "" }); break;
        case "ArgumentsDelta": if (now.calls.has(piece.index)) now.calls.get(piece.index).text += piece.text; break;
        default: break;
      }
      this.changed(turn);
    }
  }

  /** The pieces of a connection that broke may be incomplete: the checkpoints count from here on. */
  forgetPieces() {
    if (this.turn?.pieces) {
      this.turn.pieces = null;
      this.turn.isBroken = true;
      this.changed(this.turn);
    }
  }

  part(record, fields, draw) {
    const part = { seq: record.seq, seqs: [record.seq], time: record.time, ...fields };
    part.draw = () => draw(part);
    this.list.push(part);
    return part;
  }

  /** Draws a part anew, at most once a frame. */
  changed(part) {
    if (part.isDue) return;
    part.isDue = true;
    requestAnimationFrame(() => {
      part.isDue = false;
      this.list.refresh(part);
    });
  }

  touch(call, record, news) {
    call.seqs.push(record.seq);
    if (news) call.news.push({ at: record.time, news });
    this.changed(call);
  }

  happened(record, news) {
    const call = this.calls.get(record.event.call_id);
    if (call) this.touch(call, record, news);
    else this.mark(record, `${record.event.call_id}: ${news}`);
  }

  finishTurn(record, why) {
    this.turn.end = why;
    this.turn.pieces = null;
    this.changed(this.turn);
    this.turn = null;
  }

  at(time) {
    return h("span", { class: "at", title: new Date(time * 1000).toLocaleString() }, `+${seconds(Math.max(0, time - this.startedAt))}`);
  }

  mark(record, words, more = null, kind = "") {
    this.part(record, {}, () => h("article", { class: `part mark ${kind}` }, h("p", {}, visible(words.slice(0, 2000)), " ", this.at(record.time)), more ? more() : null));
  }

  earlier(record, messages) {
    return h("details", {}, h("summary", {}, "Show them"), messages.slice(0, -1).map((each, at) =>
      h("div", { class: `message ${each.role}` }, h("h3", {}, each.role), contentParts(each.parts, this.place(record, "messages", at, "parts")))));
  }

  message(record, message, path, by = "") {
    const texts = (message.parts ?? []).map((each) => (each.type === "TextPart" ? each.text ?? "" : "")).join("");
    this.part(record, {}, (part) => h("article", { class: `part message ${message.role}` },
      h("h3", {}, message.role, by ? [" · ", visible(by)] : null, " ", this.at(record.time)),
      contentParts(message.parts, this.place(record, ...path, "parts")),
      this.fork && record.seq > 0 ? h("div", { class: "tools" }, this.forkButton(part.seq, "this message", record.cut?.length ? "" : texts)) : null));
  }

  forkButton(seq, place, text = "") {
    return h("button", { type: "button", class: "plain", onclick: () => this.fork(seq, place, text) }, "Fork before it");
  }

  drawTurn(part) {
    const { answered, pieces } = part;
    const head = [h("span", {}, "model"), h("span", { class: "faint" }, visible(oneLine(part.model ?? "", 60))), this.at(part.time)];
    const body = part.attempts.map((each) => h("div", {}, h("p", { class: "notes" }, this.at(each.at), " ", visible(each.words.slice(0, 2000))),
      each.raw ? h("details", {}, h("summary", {}, "What it had written by then"), h("div", { class: "text mono" }, visible(each.raw))) : null));
    if (answered) {
      const { event } = answered;
      const usage = event.usage ?? {};
      const about = event.usage_estimated ? "~" : "";
      head.push(h("span", { class: "faint" }, `step ${answered.step} · ${about}${number(usage.input ?? 0)} in, ${about}${number(usage.output ?? 0)} out`
        + `${usage.cached ? ` (${number(usage.cached)} cached)` : ""}${event.cost !== undefined && event.cost !== null ? ` · ${dollars(event.cost)}` : ""} · ${seconds(answered.time - part.time)}`));
      const place = this.place(answered, "message", "parts");
      (event.message?.parts ?? []).forEach((each, at) => {
        if (each.type !== "ToolCall" && each.type !== "MalformedCall") {
          body.push(...contentParts([each], { at: () => place.at(at) }));
        }
      });
      (event.ignored ?? []).forEach((call, at) => body.push(h("details", {}, h("summary", {}, "This call does not count: ", visible(oneLine(call.name, 80))),
        argumentList(call.arguments, this.place(answered, "ignored", at, "arguments")))));
      const notes = [...(event.notes ?? []),
        ...(event.forged?.length ? [`${event.forged.length} results that the model made up`] : []),
        ...(event.finish && !["stop", "tool_calls"].includes(event.finish) ? [`finish: ${event.finish}`] : [])];
      if (notes.length) body.push(h("p", { class: "notes" }, visible(notes.join(" · "))));
    } else if (pieces) {
      if (pieces.thoughts) body.push(h("details", { class: "thoughts", open: !pieces.text }, h("summary", {}, "Thoughts"), h("div", { class: "text" }, visible(pieces.thoughts))));
      if (pieces.text) body.push(h("div", { class: "text live" }, visible(pieces.text)));
      for (const call of pieces.calls.values()) body.push(h("div", { class: "call-start" }, h("b", {}, visible(call.name)), " ", h("code", {}, visible(call.text.slice(-2000)))));
    } else if (part.end) {
      head.push(h("span", { class: "warn-text" }, part.end));
      if (part.raw) body.push(h("div", { class: "text" }, visible(part.raw)));
    } else if (part.raw) {
      body.push(h("div", { class: "text live" }, visible(part.raw)));
    } else body.push(h("p", { class: "faint live" }, "writes …"));
    const tools = [];
    if (this.openMessages && part.asked.kind === "ModelAsked") {
      tools.push(h("button", { type: "button", class: "plain", onclick: () => this.openMessages(part.asked.seq) }, "What the model read"));
      tools.push(h("button", { type: "button", class: "plain", onclick: () => void showRequest(this.runId, part.asked.seq) }, "What was sent"));
      if (this.fork) tools.push(this.forkButton(part.asked.seq, `this turn of the model (step ${part.asked.step})`));
      const isWritten = part.raw || answered?.event.raw_text !== undefined || answered?.event.raw_reasoning !== undefined;
      if (isWritten && (answered || part.end)) tools.push(writtenText(this.runId, part.asked.seq));
    }
    return h("article", { class: `part message assistant${answered || part.end ? "" : " writing"}` }, h("h3", {}, head), body, h("div", { class: "tools" }, tools));
  }

  call(record, call, path) {
    const id = call.id ?? record.event.call_id;
    const part = this.part(record, { call, path, record, news: [], questions: [], result: null, progress: "" }, (each) => this.drawCall(each));
    this.calls.set(id, part);
    return part;
  }

  /** A call on one line, as the timeline names it. */
  callLabel(id) {
    const call = this.calls.get(id)?.call;
    return call ? middleCut(`${call.name}(${Object.values(call.arguments ?? {}).map((each) => JSON.stringify(each)).join(", ")})`, 80) : id;
  }

  /** The part of a call; one of its own for a call that no turn has. */
  known(record, id, name, changed) {
    return this.calls.get(id) ?? this.call(record, { type: "ToolCall", id, name, arguments: changed?.arguments }, ["changed"]);
  }

  drawCall(part) {
    const { call, record, result } = part;
    const place = this.place(record, ...part.path);
    const isMalformed = call.type === "MalformedCall";
    const failed = isMalformed || result?.event.result?.status === "failure";
    const state = result ? (failed ? "failed" : "done") : isMalformed ? "failed" : part.isStarted ? "runs" : part.questions.length ? "asks" : "waits";
    const words = { failed: "✗ failed", done: "✓ done", runs: "● runs", asks: "? waits for approval", waits: "… waits" };
    const duration = result && part.startedAt ? ` in ${seconds(result.time - part.startedAt)}` : "";
    const name = visible(oneLine(call.name ?? "malformed call", 80));
    const body = [];
    if (isMalformed) body.push(h("p", { class: "notes" }, visible(call.reason ?? "")), text(call.raw ?? "", place.at("raw"), { kind: "mono" }));
    else if (part.changed) {
      const changedPlace = this.place(part.changed, "changed", "arguments");
      body.push(h("h4", {}, "It ran with"), argumentList(part.changed.event.changed.arguments, changedPlace),
        h("details", {}, h("summary", {}, "The model asked for"), argumentList(call.arguments, place.at("arguments"))));
    } else body.push(argumentList(call.arguments, place.at("arguments")));
    if (call.repaired_from) body.push(h("details", {}, h("summary", {}, "The model wrote this, which is not valid"), text(call.repaired_from, place.at("repaired_from"), { kind: "mono" })));
    for (const { at, news } of part.news) body.push(h("p", { class: "news" }, this.at(at), " ", visible(news)));
    if (part.progress && !result) body.push(h("pre", { class: "progress" }, visible(part.progress)));
    if (result) {
      const content = result.event.result;
      const of = this.place(result, "result");
      body.push(h("div", { class: "result" }, h("h4", {}, content.status === "failure" ? ["Error", content.code ? [" (", visible(content.code), ")"] : ""] : "Result"),
        contentParts(content.content, of.at("content"))));
    }
    return h("article", { class: `part call ${state}`, "data-call": call.id },
      h("h3", {}, h("span", { class: "state" }, words[state]), h("span", { class: "name" }, name), h("span", { class: "faint" }, duration), this.at(part.time)),
      body);
  }
}

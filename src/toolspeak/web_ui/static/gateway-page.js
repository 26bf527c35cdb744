// The gateway: upstreams, streams, latency, calls that cannot be read, keys. Live.

import { gatewayEventsUrl } from "./api.js";
import { h, number, oneLine, seconds, svg, visible } from "./dom.js";

const MOST_STREAMS = 200; // the server lists no more
const FIRST_WAIT = 500, LONGEST_WAIT = 5000;
const MOST_STREAM_POINTS = 150; // five minutes
const STATES = {
  up: ["good", "up"], aside: ["bad", "put aside"], probing: ["warn", "being probed"], answers: ["warn", "answers again"],
  trial: ["warn", "on trial"],
};
const LIMITS = { requests_per_minute: "requests a minute", streams: "streams", tokens_per_day: "tokens a day" };

export function gatewayPage(main) {
  document.title = "Gateway · toolspeak";
  let source = null, timer = null, wait = FIRST_WAIT, isOpen = true;
  const active = [];
  const state = h("p", { class: "faint", role: "status" }, "Loading …");
  const tiles = h("div", { class: "tiles" });
  const problem = h("p", { class: "problem" });
  const streams = table("Streams", ["Model", "Upstream", "Key", "Age", "Tokens so far", "Answer", "Request"]);
  const upstreams = table("Upstreams", ["Upstream", "Serves", "State", "Under way", "Requests", "Failures", "Took over"]);
  const models = table("Models", ["Model", "Requests", "Errors", "Tokens in", "Tokens out", "First token", "Whole answer"]);
  const dialects = table("Calls, as each dialect reads them", ["Model", "Dialect", "Calls", "Malformed", "Made-up results", "Asked again"]);
  const keys = table("Keys", ["Key", "Models", "Requests", "Refused", "Errors", "Tokens in", "Tokens out", "Calls", "Limits"]);
  const lists = [streams, upstreams, models, dialects, keys];
  main.append(h("div", { class: "head" }, h("h1", {}, "Gateway")), state, problem, tiles, ...lists.map((each) => each.element));

  function connect() {
    if (!isOpen) return;
    source = new EventSource(gatewayEventsUrl());
    source.addEventListener("gateway", (event) => {
      wait = FIRST_WAIT;
      draw(JSON.parse(event.data));
    });
    source.addEventListener("error", () => {
      source.close();
      if (!isOpen) return;
      state.textContent = "The server does not answer; trying again …";
      timer = setTimeout(connect, wait);
      wait = Math.min(LONGEST_WAIT, wait * 2);
    });
  }

  function draw(status) {
    const minutes = status.window >= 60 ? `${Math.round(status.window / 60)} min` : `${Math.round(status.window)} s`;
    state.textContent = `live · ${status.workers === 1 ? "1 process" : `${status.workers} processes`}, up for ${seconds(Math.round(status.time - status.since))} · “recent” is the last ${minutes}`;
    problem.replaceChildren(visible(status.problem));
    active.push(status.active);
    if (active.length > MOST_STREAM_POINTS) active.shift();
    const rejected = Object.entries(status.rejected);
    const refusals = rejected.reduce((sum, [, count]) => sum + count, 0);
    const calls = status.dialects.reduce((sum, each) => sum + each.calls, 0), malformed = status.dialects.reduce((sum, each) => sum + each.malformed, 0);
    const failovers = status.upstreams.reduce((sum, each) => sum + each.failovers, 0);
    tiles.replaceChildren(
      tile("Streams now", number(status.active), [`of ${number(status.places)} places`, status.queued ? ` · ${number(status.queued)} wait` : "", bars(active)]),
      tile("Upstreams up", `${status.upstreams.filter((each) => isUp(each)).length} of ${status.upstreams.length}`, `${number(failovers)} requests moved to another one`),
      tile("Calls", number(calls), `${number(malformed)} malformed`),
      tile("Not let in", number(refusals), visible(rejected.map(([code, count]) => `${code}: ${number(count)}`).join(" · "))));
    streams.set(status.streams.map((each) => [name(each.model), visible(oneLine(each.upstream, 120)), each.key ? visible(oneLine(each.key, 120)) : h("span", { class: "faint" }, "none"),
      seconds(Math.max(0, Math.round(status.time - each.began))), each.tokens ? `~${number(each.tokens)}` : "–", each.is_streamed ? "streamed" : "whole", h("code", {}, visible(oneLine(each.id, 100)))]));
    streams.note(status.streams.length < MOST_STREAMS ? (status.streams.length ? "" : "No request is answered now.")
      : `The ${number(MOST_STREAMS)} that began first.`);
    upstreams.set(status.upstreams.map((each) => [name(each.upstream), each.names.map((one, at) => [at ? ", " : "", visible(oneLine(one, 80))]),
      stateChips(each, status.time), count(each.active), count(each.requests, each.recent_requests),
      [count(sum(each.failures), each.recent_failures), h("div", { class: "faint" }, visible(Object.entries(each.failures).map(([code, times]) => `${code}: ${number(times)}`).join(" · ")))],
      count(each.failovers, each.recent_failovers)]));
    models.set(status.models.map((each) => [name(each.model), count(each.requests, each.recent_requests), count(each.errors, each.recent_errors),
      number(each.input_tokens), number(each.output_tokens), latency(each.first), latency(each.whole)]));
    dialects.set(status.dialects.map((each) => [name(each.model), visible(each.dialect), count(each.calls, each.recent_calls),
      [count(each.malformed, each.recent_malformed), each.malformed ? h("span", { class: "faint" }, ` ${share(each.malformed, each.calls + each.malformed)}`) : ""],
      number(each.forged), number(each.repeated)]));
    keys.set(status.keys.map((each) => [[name(each.name), expiry(each.expires, status.time)], visible(oneLine(each.models.join(", "), 120)), number(each.requests), number(each.refusals), number(each.errors),
      number(each.input_tokens), number(each.output_tokens), [number(each.calls), each.malformed ? ` (${number(each.malformed)} malformed)` : ""],
      each.limits.length ? each.limits.map((limit) => meter(each.name, limit)) : h("span", { class: "faint" }, "none")]));
    keys.note(status.keys.length ? (status.usage_of === "today" ? "Today, in UTC." : "Since the start: no usage is stored.") : "The gateway has no keys: it serves this machine.");
    models.note(`Latency is that of the last ${minutes}: half of the answers, 95 %, and 99 % were faster.`);
    dialects.note(status.dialects.length ? "" : "No model has made a call yet.");
    upstreams.note(status.left_out ? `${number(status.left_out)} entries with the fewest requests are left out of the lists.` : "");
  }

  connect();
  return () => {
    isOpen = false;
    clearTimeout(timer);
    source?.close();
  };
}

const isUp = (upstream) => Object.keys(upstream.states).every((each) => each === "up") && Object.keys(upstream.states).length > 0;
const sum = (counts) => Object.values(counts).reduce((total, each) => total + each, 0);
const share = (part, whole) => `${whole ? Math.round((part / whole) * 100) : 0} %`;
const name = (text) => h("span", { class: "mono" }, visible(oneLine(text, 120)));
const count = (total, recent) => (recent ? [number(total), h("span", { class: "faint" }, ` (${number(recent)} recent)`)] : number(total));

function stateChips(upstream, now) {
  const entries = Object.entries(upstream.states);
  if (!entries.length) return h("span", { class: "chip calm" }, "not known yet");
  const chips = entries.map(([state, workers]) => {
    const [kind, words] = STATES[state] ?? ["calm", state];
    return h("span", { class: `chip ${kind}` }, entries.length > 1 ? `${words} in ${workers}` : words);
  });
  const rest = upstream.until === null ? 0 : upstream.until - now;
  return [chips.flatMap((each) => [each, " "]), upstream.until === null ? "" : h("div", { class: "faint" }, rest > 0 ? `asked again in ${seconds(Math.ceil(rest))}` : "asked again with the next request")];
}

function latency(value) {
  if (!value) return h("span", { class: "faint" }, "–");
  const short = (each) => seconds(Number(each.toPrecision(2)));
  return h("span", { title: `of ${number(value.count)} answers` }, `${short(value.p50)} · ${short(value.p95)} · ${short(value.p99)}`);
}

function meter(key, { limit, usage, most }) {
  const words = `${number(usage)} of ${number(most)} ${LIMITS[limit] ?? limit}`;
  return h("div", { class: "limit" }, h("meter", { min: 0, max: most, high: most * 0.8, value: Math.min(usage, most), "aria-label": oneLine(`${key}: ${words}`, 200) }), h("span", {}, words));
}

function expiry(moment, now) {
  if (moment === null) return "";
  const text = moment <= now ? "expired" : `until ${new Date(moment * 1000).toISOString().slice(0, 10)}`;
  return h("span", { class: moment <= now ? "bad-text" : "faint" }, ` ${text}`);
}

const tile = (title, value, note) => h("div", { class: "tile" }, h("h2", {}, title), h("p", { class: "value" }, value), h("p", { class: "faint" }, note));

/** How a number was while the page was open, for the eye alone. */
function bars(values) {
  const most = Math.max(1, ...values);
  return svg("svg", { class: "bars", "aria-hidden": "true", viewBox: `0 0 ${MOST_STREAM_POINTS} 20`, preserveAspectRatio: "none" },
    ...values.map((each, at) => svg("rect", { x: MOST_STREAM_POINTS - values.length + at, y: 20 - (20 * each) / most, width: 0.8, height: (20 * each) / most })));
}

/** A list that is drawn anew. A cell that says the same stays, so that a selection and the focus do. */
function table(title, columns) {
  const body = h("tbody");
  const note = h("p", { class: "faint" });
  const heading = h("h2", {}, title);
  const scroll = h("div", { class: "table", tabindex: 0, role: "region", "aria-label": title },
    h("table", {}, h("thead", {}, h("tr", {}, columns.map((each) => h("th", { scope: "col" }, each)))), body));
  const element = h("section", { class: "sheet" }, heading, note, scroll);
  return {
    element,
    note: (text) => (note.textContent = text),
    set(rows) {
      scroll.hidden = !rows.length;
      const old = [...body.children];
      rows.forEach((cells, at) => {
        const row = h("tr", {}, cells.map((cell, column) => h(column ? "td" : "th", { "data-label": columns[column], ...(column ? {} : { scope: "row" }) }, cell)));
        if (!old[at]) body.append(row);
        else [...row.children].forEach((cell, column) => {
          const before = old[at].children[column];
          if (!before.isEqualNode(cell)) before.replaceWith(cell);
        });
      });
      for (const each of old.slice(rows.length)) each.remove();
    },
  };
}

// Questions about calls: everything that a decision is about is shown, before it can be made.

import { ApiError, get, may, post, runPath } from "./api.js";
import { argumentForm } from "./argument-form.js";
import { Place, argumentList, isDiff, text, wholeText } from "./content.js";
import { h, notice, oneLine, visible } from "./dom.js";

const MOST_EDITED = 1_900_000; // the server takes requests of 2 MB

/** The panel of the open questions of a run. `decided` is called after each answer of the server. */
export class Questions {
  constructor(runId, decided) {
    this.runId = runId;
    this.decided = decided;
    this.element = h("section", { class: "questions", "aria-label": "Questions", hidden: true });
    this.boxes = new Map();
  }

  /** Shows the questions of a run as it stands. A question that stays is not drawn anew: somebody may be typing. */
  async set(detail) {
    const open = new Map(detail.questions.map((each) => [each.digest + each.call_id, each]));
    for (const [key, box] of this.boxes) {
      if (!open.has(key)) {
        box.element.remove();
        this.boxes.delete(key);
      }
    }
    for (const [key, question] of open) {
      let box = this.boxes.get(key);
      if (!box) {
        box = { element: h("div", { class: "ask" }), isReady: false };
        this.boxes.set(key, box);
        this.element.append(box.element);
        const page = await get(runPath(this.runId, "/records"), { start: question.seq, limit: 1 });
        if (!page.records.length) continue;
        this.fill(box, question, await withEvent(this.runId, page.records[0]));
      }
      box.update?.(question, detail.asks_elsewhere);
    }
    this.element.hidden = !this.boxes.size;
  }

  fill(box, question, record) {
    const { event } = record;
    const place = new Place(this.runId, record, [], true);
    const call = event.call;
    let missing = 1 + (event.preview ? 1 : 0) + (call.repaired_from ? 1 : 0);
    const whole = () => {
      missing -= 1;
      if (missing === 0 && box.allow) box.allow();
    };
    const approve = h("button", { type: "button", class: "main", onclick: () => this.decide(box, question, { action: "approve" }) }, "Approve");
    const reason = h("input", { "aria-label": "Reason of a refusal", placeholder: "reason, for the model", maxlength: 20000 });
    const ends = h("input", { type: "checkbox", id: `ends-${record.seq}` });
    const refuse = h("button", { type: "button", class: "danger", onclick: () => this.decide(box, question, { action: "refuse", reason: reason.value, ends_run: ends.checked }) }, "Refuse");
    // What a rule would hold for is in words of the server, which makes it of the question as it is shown here.
    const scope = h("select", { "aria-label": "Always approve" }, question.always.map((each) => h("option", { value: each.scope }, oneLine(each.text, 200))));
    const always = h("button", { type: "button", onclick: () => this.decide(box, question, { action: "always", scope: scope.value }) }, "Always approve");
    const editor = h("textarea", { "aria-label": "Arguments as JSON", rows: 8, spellcheck: "false", disabled: true });
    const fields = h("div"), flip = h("button", { type: "button", hidden: true });
    let isLoading = false, isLoaded = false, form = null;
    /** Shows the arguments as a form, if they have one, or as JSON. */
    const showAs = (isForm) => {
      form = isForm ? argumentForm(question.parameters, editor.value, `argument-${record.seq}`) : null;
      fields.replaceChildren(form ? form.element : "");
      editor.hidden = form !== null;
      flip.textContent = form ? "As JSON" : "As a form";
      if (isForm && !form) problem.textContent = "These arguments have no form: write them as JSON.";
    };
    const written = () => (form ? form.text() : editor.value);
    flip.addEventListener("click", () => {
      problem.textContent = "";
      try {
        editor.value = written();
        showAs(!form);
      } catch (error) {
        problem.textContent = error.message;
      }
    });
    /** Only whole arguments can be edited, as the server wrote them: the record has long values cut, and numbers of
        this program lose digits. */
    const load = async () => {
      if (isLoading || isLoaded) return;
      isLoading = true;
      problem.textContent = "";
      try {
        editor.value = await wholeText(place.at("call", "arguments"));
        if (new Blob([editor.value]).size > MOST_EDITED) {
          problem.textContent = "These arguments are too long to be edited here: approve or refuse them.";
          return;
        }
        isLoaded = true;
        editor.disabled = false;
        if (argumentForm(question.parameters, editor.value, "")) {
          showAs(true);
          flip.hidden = false;
        }
      } catch (error) {
        problem.textContent = `The arguments could not be read: ${error.message}`;
      } finally {
        isLoading = false;
      }
    };
    const save = h("button", { type: "button", class: "main", onclick: () => {
      if (!isLoaded) return;
      let changed = "";
      try {
        changed = written();
        const values = JSON.parse(changed);
        if (values === null || typeof values !== "object" || Array.isArray(values)) throw new Error("the arguments are a JSON object");
      } catch (error) {
        problem.textContent = `These are no arguments: ${error.message}`;
        return;
      }
      void this.decide(box, question, { action: "edit" }, changed);
    } }, "Approve with these arguments");
    const edit = h("details", { class: "edit", ontoggle: () => {
      unedited.hidden = edit.open; // else a click approves what was edited as it was
      void load();
    } }, h("summary", {}, "Edit the arguments"), flip, fields, editor, save);
    const hint = h("p", { class: "notes" }, "Show everything before you approve.");
    const problem = h("p", { class: "problem", role: "alert" });
    const unedited = h("div", { class: "buttons" }, approve, question.always.length ? [always, scope] : null);
    const controls = h("div", { class: "controls" }, unedited,
      h("div", { class: "buttons" }, refuse, reason, h("label", { for: ends.id, class: "inline" }, ends, " and end the run")), edit);
    const outcome = h("p", { class: "outcome" });
    const approving = [approve, always, save];
    box.allow = () => {
      for (const each of approving) each.disabled = false;
      hint.hidden = true;
    };
    for (const each of approving) each.disabled = true;
    const effects = describeEffects(event.effects ?? {});
    box.element.replaceChildren(
      h("h2", {}, h("span", { class: "chip asks" }, "asks"), " ", h("span", { class: "name" }, visible(call.name ?? "", true))),
      h("p", {}, visible(event.reason ?? "", true), effects ? [" · ", h("span", { class: "faint" }, visible(effects, true))] : null),
      argumentList(call.arguments, place.at("call", "arguments"), { open: true, onwhole: whole }),
      call.repaired_from ? h("div", { class: "preview" }, h("h3", {}, "The model wrote this, which is not valid"),
        text(call.repaired_from, place.at("call", "repaired_from"), { kind: "mono", onwhole: whole })) : "",
      event.preview ? h("div", { class: "preview" }, h("h3", {}, "What it would change"),
        text(event.preview, place.at("preview"), { kind: isDiff(event.preview) ? "diff" : "mono", onwhole: whole })) : "",
      hint, problem, controls, outcome);
    box.problem = problem;
    box.controls = controls;
    if (missing === 0) box.allow();
    box.update = (now, asksElsewhere) => {
      const isOver = Boolean(now.decided_by);
      controls.hidden = isOver || asksElsewhere || !may("approve");
      outcome.replaceChildren(isOver ? visible(`${now.decision} by ${now.decided_by}. The run goes on once a worker or \`toolspeak resume\` drives it.`)
        : asksElsewhere ? "The process that drives the run asks its own person."
          : may("approve") ? "" : "You may look; a decision needs the role “approve”.");
      if (isOver) hint.hidden = true;
    };
  }

  /** `argumentsText`: new arguments as JSON, which are sent as they are written. */
  async decide(box, question, answer, argumentsText = undefined) {
    box.controls.inert = true;
    box.problem.textContent = "";
    try {
      const body = { call_id: question.call_id, digest: question.digest, ...answer };
      const made = await post(runPath(this.runId, "/decisions"), body, argumentsText === undefined ? {} : { arguments: argumentsText });
      notice(made.approved ? "Approved." : "Refused.", "good");
    } catch (error) {
      if (error instanceof ApiError && error.code === "decided") notice(`Too late: ${error.by} has decided about this call. ${error.message}`, "bad");
      else box.problem.textContent = error.message;
    }
    box.controls.inert = false;
    this.decided();
  }
}

/** The record with its event: one that is so large that the API leaves it out is read in parts. */
async function withEvent(runId, record) {
  if (!record.cut.some((each) => !each.place.length)) return record;
  return { ...record, event: JSON.parse(await wholeText(new Place(runId, record, []))), cut: [] };
}

function describeEffects(effects) {
  if (effects.declared === false) return ""; // the reason says so
  const parts = [];
  if (effects.reads?.length) parts.push(`reads ${effects.reads.join(", ")}`);
  if (effects.writes?.length) parts.push(`writes ${effects.writes.join(", ")}`);
  if (effects.external) parts.push("leaves this machine");
  return parts.join("; ");
}

// A turn from both sides: what the model was sent, byte by byte, and what it wrote, as the parser read it.

import { get, runPath } from "./api.js";
import { jsonTree } from "./content.js";
import { h, notice, number, visible } from "./dom.js";
import { openDialog } from "./run-list.js";

const PART = 200000;
const MOST_TREE = 2000000;

/** The body of the request of a turn: as a tree, and as the text that was sent. */
export async function showRequest(runId, seq) {
  const close = h("button", { type: "button" }, "Close");
  const proof = h("p", { class: "proof", role: "status" }, "Made again of the run's records …");
  const tree = h("div", { class: "sent" }), raw = h("div", { class: "text mono sent", hidden: true, tabindex: 0, role: "region", "aria-label": "The body as text" });
  const more = h("button", { type: "button", class: "more", hidden: true });
  const save = h("button", { type: "button", disabled: true }, "Copy");
  const flip = h("button", { type: "button", "aria-pressed": "false", disabled: true }, "As text");
  const dialog = h("dialog", { class: "wide", "aria-labelledby": "sent-title" },
    h("div", { class: "head" }, h("h2", { id: "sent-title" }, "What the model was sent"), h("div", { class: "buttons" }, flip, save, close)), proof, tree, raw, more);
  let body = "", total = 0;
  const path = runPath(runId, `/records/${seq}/request`);
  async function load() {
    more.disabled = true;
    try {
      const piece = await get(path, { start: [...body].length, length: PART });
      body += piece.text;
      total = piece.total;
      proof.replaceChildren(...visible(piece.is_proved ? `✓ Verbatim: ${number(total)} characters, whose SHA-256 is the one that the run recorded when it sent them, ${piece.digest}.` : piece.note));
      proof.className = `proof ${piece.is_proved ? "good" : "warn"}`;
      raw.append(h("div", {}, visible(piece.text)));
    } catch (error) {
      proof.replaceChildren(...visible(error.message));
      proof.className = "proof bad";
    }
    more.disabled = false;
    const rest = total - [...body].length;
    more.hidden = rest <= 0;
    more.textContent = `Show ${number(Math.min(PART, rest))} of ${number(rest)} more characters`;
    save.disabled = !body || rest > 0;
    flip.disabled = !body;
  }
  function show(isText) {
    raw.hidden = !isText;
    tree.hidden = isText;
    flip.setAttribute("aria-pressed", String(isText));
  }
  flip.addEventListener("click", () => show(raw.hidden));
  close.addEventListener("click", () => dialog.close());
  save.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(body);
      notice("Copied.", "good");
    } catch {
      notice("The browser does not let this page copy: select the text.", "bad");
    }
  });
  more.addEventListener("click", () => void load());
  openDialog(dialog);
  await load();
  while (total <= MOST_TREE && [...body].length < total && dialog.isConnected && !proof.classList.contains("bad")) await load();
  try {
    if (body && [...body].length === total) tree.append(jsonTree(JSON.parse(body), null, { depth: 0 }));
    else show(true);
  } catch {
    show(true);
  }
}

/** What the model wrote in a turn, read when it is unfolded. */
export function writtenText(runId, seq) {
  const box = h("div", { class: "text mono" }, "…");
  let isNew = true;
  return h("details", { class: "raw", ontoggle: async (event) => {
    if (!event.target.open || !isNew) return;
    isNew = false;
    try {
      const reading = await get(runPath(runId, `/records/${seq}/reading`));
      box.replaceChildren(h("p", { class: "faint" }, reading.dialect === "auto" ? "Read as any dialect." : `Read as ${reading.dialect}.`,
        " Marked: the markers that the parser acted on. Pale: what else it took as the form of calls.",
        reading.is_cut ? " Only the beginning is shown." : "",
        reading.may_lack_end ? " A run records the text every half second, so its end may be missing here: what was read of it is above." : ""),
      reading.thoughts ? h("div", { class: "thoughts-span" }, visible(reading.thoughts)) : "", ...spanned(reading.text, reading.spans));
    } catch (error) {
      isNew = true;
      box.replaceChildren(...visible(error.message));
    }
  } }, h("summary", {}, "As it was written"), box);
}

/** A text with what the parser made of each of its characters, which the server counts as code points. */
export function spanned(text, spans, upto = Infinity) {
  const characters = [...text];
  return spans.filter((span) => span.start < upto).map((span) => {
    const part = visible(characters.slice(span.start, Math.min(span.end, upto)).join(""));
    return span.kind === "marker" ? h("mark", {}, part) : span.kind === "text" ? h("span", {}, part) : h("span", { class: `${span.kind}-span` }, part);
  });
}

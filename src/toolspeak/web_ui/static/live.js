// A run as it happens: every record once and in order, whatever happens to the connection and the server.

import { eventsUrl } from "./api.js";

const FIRST_WAIT = 500, LONGEST_WAIT = 5000;

export class LiveRun {
  /** `record` gets each record, `deltas` the pieces of the turn under way, `state` "live", "away" or "over". */
  constructor(runId, { record, deltas, state }) {
    this.runId = runId;
    this.handlers = { record, deltas, state };
    this.next = 0;
    this.wait = FIRST_WAIT;
    this.source = null;
    this.timer = null;
    this.isClosed = false;
  }

  /** Follows the run from a record on. */
  begin(next) {
    this.next = next;
    this.connect();
  }

  connect() {
    if (this.isClosed) return;
    // Deltas count from a turn that begins while this connection lives: one before may have lost some.
    this.isLive = this.isFresh = false;
    const source = (this.source = new EventSource(eventsUrl(this.runId, this.next)));
    source.addEventListener("open", () => {
      this.wait = FIRST_WAIT;
      this.handlers.state("live");
    });
    source.addEventListener("live", () => {
      this.isLive = true;
      this.isFresh = false;
    });
    source.addEventListener("record", (event) => {
      const record = JSON.parse(event.data);
      if (record.seq !== this.next) {
        if (record.seq > this.next) this.again();
        return;
      }
      this.next += 1;
      if (record.kind === "ModelAsked") this.isFresh = this.isLive;
      if (record.kind !== "ModelTextReceived") this.boundary = record.seq;
      this.handlers.record(record);
    });
    source.addEventListener("deltas", (event) => {
      const { after, pieces } = JSON.parse(event.data);
      if (this.isFresh && after === this.boundary) this.handlers.deltas(pieces);
    });
    source.addEventListener("end", () => {
      this.close();
      this.handlers.state("over");
    });
    // The browser's own attempts end at the first answer that is no stream: these do not.
    source.addEventListener("error", () => this.again());
  }

  again() {
    this.source.close();
    if (this.isClosed) return;
    this.handlers.state("away");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), this.wait);
    this.wait = Math.min(LONGEST_WAIT, this.wait * 2);
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.source?.close();
  }
}

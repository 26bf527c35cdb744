// A conversation of `@ag-ui/client` with an agent: an approval, a tool of the browser, a second question.
import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({ url: process.argv[2], threadId: "thread-of-npm" });
const colours = {
  name: "pick_colour",
  description: "Lets the user pick a colour.",
  parameters: { type: "object", properties: { palette: { type: "string" } } },
};
const report = { outcomes: [], calls: [] };
const seen = {
  onRunFinishedEvent: ({ event }) => report.outcomes.push(event.outcome),
  onToolCallEndEvent: ({ toolCallName, toolCallArgs }) => report.calls.push([toolCallName, toolCallArgs]),
};

agent.addMessage({ id: "m1", role: "user", content: "Order pears." });
await agent.runAgent({ tools: [colours] }, seen);
const [interrupt] = report.outcomes.at(-1).interrupts;
await agent.runAgent(
  { tools: [colours], resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved: true } }] },
  seen,
);
const [pending] = report.outcomes.at(-1).pendingToolCallIds;
agent.addMessage({ id: "m2", role: "tool", toolCallId: pending, content: "green" });
await agent.runAgent({ tools: [colours] }, seen);
report.messages = agent.messages.map(({ role, content }) => [role, content ?? null]);
console.log(JSON.stringify(report));

// The package `openai` of npm: its helper `runTools`, which runs the tools itself.

import OpenAI from "openai";

import { DESCRIPTIONS, KEY, SCHEMAS, main } from "./cases.mjs";

await main(async (told, run) => {
  const client = new OpenAI({ baseURL: `${told.url}/v1`, apiKey: KEY, maxRetries: 0 });
  const tools = Object.entries(SCHEMAS).map(([name, parameters]) => ({
    type: "function",
    function: { name, description: DESCRIPTIONS[name], parameters, parse: JSON.parse, function: (args) => run(name, args) },
  }));
  const asked = { model: "m", messages: [{ role: "user", content: told.task }], tools, stream: told.stream };
  const runner = client.chat.completions.runTools(asked);
  if (told.stream) runner.on("chunk", () => told.parts++);
  told.answer = await runner.finalContent();
  const answers = runner.messages.filter((message) => message.role === "assistant");
  told.finishes = runner.allChatCompletions().map((completion) => completion.choices[0].finish_reason);
  told.text = answers.map((message) => message.content ?? "");
  told.calls = answers.flatMap((message) => (message.tool_calls ?? []).map((call) => [call.id, call.function.name]));
});

// The package `openai` of npm: Chat Completions, plain and with its stream helper.

import OpenAI from "openai";

import { KEY, chatTools, main } from "./cases.mjs";

await main(async (told, run) => {
  const client = new OpenAI({ baseURL: `${told.url}/v1`, apiKey: KEY, maxRetries: 0 });
  const messages = [{ role: "user", content: told.task }];
  Object.assign(told, { calls: [], finishes: [], text: [] });
  for (;;) {
    const asked = { model: "m", messages, tools: chatTools() };
    let completion;
    if (told.stream) {
      const stream = client.chat.completions.stream({ ...asked, stream_options: { include_usage: true } });
      stream.on("chunk", () => told.parts++);
      completion = await stream.finalChatCompletion();
    } else {
      completion = await client.chat.completions.create(asked);
    }
    const { message, finish_reason } = completion.choices[0];
    told.finishes.push(finish_reason);
    told.text.push(message.content ?? "");
    told.usage = completion.usage ? [completion.usage.prompt_tokens, completion.usage.completion_tokens] : null;
    messages.push(message);
    if (!message.tool_calls?.length) {
      told.answer = message.content;
      return;
    }
    for (const call of message.tool_calls) {
      told.calls.push([call.id, call.function.name]);
      const content = run(call.function.name, JSON.parse(call.function.arguments));
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
  }
});

// The package `ai` with `@ai-sdk/openai-compatible`: it runs the tools itself.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";

import { DESCRIPTIONS, KEY, SCHEMAS, main } from "./cases.mjs";

await main(async (told, run) => {
  const provider = createOpenAICompatible({ name: "gateway", baseURL: `${told.url}/v1`, apiKey: KEY, includeUsage: true });
  const tools = Object.fromEntries(
    Object.entries(SCHEMAS).map(([name, schema]) => [
      name,
      tool({ description: DESCRIPTIONS[name], inputSchema: jsonSchema(schema), execute: async (args) => run(name, args) }),
    ]),
  );
  const asked = { model: provider("m"), prompt: told.task, tools, stopWhen: isStepCount(5), maxRetries: 0 };
  let steps;
  if (told.stream) {
    const failures = [];
    const result = streamText({ ...asked, onError: ({ error }) => failures.push(error) });
    for await (const part of result.fullStream) told.parts += part.type.endsWith("-delta") ? 1 : 0;
    if (failures.length) throw failures[0];
    steps = await result.steps;
  } else {
    ({ steps } = await generateText(asked));
  }
  told.answer = steps.at(-1).text;
  told.finishes = steps.map((step) => step.finishReason);
  told.text = steps.map((step) => step.text);
  told.calls = steps.flatMap((step) => step.toolCalls.map((call) => [call.toolCallId, call.toolName]));
  const { inputTokens, outputTokens } = steps.at(-1).usage;
  told.usage = inputTokens === undefined ? null : [inputTokens, outputTokens];
});

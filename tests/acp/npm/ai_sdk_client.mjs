// One turn of an ACP agent as a language model of the AI SDK. Arguments: the session's folder, the agent's command
// and the command's arguments. Prints the text, and each tool's result as a line of JSON.
import { createACPProvider } from "@mcpc-tech/acp-ai-provider";
import { streamText } from "ai";

const [cwd, command, ...args] = process.argv.slice(2);
const provider = createACPProvider({ command, args, session: { cwd, mcpServers: [] } });
try {
  const result = streamText({ model: provider.languageModel(), prompt: "Change a.txt", tools: provider.tools });
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") process.stdout.write(part.text);
    else if (part.type === "error") throw part.error;
    else if (part.type === "tool-result")
      process.stdout.write(`${JSON.stringify({ tool: part.input.toolName, output: part.output })}\n`);
  }
  process.stdout.write(`\n${JSON.stringify({ finish: await result.finishReason })}\n`);
} finally {
  provider.cleanup();
}

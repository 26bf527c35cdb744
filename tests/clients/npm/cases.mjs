// What the programs of this folder share: cases come in as lines of JSON, and what each client saw goes out as such
// (the fields are those of ../python/cases.py).

import { createInterface } from "node:readline";

export const KEY = "a-key-of-the-client";

export const DESCRIPTIONS = { get_weather: "The weather of the next days.", get_time: "The time of day." };
export const SCHEMAS = {
  get_weather: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" } },
    required: ["city", "days"],
  },
  get_time: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

export function chatTools() {
  return Object.entries(SCHEMAS).map(([name, parameters]) => ({
    type: "function",
    function: { name, description: DESCRIPTIONS[name], parameters },
  }));
}

export async function main(converse) {
  for await (const line of createInterface({ input: process.stdin })) {
    const nothing = { ran: [], calls: null, finishes: null, text: null, answer: "", usage: null, parts: 0, repeated: [] };
    const told = { ...JSON.parse(line), ...nothing };
    const run = (name, args) => {
      told.ran.push([name, args]);
      if (name === "get_weather") return `${args.days} days of rain in ${args.city}`;
      return `noon in ${args.city}`;
    };
    try {
      await converse(told, run);
      console.log(JSON.stringify(told));
    } catch (error) {
      console.log(JSON.stringify({ task: told.task, error: String(error?.stack ?? error) }));
    }
  }
}

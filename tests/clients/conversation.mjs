// How a test in Python speaks with a client in JavaScript: each line of standard input is a command in JSON, the first
// one the client's settings, and gets one line in answer.
import { createInterface } from "node:readline";

export async function converse(prepare) {
  let commands = { prepare: async ({ settings }) => void (commands = await prepare(settings)) };
  for await (const line of createInterface({ input: process.stdin })) {
    const { command, ...fields } = JSON.parse(line);
    const answer = await commands[command](fields).then((value) => ({ value: value ?? null }), describe);
    console.log(JSON.stringify(answer));
  }
}

// What the library throws: `error` where the service said so, and all the library's own words. Where the status is 401
// the libraries stop at its WWW-Authenticate, and leave it to their user to read on.
async function describe(thrown) {
  const body = thrown.response?.bodyUsed === false ? await thrown.response.json() : thrown;
  const { error = "", error_description: description = "" } = body;
  const words = [];
  for (let cause = thrown; cause instanceof Error; cause = cause.cause) words.push(cause.message);
  return { refused: { error, description, words: words.join(": ") } };
}

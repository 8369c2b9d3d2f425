// The protocol between a Python test and a JavaScript client: each line of standard input is a command as JSON, and gets
// one line in response. The first command has the client's settings.
import { createInterface } from "node:readline";

export async function converse(prepare) {
  let commands = { prepare: async ({ settings }) => void (commands = await prepare(settings)) };
  for await (const line of createInterface({ input: process.stdin })) {
    const { command, ...fields } = JSON.parse(line);
    const answer = await commands[command](fields).then((value) => ({ value: value ?? null }), describe);
    console.log(JSON.stringify(answer));
  }
}

// The result of an exception: the service's `error` if there is one, and the library's message. For a 401 the libraries
// parse WWW-Authenticate only, and leave the body to their user.
async function describe(thrown) {
  const body = thrown.response?.bodyUsed === false ? await thrown.response.json() : thrown;
  const { error = "", error_description: description = "" } = body;
  const words = [];
  for (let cause = thrown; cause instanceof Error; cause = cause.cause) words.push(cause.message);
  return { refused: { error, description, words: words.join(": ") } };
}

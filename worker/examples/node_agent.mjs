// An agent in JavaScript: answers word by word, asks when it was told nothing, stops when it is asked to.
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const textOf = (message) => message.parts.map((part) => part.text ?? "").join(" ").trim();
let stopped = false;

async function answer(turn) {
  const words = textOf(turn.message).split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    return say({ type: "end", state: "input-required", message: { parts: [{ text: "Say something." }] } });
  }
  for (const [n, word] of words.entries()) {
    await pause(50);
    if (stopped) return say({ type: "end", state: "canceled" }); // a cancel came: say nothing more
    say({ type: "status", message: { parts: [{ text: word.toUpperCase() + " " }] } });
    say({
      type: "artifact",
      artifact: { artifactId: "words", parts: [{ text: word + "\n" }] },
      append: n > 0,
      lastChunk: n === words.length - 1,
    });
  }
  say({ type: "end", message: { parts: [{ text: `(attempt ${turn.turn.attempt})` }] } });
}

for await (const text of createInterface({ input: process.stdin })) {
  const line = JSON.parse(text);
  if (line.type === "turn") {
    stopped = false;
    answer(line);
  } else if (line.type === "cancel") stopped = true;
}

// Ask with Node's fetch: node fetch.mjs PLAN. It sets no Connection and no Expect: a page could not either.
import { readFileSync } from "node:fs";

const PIECE = 50_000;
const plan = JSON.parse(readFileSync(process.argv[2], "utf8"));

function* pieces(body) {
  const bytes = new TextEncoder().encode(body);
  for (let start = 0; start < bytes.length; start += PIECE) yield bytes.subarray(start, start + PIECE);
}

const answers = [];
for (const ask of plan.asks) {
  const options = { method: ask.method, headers: { "x-api-key": ask.token } };
  if (ask.body) {
    options.body = ask.chunked ? ReadableStream.from(pieces(ask.body)) : ask.body;
    options.duplex = "half";
  }
  const answer = await fetch(plan.base + ask.path, options);
  answers.push({ status: answer.status, body: await answer.text(), version: "" });
}
console.log(JSON.stringify(answers));

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { session } from "./api";
import { attributeFilter, find, readRange } from "./reading";

const all = Array.from({ length: 1200 }, (_, offset) => ({
  offset,
  messageId: String(offset),
  publishTime: "2026-01-01T00:00:00Z",
  data: "",
  attributes: { n: String(offset % 100), ü: "ü" },
}));

/** Ranges as the service gives them, in pieces that end anywhere. */
const server = createServer(async (request, answer) => {
  const query = new URL(request.url ?? "", "http://x").searchParams;
  const [from = 0, to = 0, max = 0] = ["from", "to", "max"].map((name) => Number(query.get(name)));
  const range = all.slice(from, Math.min(to, from + max));
  answer.writeHead(200, { "AMS-Next-Offset": String(from + range.length) });
  const text = Buffer.from(range.map((each) => `${JSON.stringify(each)}\n`).join(""));
  for (let at = 0; at < text.length; at += 9973) answer.write(text.subarray(at, at + 9973));
  answer.end();
});
before(async () => {
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const service = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const user = { uuid: "", name: "", email: "", service_roles: [], created_on: "", modified_on: "" };
  session.value = { service, token: "t", user };
});
after(() => {
  server.closeAllConnections();
  server.close();
});

const BOUNDS = { min: 0, max: all.length };
const offsets = (found: { messages: { offset: number }[] }) => found.messages.map((message) => message.offset);

test("a range is whole wherever its pieces are cut", async () => {
  const { messages, next } = await readRange("/t", 100, 900, 1000);
  assert.deepEqual(messages, all.slice(100, 900));
  assert.equal(next, 900);
});

test("the newest are found from the end, and pages before them join without gaps", async () => {
  const newest = await find("/t", BOUNDS, 1200, true, 25, null);
  assert.deepEqual(offsets(newest), offsets({ messages: all.slice(1175) }));
  const older = await find("/t", BOUNDS, newest.first, true, 25, null);
  assert.deepEqual(offsets(older), offsets({ messages: all.slice(1150, 1175) }));
});

test("a search goes on until enough are found, in both directions, and says where it stopped", async () => {
  const wanted = attributeFilter("n=7 ü=ü");
  assert.deepEqual(offsets(await find("/t", BOUNDS, 0, false, 3, wanted)), [7, 107, 207]);
  const back = await find("/t", BOUNDS, 1200, true, 3, wanted);
  assert.deepEqual(offsets(back), [907, 1007, 1107]);
  const rest = await find("/t", BOUNDS, back.first, true, 100, wanted);
  assert.deepEqual(offsets(rest), [7, 107, 207, 307, 407, 507, 607, 707, 807]);
});

test("a filter of attributes asks for exactly what it says", () => {
  const message = { messageId: "1", publishTime: "", data: "", attributes: { lang: "en", empty: "" } };
  const asked = (text: string) => attributeFilter(text)?.(message);
  assert.deepEqual(["lang", "lang=en", "lang=e", "empty", "empty=", "toString", "lang=en none"].map(asked), [
    true,
    true,
    false,
    true,
    true,
    false,
    false,
  ]);
  assert.equal(attributeFilter("  "), null);
});

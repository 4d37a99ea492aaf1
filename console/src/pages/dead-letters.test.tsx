import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, test } from "node:test";
import { session } from "../api";
import { settled, shown } from "../testing";
import type { Subscription } from "../wire";

const BASE = "/projects/P/subscriptions/s";
const letters = Array.from({ length: 25 }, (_, offset) => ({
  offset,
  messageId: String(offset),
  publishTime: "2026-01-01T00:00:00Z",
  data: "aGk=",
  attributes: {
    deadLetterSubscription: BASE.slice(1),
    deadLetterSourceTopic: "projects/P/topics/t",
    deadLetterMessageId: String(offset),
    deadLetterStatus: "422",
    deadLetterAttempts: "5",
  },
}));

let mayPublish: boolean;
let asked: string[];

/** A project whose topics `t` and `dead` have a message for each letter. */
const server = createServer((request, answer) => {
  const { pathname, searchParams } = new URL(request.url ?? "", "http://x");
  asked.push(`${request.method} ${pathname}`);
  if (pathname.endsWith(":offsets")) return answer.end(JSON.stringify({ min: 0, max: letters.length }));
  if (request.method === "GET") {
    const [from = 0, to = 0] = ["from", "to"].map((name) => Number(searchParams.get(name)));
    const lines = letters.slice(from, to).map((each) => `${JSON.stringify(each)}\n`);
    return answer.writeHead(200, { "AMS-Next-Offset": String(to) }).end(lines.join(""));
  }
  const refused = { error: { message: "The token is not good for this" } };
  return answer.writeHead(mayPublish ? 200 : 403).end(JSON.stringify(mayPublish ? { messageIds: [] } : refused));
});
before(async () => {
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const service = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const user = { uuid: "", name: "ada", email: "", service_roles: [], created_on: "", modified_on: "" };
  session.value = { service, token: "t", user };
});
beforeEach(() => {
  asked = [];
});
after(() => {
  session.value = null;
  server.closeAllConnections();
  server.close();
});

async function page(): Promise<string> {
  const { DeadLetters } = await import("./dead-letters"); // after the page is there
  const subscription = { name: `/${BASE.slice(1)}`, topic: "projects/P/topics/t" } as Subscription;
  const of = { project: "P", name: "s", base: BASE, reload: () => {}, admin: true };
  const place = await shown(<DeadLetters {...of} subscription={subscription} source="dead" />);
  for (let turn = 0; turn < 500 && place.querySelectorAll(".message").length < letters.length; turn++) await settled();
  return place.textContent ?? "";
}

const published = () => asked.filter((each) => each.endsWith("/topics/t:publish")).length;

test("who may publish can publish each dead letter again", async () => {
  mayPublish = true;
  const text = await page();
  assert.match(text, /Publish 25 of these again/);
  assert.equal(text.match(/Publish again/g)?.length, 25);
});

test("who may not publish is refused once, is told why, and is offered nothing", async () => {
  mayPublish = false;
  const text = await page();
  assert.equal(published(), 1);
  assert.match(text, /You cannot publish them again to t: The token is not good for this/);
  assert.doesNotMatch(text, /Publish again|of these again/);
});

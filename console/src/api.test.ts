import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, test } from "node:test";
import { ApiError, asShown, call, named, post, put, session, tokenWanted, waiting } from "./api";

type Answer = (request: IncomingMessage, answer: ServerResponse) => void;
let server: Server;
let answers: Answer;
let asked: string[];
const user = { uuid: "1", name: "rose", email: "", service_roles: [], created_on: "", modified_on: "" };

beforeEach(async () => {
  asked = [];
  server = createServer((request, answer) => {
    asked.push(`${request.method} ${request.url} ${request.headers.authorization}`);
    answers(request, answer);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  session.value = { service: `http://127.0.0.1:${port}`, token: "old", user };
});
afterEach(() => {
  tokenWanted.value = null;
  server.closeAllConnections();
  server.close();
});

function say(answer: ServerResponse, code: number, body: object, headers: Record<string, string> = {}): void {
  answer.writeHead(code, { "Content-Type": "application/json", ...headers }).end(JSON.stringify(body));
}

const refused = (message: string) => ({ error: { code: 0, message, status: "" } });

test("an error has the API's words and the id of the request", async () => {
  answers = (_, answer) => say(answer, 404, refused("Topic doesn't exist"), { "X-Request-Id": "r-1" });
  await assert.rejects(call("/x"), (error: ApiError) => {
    assert.deepEqual([error.code, error.message, error.requestId], [404, "Topic doesn't exist", "r-1"]);
    return true;
  });
});

test("a service that is not there is said, and not a crash", async () => {
  session.value = { service: "http://127.0.0.1:1", token: "t", user };
  await assert.rejects(call("/x"), (error: ApiError) => error instanceof ApiError && error.code === 0);
});

test("after a 429 it waits as long as it is asked to, says so, and asks again", async () => {
  let turn = 0;
  const said: string[] = [];
  const stop = waiting.subscribe((text) => said.push(text));
  answers = (_, answer) =>
    turn++ === 0
      ? say(answer, 429, refused("Too many"), { "Retry-After": "1" })
      : say(answer, 200, { messageIds: ["1"] });
  const started = Date.now();
  assert.deepEqual(await call("/x", { method: "POST", body: {} }), { messageIds: ["1"] });
  stop();
  assert.ok(Date.now() - started >= 990);
  assert.deepEqual(said, ["", "The service asks to wait 1 s: Too many", ""]);
});

test("a change of what was read is meant for the version that was read", async () => {
  const matched: (string | undefined)[] = [];
  answers = (request, answer) => {
    matched.push(request.headers["if-match"]);
    if (request.method === "GET") say(answer, 200, { roles: ["publisher"] }, { ETag: '"7"' });
    else say(answer, 412, refused("It was changed meanwhile"));
  };
  const read = await call<{ roles: string[] }>("/x");
  await assert.rejects(put("/x", { roles: [] }, read), /changed meanwhile/);
  await assert.rejects(put("/x", { roles: [] }), /changed meanwhile/);
  await assert.rejects(post("/x:verb", {}, read), /changed meanwhile/);
  assert.deepEqual(matched, [undefined, '"7"', undefined, '"7"']);
});

test("what a list showed is changed while it is so, for the version that it has then", async () => {
  answers = (_, answer) => say(answer, 200, { roles: ["publisher"] }, { ETag: '"7"' });
  const now = await asShown<{ roles: string[] }>("/x", ({ roles }) => roles.join() === "publisher");
  assert.deepEqual(now, { roles: ["publisher"] });
  await assert.rejects(
    asShown<{ roles: string[] }>("/x", ({ roles }) => roles.length === 0),
    /changed meanwhile/,
  );
});

test("a change that was answered 503 is not sent again by itself", async () => {
  answers = (_, answer) => say(answer, 503, refused("Not now"), { "Retry-After": "1" });
  await assert.rejects(call("/x", { method: "POST", body: {} }), /Not now/);
  assert.equal(asked.length, 1);
});

test("a token that ended is asked for once, and all that waited goes on with the new one", async () => {
  answers = (request, answer) =>
    request.headers.authorization === "Bearer new"
      ? say(answer, 200, user)
      : say(answer, 401, refused("It has expired"));
  const reasons: string[] = [];
  const stop = tokenWanted.subscribe((wanted) => {
    if (!wanted) return;
    reasons.push(wanted.reason);
    setTimeout(() => wanted.answer(reasons.length === 1 ? "wrong" : "new"));
  });
  const both = await Promise.all([call("/a"), call("/b", { method: "POST", body: { typed: true } })]);
  stop();
  assert.deepEqual(both, [user, user]);
  assert.deepEqual(reasons, ["It has expired", "It has expired"]);
  assert.equal(session.peek()?.token, "new");
});

test("a token of another user does not go on with what this one began", async () => {
  answers = (request, answer) => {
    const token = request.headers.authorization?.slice("Bearer ".length) ?? "";
    if (token === "old") say(answer, 401, refused("It has expired"));
    else say(answer, 200, { ...user, name: token });
  };
  const reasons: string[] = [];
  const stop = tokenWanted.subscribe((wanted) => {
    if (!wanted) return;
    reasons.push(wanted.reason);
    setTimeout(() => wanted.answer(reasons.length === 1 ? "iris" : "rose"));
  });
  await call("/x", { method: "POST", body: {} });
  stop();
  assert.deepEqual(reasons, ["It has expired", "This is a token of iris"]);
  assert.deepEqual(
    asked.filter((each) => each.startsWith("POST")),
    ["POST /v1/x Bearer old", "POST /v1/x Bearer rose"],
  );
});

test("a token that can be fetched anew is not asked for", async () => {
  const now = session.peek();
  if (now) session.value = { ...now, refresh: async () => "new" };
  answers = (request, answer) =>
    request.headers.authorization === "Bearer new" ? say(answer, 200, {}) : say(answer, 401, refused("It has expired"));
  await call("/x");
  assert.equal(tokenWanted.peek(), null);
  assert.equal(session.peek()?.token, "new");
});

test("a 401 of a project one is no member of asks for no token", async () => {
  answers = (request, answer) =>
    request.url === "/v1/users/profile" ? say(answer, 200, user) : say(answer, 401, refused("Unauthorized"));
  await assert.rejects(call("/projects/mill"), (error: ApiError) => error.code === 401);
  assert.equal(tokenWanted.peek(), null);
});

test("the token is in a header and never in the address", async () => {
  answers = (_, answer) => say(answer, 200, {});
  await call("/x", { query: { a: "1", none: undefined, empty: "" } });
  assert.deepEqual(asked, ["GET /v1/x?a=1 Bearer old"]);
});

test("a name that was typed leads nowhere but where names are", async () => {
  answers = (_, answer) => say(answer, 200, {});
  for (const name of ["../users/evil", "..", "a#b", "q?x=1", "a:b:c", "", " "]) {
    await assert.rejects(post(`/projects/${name}`), /A name is of letters/, name);
  }
  for (const name of ["a/b", "a:b", "../a", "%2F/"]) await assert.rejects(post(named("/projects", name)), /A name is/);
  await post("/projects/a-1_b:modifyRetention");
  await post(named("/projects/p/topics", "a.b~c+d%2Fe%"));
  assert.deepEqual(asked, [
    "POST /v1/projects/a-1_b:modifyRetention Bearer old",
    "POST /v1/projects/p/topics/a.b~c+d%252Fe%25 Bearer old",
  ]);
});

import assert from "node:assert/strict";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, test } from "node:test";
import { session } from "./api";
import "./testing";

const KEPT = "ams-token";
const user = { uuid: "1", name: "rose", email: "", service_roles: [], created_on: "", modified_on: "" };
let server: Server;
let service: string;
let asked: string[];

beforeEach(async () => {
  localStorage.clear();
  asked = [];
  server = createServer((request, answer) => {
    asked.push(`${request.method} ${request.url} ${request.headers.authorization}`);
    const refused = request.headers.authorization === "Bearer dead";
    const body = refused ? { error: { message: "It has expired" } } : user;
    answer.writeHead(refused ? 401 : 200, { "Content-Type": "application/json" }).end(JSON.stringify(body));
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  service = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(() => {
  session.value = null;
  server.closeAllConnections();
  server.close();
});

const login = () => import("./login"); // after the page is there
const kept = () => JSON.parse(localStorage.getItem(KEPT) ?? "{}").token;
const config = () => ({ issuers: [], service });

/** As a new token that was given in the middle of work. */
function renewed(token: string): void {
  const now = session.peek();
  if (now) session.value = { ...now, token };
}

test("a token is kept, and the one that replaces it, only where its user wants that", async () => {
  const { logIn } = await login();
  await logIn(service, "once");
  renewed("again");
  assert.equal(kept(), undefined);
  await logIn(service, "mine", { kept: true });
  renewed("mine, renewed");
  assert.equal(kept(), "mine, renewed");
});

test("a token in the address never takes the place of a kept one", async () => {
  const { resume } = await login();
  localStorage.setItem(KEPT, JSON.stringify({ service, token: "mine" }));
  await resume(config(), "#token=shown");
  renewed("shown, renewed");
  assert.equal(kept(), "mine");
});

test("what `ams open` made for the tab is revoked when its user logs out, and no other token", async () => {
  const { logOut, resume } = await login();
  for (const more of ["&name=console-1", ""]) {
    await resume(config(), `#token=shown${more}`);
    asked = [];
    logOut();
    assert.equal(session.peek(), null);
    await new Promise((done) => setTimeout(done, 50));
    assert.deepEqual(asked, more ? ["DELETE /v1/users/rose/tokens/console-1 Bearer shown"] : []);
  }
});

test("a kept token that is refused is not tried again", async () => {
  const { resume } = await login();
  localStorage.setItem(KEPT, JSON.stringify({ service, token: "dead" }));
  await assert.rejects(resume(config(), ""), /It has expired/);
  assert.equal(kept(), undefined);
  await resume(config(), "");
  assert.equal(session.peek(), null);
});

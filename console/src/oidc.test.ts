import "./testing";
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { challenge, finishLogin } from "./oidc";

const asked: Record<string, string>[] = [];
const server = createServer(async (request, answer) => {
  let text = "";
  for await (const piece of request) text += piece;
  asked.push(Object.fromEntries(new URLSearchParams(text)));
  const count = asked.length;
  answer.end(JSON.stringify({ access_token: `token-${count}`, refresh_token: `refresh-${count}` }));
});
before(() => new Promise<void>((done) => server.listen(0, "127.0.0.1", done)));
after(() => {
  server.closeAllConnections();
  server.close();
});

function comeBack(query: string): void {
  const { port } = server.address() as AddressInfo;
  const issuer = { name: "Park", issuer: "x", client_id: "console", token_endpoint: `http://127.0.0.1:${port}/token` };
  const started = { state: "s1", verifier: "v1", issuer, service: "http://ams.test", hash: "#/p/park" };
  sessionStorage.setItem("ams-login", JSON.stringify(started));
  history.replaceState(null, "", `/console/?${query}`);
}

test("a challenge is that of RFC 7636, appendix B", async () => {
  assert.equal(
    await challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
    "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
  );
});

test("on the way back the code leaves the address and is exchanged, and the page from before is shown", async () => {
  comeBack("code=c1&state=s1");
  const login = await finishLogin();
  assert.equal(location.href, "http://console.test/console/#/p/park");
  assert.equal(sessionStorage.length, 0);
  assert.deepEqual([login?.token, login?.service], ["token-1", "http://ams.test"]);
  const { redirect_uri, code, code_verifier, client_id } = asked[0] ?? {};
  assert.deepEqual(
    [redirect_uri, code, code_verifier, client_id],
    ["http://console.test/console/", "c1", "v1", "console"],
  );
  assert.equal(await login?.refresh?.(), "token-2");
  assert.equal(await login?.refresh?.(), "token-3");
  assert.equal(asked[2]?.refresh_token, "refresh-2");
});

test("an answer of another login is refused, and a refusal of the issuer is said", async () => {
  const before = asked.length;
  comeBack("code=c1&state=other");
  await assert.rejects(finishLogin(), /another login/);
  comeBack("state=s1&error=access_denied&error_description=Not+you");
  await assert.rejects(finishLogin(), /Not you/);
  assert.equal(asked.length, before);
  assert.equal(await finishLogin(), null);
});

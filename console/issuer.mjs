// An OpenID Connect issuer for tests of logging in: `node issuer.mjs REDIRECT_URI` prints its address when it is ready.
// It is `oidc-provider` with the pages it brings for development: whoever gives a name is that person.
import { createServer } from "node:http";
import Provider from "oidc-provider";

const server = createServer((request, response) => answer(request, response));
let answer = (_, response) => response.writeHead(503).end();
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const address = `http://127.0.0.1:${server.address().port}`;
const resource = { scope: "openid", audience: "ams", accessTokenFormat: "jwt", accessTokenTTL: 3600 };
const provider = new Provider(address, {
  clients: [
    {
      client_id: "console",
      token_endpoint_auth_method: "none",
      redirect_uris: [process.argv[2]],
      grant_types: ["authorization_code"],
      response_types: ["code"],
    },
  ],
  pkce: { required: () => true },
  clientBasedCORS: () => true,
  findAccount: (_, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
  cookies: { keys: ["for tests"] },
  features: {
    devInteractions: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => "urn:ams",
      useGrantedResource: () => true,
      getResourceServerInfo: () => resource,
    },
  },
});
answer = provider.callback();
console.log(address);

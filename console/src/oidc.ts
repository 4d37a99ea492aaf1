/** Logging in at an issuer: OpenID Connect's authorization code with PKCE (RFC 7636), without a secret. */
import type { Session } from "./api";
import { replace } from "./router";
import { toBase64 } from "./text";

export interface Issuer {
  name: string;
  issuer: string;
  client_id: string;
  scope?: string;
  /** As the service found them; left out where nobody can log in now, with the reason. */
  authorization_endpoint?: string;
  token_endpoint?: string;
  error?: string;
}

type Started = { state: string; verifier: string; issuer: Issuer; service: string; hash: string };
type Tokens = { access_token: string; refresh_token?: string };

const KEPT = "ams-login";

const random = () => urlSafe(crypto.getRandomValues(new Uint8Array(32)));
const urlSafe = (bytes: Uint8Array) => toBase64(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const here = () => location.origin + location.pathname;

/** What is sent ahead of a verifier: its SHA-256 (`S256`). */
export async function challenge(verifier: string): Promise<string> {
  return urlSafe(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))));
}

/** Leave for the issuer's page; what the way back needs is kept in this tab until then, and is no token. */
export async function startLogin(issuer: Issuer, service: string): Promise<void> {
  if (!issuer.authorization_endpoint) throw new Error(issuer.error ?? `${issuer.name} does not say where to log in`);
  const started: Started = { state: random(), verifier: random(), issuer, service, hash: location.hash };
  sessionStorage.setItem(KEPT, JSON.stringify(started));
  const to = new URL(issuer.authorization_endpoint);
  const asked = {
    response_type: "code",
    client_id: issuer.client_id,
    redirect_uri: here(),
    scope: issuer.scope ?? "openid",
    state: started.state,
    code_challenge: await challenge(started.verifier),
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(asked)) to.searchParams.set(name, value);
  location.assign(to);
}

/** On the way back: take the code out of the address and exchange it; null when this is no way back. */
export async function finishLogin(): Promise<Omit<Session, "user"> | null> {
  const query = new URLSearchParams(location.search);
  const kept = sessionStorage.getItem(KEPT);
  if (!kept || !query.has("state")) return null;
  sessionStorage.removeItem(KEPT);
  const { state, verifier, issuer, service, hash } = JSON.parse(kept) as Started;
  replace(here() + hash);
  if (query.get("state") !== state) throw new Error("The answer of the issuer is of another login");
  if (query.has("error")) throw new Error(query.get("error_description") ?? query.get("error") ?? "");
  const code = { code: query.get("code") ?? "", redirect_uri: here(), code_verifier: verifier };
  const first = await fetchToken(issuer, { grant_type: "authorization_code", ...code });
  let { refresh_token } = first;
  const refresh = async () => {
    const fresh = await fetchToken(issuer, { grant_type: "refresh_token", refresh_token: refresh_token ?? "" });
    // Issuers may give another one each time, and take each once.
    refresh_token = fresh.refresh_token || refresh_token;
    return fresh.access_token;
  };
  return { token: first.access_token, service, refresh: refresh_token ? refresh : undefined };
}

async function fetchToken(issuer: Issuer, asked: Record<string, string>): Promise<Tokens> {
  const body = new URLSearchParams({ client_id: issuer.client_id, ...asked });
  const answer = await fetch(issuer.token_endpoint ?? "", { method: "POST", credentials: "omit", body });
  const said = await answer.json().catch(() => ({}));
  if (answer.ok && said.access_token) return said;
  throw new Error(said.error_description ?? said.error ?? `${issuer.name} gave no token (${answer.status})`);
}

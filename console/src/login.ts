/** How a session begins and ends. The token is in the memory of the tab alone, unless its user wants it kept. */
import { type ApiError, named, profile, type Session, send, session } from "./api";
import { finishLogin, type Issuer } from "./oidc";
import { go } from "./router";

export interface Config {
  version?: string;
  issuers: Issuer[];
  /** Where the service is, if these files are hosted elsewhere. */
  service?: string;
}

const KEPT = "ams-token";

export async function loadConfig(): Promise<Config> {
  // Hosted as plain files it is none: the service is asked for.
  const answer = await fetch("config.json", { credentials: "omit" }).catch(() => null);
  return { issuers: [], ...(answer?.ok && (await answer.json().catch(() => null))) };
}

/** The service these files came from, at `/console/` below it. */
export function ownService(config: Config): string {
  return (config.service ?? new URL("../", location.href).href).replace(/[?#].*$/, "").replace(/\/$/, "");
}

/** Log in with what the address (`#token=...`, as `ams open` gives it), an issuer or an earlier visit brings. */
export async function resume(config: Config, hash: string): Promise<void> {
  if (hash) {
    const given = new URLSearchParams(hash.slice(1));
    await logIn(ownService(config), given.get("token") ?? "", { name: given.get("name") });
    const project = given.get("project");
    return project ? go(["p", project]) : undefined;
  }
  const back = await finishLogin();
  if (back) return logIn(back.service, back.token, { refresh: back.refresh });
  const kept = localStorage.getItem(KEPT);
  if (!kept) return;
  const { service, token } = JSON.parse(kept) as { service: string; token: string };
  await logIn(service, token, { kept: true }).catch((error: ApiError) => {
    if (error.code === 401) localStorage.removeItem(KEPT);
    throw error;
  });
}

/** Whether somebody is logged in here, or was and wanted to stay so. */
export function isLoggedIn(): boolean {
  return session.peek() !== null || localStorage.getItem(KEPT) !== null;
}

export async function logIn(service: string, token: string, more: Partial<Session> = {}) {
  session.value = { service, token, user: await profile(service, token), ...more };
}

export function logOut(): void {
  const { service = "", token = "", name, user } = session.peek() ?? {};
  if (name) send(service, token, named(`/users/${user?.name}/tokens`, name), { method: "DELETE" }).catch(() => null);
  localStorage.removeItem(KEPT);
  session.value = null;
}

/** Also a token that was given in the middle of work is kept, where its user wants that. */
session.subscribe((now) => {
  if (now?.kept) localStorage.setItem(KEPT, JSON.stringify({ service: now.service, token: now.token }));
});

/** How a session begins and ends. The token is in the memory of the tab alone, unless its user wants it kept. */
import { profile, session } from "./api";
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
  try {
    const answer = await fetch("config.json", { credentials: "omit" });
    if (answer.ok) return { issuers: [], ...(await answer.json()) };
  } catch {
    // Hosted as plain files: the service is asked for.
  }
  return { issuers: [] };
}

/** The service these files came from, at `/console/` below it. */
export function ownService(config: Config): string {
  return (config.service ?? new URL("../", location.href).href).replace(/[?#].*$/, "").replace(/\/$/, "");
}

/** Log in with what the address, the issuer's answer or an earlier visit brings; false: there is nothing. */
export async function resume(config: Config, hash: string): Promise<boolean> {
  const given = tokenOfAddress(hash);
  if (given) return logIn(ownService(config), given.token, false, given.project);
  const back = await finishLogin();
  if (back) {
    await logIn(back.service, back.token, false);
    const now = session.peek();
    if (now && back.refresh) session.value = { ...now, refresh: back.refresh };
    return true;
  }
  const kept = localStorage.getItem(KEPT);
  if (!kept) return false;
  const { service, token } = JSON.parse(kept) as { service: string; token: string };
  return logIn(service, token, true);
}

/** `#token=...&project=...`, as `ams open` gives it. */
export function tokenOfAddress(hash: string): { token: string; project: string } | null {
  if (!hash.startsWith("#token=")) return null;
  const given = new URLSearchParams(hash.slice(1));
  return { token: given.get("token") ?? "", project: given.get("project") ?? "" };
}

export async function logIn(service: string, token: string, keep: boolean, project = ""): Promise<boolean> {
  const user = await profile(service, token);
  session.value = { service, token, user };
  if (keep) localStorage.setItem(KEPT, JSON.stringify({ service, token }));
  if (project) go(["p", project]);
  return true;
}

export function logOut(): void {
  localStorage.removeItem(KEPT);
  session.value = null;
}

/** A token that was given in the middle of work takes the place of the kept one. */
export function keepRenewed(): void {
  session.subscribe((now) => {
    if (now && localStorage.getItem(KEPT)) {
      localStorage.setItem(KEPT, JSON.stringify({ service: now.service, token: now.token }));
    }
  });
}

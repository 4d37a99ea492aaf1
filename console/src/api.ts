/**
 * Requests to the service: the token in a header, errors in the API's own words, waiting where it asks to wait, and a new
 * token where the old one has ended, so that nothing typed on a page is lost.
 */
import { signal } from "@preact/signals";
import type { User } from "./wire";

export interface Session {
  /** Where the service is, without `/v1`. */
  service: string;
  token: string;
  /** Of a token that `ams open` made for this tab alone: it ends when its user logs out. */
  name?: string | null | undefined;
  user: User;
  /** It is kept in this browser, as its user asked for. */
  kept?: boolean;
  /** Fetches a new token without asking its user, where the issuer allows it. */
  refresh?: (() => Promise<string>) | undefined;
}

export class ApiError extends Error {
  constructor(
    /** The status of HTTP; 0: there was no answer. */
    readonly code: number,
    message: string,
    readonly requestId = "",
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

export const session = signal<Session | null>(null);
/** Why a new token is asked for while somebody is at work; null while none is. */
export const tokenWanted = signal<{ reason: string; answer: (token: string | null) => void } | null>(null);
/** What is being waited for, in a sentence; empty for nothing. */
export const waiting = signal("");
/** Since when the service does not answer, in milliseconds since 1970; 0 while it does. */
export const awaySince = signal(0);
/** How much later the service's clock is than ours, in milliseconds. */
export const clockSkew = signal(0);

export interface Request {
  method?: string;
  body?: unknown;
  query?: Record<string, string | number | boolean | undefined>;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

const MOST_WAITS = 5;
const LONGEST_WAIT = 30;
/** Names and a verb: whatever somebody typed as a name, it leads nowhere else. */
const PATH = /^(\/[\w-][\w.~+%-]*)+(:\w+)?$/;

/** Of what was read: the version that a change of it is meant for. */
const versions = new WeakMap<object, string>();

/** Ask the API; return what it answers, or raise `ApiError`. */
export async function call<T>(path: string, request: Request = {}): Promise<T> {
  const answer = await open(path, request);
  const version = answer.headers.get("ETag");
  const text = await answer.text().catch(() => {
    throw unreachable("the answer ended in the middle");
  });
  const read = text ? JSON.parse(text) : {};
  if (version) versions.set(read, version);
  return read as T;
}

/**
 * What is asked for most: something made, something put in a place or deleted. With `read`, what `call` gave of the thing
 * that is changed, the service refuses the change when somebody else has changed it since.
 */
export const post = <T>(path: string, body: object = {}, read?: object): Promise<T> =>
  call<T>(path, { method: "POST", body, headers: ifMatch(read) });
export const put = <T>(path: string, body: object = {}, read?: object): Promise<T> =>
  call<T>(path, { method: "PUT", body, headers: ifMatch(read) });
export const remove = (path: string): Promise<unknown> => call(path, { method: "DELETE" });

function ifMatch(read?: object): Record<string, string> {
  const version = read && versions.get(read);
  return version ? { "If-Match": version } : {};
}

/** Read what a list showed once more, to change it; raise when it is not any more as it was shown. */
export async function asShown<T extends object>(path: string, isSame: (now: T) => boolean): Promise<T> {
  const now = await call<T>(path);
  if (!isSame(now)) throw new ApiError(412, "It was changed meanwhile: read it again, nothing was done");
  return now;
}

/** The path of something by its name, whatever was typed as one: no name has a slash or a colon, and `PATH` no `?`. */
export const named = (path: string, name = "") => `${path}/${name.replace(/[/:]/g, "?")}`;

/** The text of an answer as it comes; who stops taking it ends the request. */
export async function* pieces(answer: Response): AsyncGenerator<string> {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done = true, value = "" } = (await reader?.read()) ?? {};
      if (done) return;
      yield value;
    }
  } finally {
    await reader?.cancel();
  }
}

/** Ask the API; return the answer with its body still to be read, or raise `ApiError`. */
export async function open(path: string, request: Request = {}): Promise<Response> {
  if (!PATH.test(path))
    throw new ApiError(400, "A name is of letters, digits, - and _, and of Google's clients also . ~ + %");
  for (let turn = 0; ; turn++) {
    const now = session.peek();
    if (!now) throw new ApiError(401, "Nobody is logged in");
    try {
      return await send(now.service, now.token, path, request);
    } catch (error) {
      if (!(error instanceof ApiError) || turn >= MOST_WAITS) throw error;
      if (error.code === 401) await renew(now, error);
      else if (isToBeRepeated(error, request)) await wait(error, request.signal);
      else throw error;
    }
  }
}

/** What will not be otherwise by asking again: no right, no such thing, no such call. */
export function isFinal(error: unknown): boolean {
  return error instanceof ApiError && error.code >= 400 && error.code < 429;
}

/** Of these the API says that nothing was done; another 503 may have been in the middle of something. */
function isToBeRepeated({ code, retryAfter }: ApiError, { method = "GET" }: Request): boolean {
  return code === 429 || (code === 503 && retryAfter > 0 && method === "GET");
}

async function wait(error: ApiError, signal?: AbortSignal): Promise<void> {
  const seconds = Math.min(LONGEST_WAIT, Math.max(1, error.retryAfter));
  waiting.value = `The service asks to wait ${seconds} s: ${error.message}`;
  await new Promise((done) => setTimeout(done, seconds * 1000));
  waiting.value = "";
  signal?.throwIfAborted();
}

/** One request without any of this, for a token that is not known to be good. */
export async function send(service: string, token: string, path: string, request: Request = {}): Promise<Response> {
  const { method = "GET", body, query = {}, signal = null } = request;
  const json = body === undefined ? {} : { "Content-Type": "application/json" };
  const headers = { Authorization: `Bearer ${token}`, ...json, ...request.headers };
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  const asked = { method, headers, body: JSON.stringify(body) ?? null, signal } as const;
  // Paths have names as they are, and of their characters only this one means something else in an address.
  const address = `${service}/v1${path.replaceAll("%", "%25")}${text && `?${text}`}`;
  const answer = await fetch(address, { ...asked, credentials: "omit", cache: "no-store" }).catch((error: Error) => {
    if (error.name === "AbortError") throw error;
    awaySince.value ||= Date.now();
    throw unreachable(error.message);
  });
  awaySince.value = 0;
  const date = Date.parse(answer.headers.get("Date") ?? "");
  if (!Number.isNaN(date)) clockSkew.value = date - Date.now();
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

function unreachable(why: string): ApiError {
  return new ApiError(0, `The service cannot be reached (${why})`);
}

async function refusal(answer: Response): Promise<ApiError> {
  const id = answer.headers.get("X-Request-Id") ?? "";
  const after = Number(answer.headers.get("Retry-After")) || 0;
  const text = await answer.text().catch(() => "");
  let message = text.slice(0, 300) || answer.statusText || "The service answered without a word";
  try {
    message = String(JSON.parse(text).error.message);
  } catch {
    // It is of something before the service, and not in the API's form.
  }
  return new ApiError(answer.status, message, id, after);
}

/** Time by the service's clock, which what it answers is measured by. */
export function serviceNow(): number {
  const skew = clockSkew.peek();
  return Date.now() + (Math.abs(skew) > 2000 ? skew : 0);
}

let renewing: Promise<void> | null = null;

/** Ask for a new token, once for all requests that wait for one; raise the error where the token is not to blame. */
async function renew(from: Session, error: ApiError): Promise<void> {
  if (session.peek()?.token !== from.token) return;
  renewing ??= askForToken(from, error).finally(() => {
    renewing = null;
  });
  await renewing;
}

async function askForToken(from: Session, error: ApiError): Promise<void> {
  // Not being a member of a project is a 401, too: a token that is known to the service is not to blame.
  const known = await profile(from.service, from.token).catch((refused: ApiError) => refused);
  if (!(known instanceof Error)) throw error;
  if (known.code !== 401) throw known;
  const fresh = await from.refresh?.().catch(() => null);
  if (fresh) {
    session.value = { ...from, token: fresh };
    return;
  }
  let reason = error.message === "Unauthorized" ? "The token is not good any more" : error.message;
  try {
    for (;;) {
      const token = await new Promise<string | null>((answer) => {
        tokenWanted.value = { reason, answer };
      });
      if (token === null) throw error;
      const user = await profile(from.service, token).catch((refused: Error) => refused);
      if (!(user instanceof Error) && user.name === from.user.name) {
        session.value = { ...from, token, user };
        return;
      }
      reason = user instanceof Error ? user.message : `This is a token of ${user.name}`;
    }
  } finally {
    tokenWanted.value = null;
  }
}

export async function profile(service: string, token: string): Promise<User> {
  const answer = await send(service, token, "/users/profile");
  return (await answer.json()) as User;
}

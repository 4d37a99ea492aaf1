/** Reading ranges of a topic (docs/reference/reading.md), as much of it as a page can hold. */
import { ApiError, call, isFinal, open, pieces } from "./api";
import { shortName } from "./format";
import type { Offsets, PulledMessage, ReadMessage } from "./wire";

/** Of the bodies that are read for one page; the rest is a page of its own. */
const MOST_BYTES = 8 << 20;

/** The id of the first message of a topic or subscription that was published at a time or later. */
export async function offsetAt(base: string, time: Date): Promise<number> {
  return (await call<{ offset: number }>(`${base}:timeToOffset`, { query: { time: time.toISOString() } })).offset;
}

/** Read messages from id `from` to before `to`, at most `max`, and no more once `MOST_BYTES` of them have come. */
export async function readRange(base: string, from: number, to: number, max: number, signal?: AbortSignal) {
  const headers = { Accept: "application/x-ndjson" };
  const answer = await open(`${base}:read`, { query: { from, to, max }, headers, signal });
  const messages: ReadMessage[] = [];
  let next = from;
  let length = 0;
  for await (const line of linesOf(answer)) {
    const message = JSON.parse(line) as ReadMessage;
    messages.push(message);
    next = message.offset + 1;
    length += line.length;
    if (length >= MOST_BYTES) return { messages, next };
  }
  return { messages, next: Math.max(next, Number(answer.headers.get("AMS-Next-Offset") ?? to)) };
}

async function* linesOf(answer: Response): AsyncGenerator<string> {
  const begun: string[] = [];
  for await (const piece of pieces(answer)) {
    const lines = piece.split("\n");
    // A body of 10 MB comes in hundreds of pieces, so they are put together once, at the end of its line.
    for (const line of lines.slice(0, -1)) yield [...begun.splice(0), line].join("");
    begun.push(lines.at(-1) ?? "");
  }
}

export type Wanted = (message: PulledMessage) => boolean;

const CHUNK = 500;
const MOST_SEARCHED = 20_000;

/**
 * Find messages from an id on, or with `backward` before it, until there are `most`, or 20,000 were looked through; those
 * were the ids from `first` to before `next`.
 */
export async function find(
  base: string,
  { min, max }: Pick<Offsets, "min" | "max">,
  at: number,
  backward: boolean,
  most: number,
  wanted: Wanted | null,
  signal?: AbortSignal,
) {
  const messages: ReadMessage[] = [];
  const chunk = wanted ? CHUNK : most;
  let first = Math.min(Math.max(at, min), max);
  let next = first;
  while (messages.length < most && next - first < MOST_SEARCHED) {
    const from = backward ? Math.max(min, first - chunk) : next;
    const to = backward ? first : Math.min(max, next + chunk);
    if (from >= to) break;
    const some: ReadMessage[] = [];
    let until = from;
    do {
      const range = await readRange(base, until, to, chunk, signal);
      some.push(...range.messages);
      until = Math.max(range.next, until + 1);
    } while (backward && until < to);
    const good = wanted ? some.filter(wanted) : some;
    const room = most - messages.length;
    if (backward) {
      const kept = good.slice(-room);
      messages.unshift(...kept);
      first = kept.length < good.length ? (kept[0]?.offset ?? from) : from;
    } else {
      const kept = good.slice(0, room);
      messages.push(...kept);
      next = kept.length < good.length ? (kept.at(-1)?.offset ?? to) + 1 : until;
    }
  }
  return { messages, first, next };
}

/** A filter as people type it: `key` or `key=value` of attributes; several, by blanks, must all be met. */
export function attributeFilter(text: string): Wanted | null {
  const parts = text.split(/\s+/).filter(Boolean);
  if (parts.length === 0) return null;
  return ({ attributes = {} }) =>
    parts.every((part) => {
      const [key = "", ...value] = part.split("=");
      return Object.hasOwn(attributes, key) && (!part.includes("=") || attributes[key] === value.join("="));
    });
}

/** The attributes a dead letter is given (docs/reference/push.md). */
const GIVEN =
  /^(deadLetter(Subscription|SourceTopic|MessageId|PublishTime|Reason|Attempts|Status)|CloudPubSubDeadLetterSource(DeliveryCount|Subscription|SubscriptionProject|TopicPublishTime))$/;

/** A message without what makes it a dead letter. */
function original({ data = "", attributes = {}, orderingKey = "" }: Partial<ReadMessage>) {
  const own = Object.entries(attributes).filter(([name]) => !GIVEN.test(name));
  return { data, attributes: Object.fromEntries(own.toSorted()), orderingKey };
}

/**
 * Whether a dead letter is the message that it says it was: whoever may publish to its topic can write one. Null where that
 * message is gone, or is not told, so that nobody can say.
 */
export async function isGenuine(letter: ReadMessage, source: string, signal?: AbortSignal): Promise<boolean | null> {
  const { deadLetterSourceTopic: topic, deadLetterMessageId: id = "" } = letter.attributes ?? {};
  // By the name alone: a project may have been renamed since.
  if (topic !== undefined && shortName(topic) !== shortName(source)) return false;
  if (!/^\d+$/.test(id)) return null;
  const asked = readRange(source, Number(id), Number(id) + 1, 1, signal);
  const [found] = await asked.then(
    ({ messages }) => messages,
    (error) => {
      if (error instanceof ApiError && isFinal(error)) return []; // the topic itself is gone
      throw error;
    },
  );
  if (found?.offset !== Number(id)) return null;
  return JSON.stringify(original(found)) === JSON.stringify(original(letter));
}

/** The header that a dead letter is published again under; `ams dead redrive` gives the same. */
async function keyOf(source: string, { messageId, publishTime }: ReadMessage) {
  const words = new TextEncoder().encode(`${source} ${messageId} ${publishTime}`);
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", words));
  return { "Idempotency-Key": `redrive-${[...sum].map((each) => each.toString(16).padStart(2, "0")).join("")}` };
}

/** Publish a dead letter as it was, to the topic at `target`. Asked again, it is still published once. */
export async function redrive(target: string, source: string, letter: ReadMessage): Promise<void> {
  const { data, attributes, orderingKey } = original(letter);
  const body = { messages: [{ data, attributes, orderingKey: orderingKey || undefined }] };
  await call(`${target}:publish`, { method: "POST", body, headers: await keyOf(source, letter) });
}

/** Why nothing can be published to a topic by who asks; null: something can. No messages are refused alike, and store nothing. */
export async function publishRefusal(topic: string, signal?: AbortSignal): Promise<Error | null> {
  return call(`${topic}:publish`, { method: "POST", body: { messages: [] }, signal }).then(
    () => null,
    (error) => {
      if (isFinal(error)) return error;
      throw error;
    },
  );
}

/**
 * Whether a dead letter was published again, by anybody: no messages under a key that is known are refused, and store nothing
 * under another one. Null where nobody can say now.
 */
export async function isRedriven(
  target: string,
  source: string,
  letter: ReadMessage,
  signal?: AbortSignal,
): Promise<boolean | null> {
  const headers = await keyOf(source, letter);
  return call(`${target}:publish`, { method: "POST", body: { messages: [] }, headers, signal }).then(
    () => false,
    (error) => {
      if (error instanceof ApiError && error.code >= 400) return error.code === 409 || null;
      throw error;
    },
  );
}

/** What changes while it is looked at: one event stream by fetch, with the token in a header, opened again when it ends. */
import { createParser } from "eventsource-parser";
import { useEffect, useRef, useState } from "preact/hooks";
import { isFinal, open, pieces, serviceNow } from "./api";
import type { Counts, PulledMessage } from "./wire";

type OnEvent = (event: string, data: unknown) => void;

/** Open the stream and give each event to `on`, until it ends; raises what a call raises. */
async function follow(path: string, query: Record<string, string>, signal: AbortSignal, on: OnEvent) {
  const parser = createParser({ onEvent: ({ event = "message", data }) => on(event, JSON.parse(data)) });
  const answer = await open(path, { query, signal, headers: { Accept: "text/event-stream" } });
  for await (const piece of pieces(answer)) parser.feed(piece);
}

/** The error is why it is off, or what is being tried again. */
type Live = { state: "connecting" | "live" | "off"; error: Error | null };

const LONGEST_PAUSE = 30;

/** Follow a stream while the component is there; a query of null follows nothing. */
function useEvents(path: string, query: Record<string, string> | null, on: OnEvent): Live {
  const [live, setLive] = useState<Live>({ state: "connecting", error: null });
  const handler = useRef(on);
  handler.current = on;
  const key = query && JSON.stringify([path, query]);
  useEffect(() => {
    if (!query) return setLive({ state: "off", error: null });
    const leaving = new AbortController();
    const run = async () => {
      for (let pause = 1; !leaving.signal.aborted; pause = Math.min(LONGEST_PAUSE, pause * 2)) {
        setLive((last) => ({ ...last, state: "connecting" }));
        try {
          let begun = false;
          await follow(path, query, leaving.signal, (event, data) => {
            pause = 1;
            if (!begun) handler.current("begin", null);
            begun = true;
            setLive((last) => (last.state === "live" ? last : { state: "live", error: null }));
            handler.current(event, data);
          });
        } catch (error) {
          if (leaving.signal.aborted) return;
          setLive({ state: "off", error: error as Error });
          if (isFinal(error)) return;
        }
        await new Promise((done) => setTimeout(done, pause * 1000));
      }
    };
    void run();
    return () => leaving.abort();
  }, [key]);
  return live;
}

export interface Sample {
  counts: Counts;
  /** Messages a second of each topic, over the last ten seconds; and those that each subscription took. */
  rates: Record<string, number>;
  taken: Record<string, number>;
}

const WINDOW = 10;
/** Seconds that have to be seen before they say anything of a rate. */
const LEAST = 2;
/** Topics and subscriptions that one stream may be of. */
export const MOST_WATCHED = 100;
/** Seconds between two rounds where there are more. */
const ROUND_PAUSE = 5;

type Watched = Record<"topics" | "subscriptions", string>;

/** What streams are asked for, each of as many names as one may be of. */
export function partsOf(topics: string[], subscriptions: string[]): Watched[] {
  const named = (kind: keyof Watched) => (name: string) => ({ kind, name });
  const all = [...topics.toSorted().map(named("topics")), ...subscriptions.toSorted().map(named("subscriptions"))];
  const parts = Array.from({ length: Math.ceil(all.length / MOST_WATCHED) }, (_, at) =>
    all.slice(at * MOST_WATCHED, (at + 1) * MOST_WATCHED),
  );
  const of = (part: typeof all, kind: keyof Watched) =>
    part.filter((each) => each.kind === kind).map(({ name }) => name);
  return parts.map((part) => ({
    topics: of(part, "topics").join(","),
    subscriptions: of(part, "subscriptions").join(","),
  }));
}

/** The counts of topics and subscriptions as they change; of more than 100 in all, one stream after the other says them. */
export function useCounts(project: string, topics: string[], subscriptions: string[]) {
  const [sample, setSample] = useState<Sample | null>(null);
  const seen = useRef<Counts[]>([]);
  const path = `/projects/${project}:watch`;
  const parts = partsOf(topics, subscriptions);
  const key = JSON.stringify([path, parts]);
  const many = parts.length > 1;
  const live = useEvents(path, many ? null : (parts[0] ?? null), (event, data) => {
    if (event === "begin") seen.current.splice(0);
    if (event === "counts") seen.current.push(data as Counts);
    tell();
  });
  const [rounds, setRounds] = useState<Live>({ state: "connecting", error: null });
  const tell = () => {
    if (many) seen.current.splice(0, seen.current.length - 2);
    const newest = seen.current.at(-1)?.time ?? "";
    setSample(many ? sampleOf(seen.current, Date.parse(newest), Infinity) : sampleOf(seen.current, serviceNow()));
  };
  useEffect(() => {
    seen.current.splice(0);
    setSample(null);
    if (!many) {
      // Nothing is sent while nothing changes: rates fall and ages grow by themselves.
      const timer = setInterval(tell, 2000);
      return () => clearInterval(timer);
    }
    const leaving = new AbortController();
    const run = async () => {
      while (!leaving.signal.aborted) {
        try {
          seen.current.push(await round(path, parts, leaving.signal));
          setRounds({ state: "live", error: null });
          tell();
        } catch (error) {
          if (leaving.signal.aborted) return;
          seen.current.splice(0);
          setRounds({ state: "off", error: error as Error });
          if (isFinal(error)) return;
        }
        await new Promise((done) => setTimeout(done, ROUND_PAUSE * 1000));
      }
    };
    void run();
    return () => leaving.abort();
  }, [key]);
  return { ...(many ? rounds : live), sample };
}

/** The counts of all parts, as the first event of a stream of each says them. */
async function round(path: string, parts: Watched[], leaving: AbortSignal): Promise<Counts> {
  const all: Counts = { time: "", topics: {}, subscriptions: {} };
  for (const part of parts) {
    const enough = new AbortController();
    const left = () => enough.abort();
    leaving.addEventListener("abort", left);
    let found: Counts | null = null;
    await follow(path, part, enough.signal, (event, data) => {
      if (event === "counts") found ??= data as Counts;
      enough.abort();
    }).catch((error: Error) => {
      if (!found) throw error;
    });
    leaving.removeEventListener("abort", left);
    const { time = all.time, topics = {}, subscriptions = {} } = (found ?? {}) as Partial<Counts>;
    Object.assign(all.topics, topics);
    Object.assign(all.subscriptions, subscriptions);
    all.time = time;
  }
  return all;
}

/**
 * What the counts seen so far say at a time, in milliseconds since 1970; forgets those that are of no use any more. Of a
 * shorter time than `LEAST` there are no rates.
 */
export function sampleOf(seen: Counts[], now: number, span = WINDOW): Sample | null {
  const newest = seen.at(-1);
  if (!newest) return null;
  const before = (counts: Counts) => now - Date.parse(counts.time) >= span * 1000;
  seen.splice(0, Math.max(0, seen.findLastIndex(before)));
  const [base = newest] = seen;
  const seconds = Math.min(span, (now - Date.parse(base.time)) / 1000);
  const rates = <T>(now: Record<string, T>, before: Record<string, T>, count: (of: T) => number) =>
    Object.fromEntries(
      Object.entries(now)
        .filter(() => seconds >= LEAST)
        .map(([name, of]) => [name, Math.max(0, count(of) - count(before[name] ?? of)) / seconds]),
    );
  const since = Math.max(0, (now - Date.parse(newest.time)) / 1000);
  const older = (age?: number) => (age === undefined ? {} : { oldestUnackedSeconds: age + since });
  const subscriptions = Object.fromEntries(
    Object.entries(newest.subscriptions).map(([name, of]) => [name, { ...of, ...older(of.oldestUnackedSeconds) }]),
  );
  return {
    counts: { ...newest, subscriptions },
    rates: rates(newest.topics, base.topics, ({ messages }) => messages),
    // What came in and does not wait any more; a move looks like it for ten seconds.
    taken: rates(newest.subscriptions, base.subscriptions, ({ end, lag }) => end - lag),
  };
}

type Tailed = { offset: number; message: PulledMessage };

/** The newest messages of a topic as they come, the newest first, at most `most` of them. */
export function useTail(project: string, topic: string, most: number) {
  const [messages, setMessages] = useState<Tailed[]>([]);
  const [skipped, setSkipped] = useState(0);
  const live = useEvents(`/projects/${project}:watch`, { tail: topic }, (event, data) => {
    if (event === "skipped") setSkipped((last) => last + (data as { messages: number }).messages);
    if (event === "message") setMessages((last) => [data as Tailed, ...last].slice(0, most));
  });
  return { ...live, messages, skipped };
}

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
          await follow(path, query, leaving.signal, (event, data) => {
            pause = 1;
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
/** Topics and subscriptions that one stream may be of. */
export const MOST_WATCHED = 100;

/** The counts of some topics and subscriptions, at most 100 in all, as they change. */
export function useCounts(project: string, topics: string[], subscriptions: string[]) {
  const [sample, setSample] = useState<Sample | null>(null);
  const seen = useRef<Counts[]>([]);
  const names = { topics: topics.toSorted().join(","), subscriptions: subscriptions.toSorted().join(",") };
  const tell = () => setSample(sampleOf(seen.current, serviceNow()));
  const query = names.topics || names.subscriptions ? names : null;
  const live = useEvents(`/projects/${project}:watch`, query, (event, data) => {
    if (event !== "counts") return;
    seen.current.push(data as Counts);
    tell();
  });
  // Nothing is sent while nothing changes: rates fall and ages grow by themselves.
  useEffect(() => {
    const timer = setInterval(tell, 2000);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => void seen.current.splice(0), [names.topics, names.subscriptions]);
  return { ...live, sample };
}

/** What the counts seen so far say at a time, in milliseconds since 1970; forgets those that are of no use any more. */
export function sampleOf(seen: Counts[], now: number): Sample | null {
  const newest = seen.at(-1);
  if (!newest) return null;
  const before = (counts: Counts) => now - Date.parse(counts.time) >= WINDOW * 1000;
  seen.splice(0, Math.max(0, seen.findLastIndex(before)));
  const [base = newest] = seen;
  const seconds = Math.min(WINDOW, Math.max(1, (now - Date.parse(base.time)) / 1000));
  const rates = <T>(now: Record<string, T>, before: Record<string, T>, count: (of: T) => number) =>
    Object.fromEntries(
      Object.entries(now).map(([name, of]) => [name, Math.max(0, count(of) - count(before[name] ?? of)) / seconds]),
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

/** What changes while it is looked at: one event stream by fetch, with the token in a header, opened again when it ends. */
import { createParser } from "eventsource-parser";
import { useEffect, useRef, useState } from "preact/hooks";
import { isFinal, open } from "./api";
import type { Counts, Message } from "./types";

/** Open the stream and give each event to `on`, until it ends; raises what a call raises. */
async function follow(path: string, query: Record<string, string>, signal: AbortSignal, on: OnEvent) {
  const answer = await open(path, { query, signal, headers: { Accept: "text/event-stream" } });
  const parser = createParser({ onEvent: ({ event = "message", data }) => on(event, JSON.parse(data)) });
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done = true, value = "" } = (await reader?.read()) ?? {};
    if (done) return;
    parser.feed(value);
  }
}

type OnEvent = (event: string, data: unknown) => void;

export type LiveState = "connecting" | "live" | "off";

export interface Live {
  state: LiveState;
  /** Why it is off, or what is being tried again. */
  error: Error | null;
}

const LONGEST_PAUSE = 30;

/** Follow a stream while the component is there; a query of null follows nothing. */
export function useEvents(path: string, query: Record<string, string> | null, on: OnEvent): Live {
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
  /** Messages a second of each topic, since the sample before. */
  rates: Record<string, number>;
}

/** The counts of some topics and subscriptions as they change; names are sorted, so their order does not matter. */
export function useCounts(
  project: string,
  topics: string[],
  subscriptions: string[],
): Live & { sample: Sample | null } {
  const [sample, setSample] = useState<Sample | null>(null);
  const some = topics.length + subscriptions.length > 0;
  const query = some
    ? { topics: topics.toSorted().join(","), subscriptions: subscriptions.toSorted().join(",") }
    : null;
  const live = useEvents(`/projects/${project}:watch`, query, (event, data) => {
    if (event !== "counts") return;
    const counts = data as Counts;
    setSample((last) => ({ counts, rates: ratesBetween(last?.counts, counts) }));
  });
  return { ...live, sample };
}

export function ratesBetween(before: Counts | undefined, now: Counts): Record<string, number> {
  const seconds = before ? (Date.parse(now.time) - Date.parse(before.time)) / 1000 : 0;
  if (!before || seconds <= 0) return {};
  const rates: Record<string, number> = {};
  for (const [name, { messages }] of Object.entries(now.topics)) {
    const earlier = before.topics[name]?.messages;
    if (earlier !== undefined) rates[name] = Math.max(0, messages - earlier) / seconds;
  }
  return rates;
}

export interface Tailed {
  offset: number;
  message: Message;
}

/** The newest messages of a topic as they come, the newest first, at most `most` of them. */
export function useTail(project: string, topic: string, on: boolean, most: number) {
  const [messages, setMessages] = useState<Tailed[]>([]);
  const [skipped, setSkipped] = useState(0);
  const live = useEvents(`/projects/${project}:watch`, on ? { tail: topic } : null, (event, data) => {
    if (event === "skipped") setSkipped((last) => last + (data as { messages: number }).messages);
    if (event === "message") setMessages((last) => [data as Tailed, ...last].slice(0, most));
  });
  return { ...live, messages, skipped, clear: () => setMessages([]) };
}

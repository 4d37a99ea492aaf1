/** What changes while it is looked at: one event stream by fetch, with the token in a header, opened again when it ends. */
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, open } from "./api";
import type { Counts, Message } from "./types";

export interface ServerEvent {
  event: string;
  data: string;
}

/** Read `text/event-stream` in pieces, wherever they are cut; returns the events that are whole. */
export function eventParser(): (piece: string) => ServerEvent[] {
  let rest = "";
  return (piece) => {
    rest += piece;
    // A line end may come in two pieces: a lone \r at the end waits for what is next.
    const held = rest.endsWith("\r") ? "\r" : "";
    const blocks = rest
      .slice(0, rest.length - held.length)
      .replace(/\r\n?/g, "\n")
      .split("\n\n");
    rest = (blocks.pop() ?? "") + held;
    return blocks.map(eventOf).filter((each) => each.data !== "");
  };
}

function eventOf(block: string): ServerEvent {
  let event = "message";
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const [, name, value = ""] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
    if (name === "event") event = value;
    if (name === "data") data.push(value);
  }
  return { event, data: data.join("\n") };
}

/** Open the stream and give each event to `on`, until it ends; raises what a call raises. */
async function follow(
  path: string,
  query: Record<string, string>,
  signal: AbortSignal,
  on: (event: ServerEvent) => void,
) {
  const answer = await open(path, { query, signal, headers: { Accept: "text/event-stream" } });
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  const parse = eventParser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    for (const event of parse(value)) on(event);
  }
}

export type LiveState = "connecting" | "live" | "off";

export interface Live {
  state: LiveState;
  /** Why it is off, or what is being tried again. */
  error: Error | null;
}

const LONGEST_PAUSE = 30;

/** Follow a stream while the component is there; a query of null follows nothing. */
export function useEvents(path: string, query: Record<string, string> | null, on: (event: ServerEvent) => void): Live {
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
          await follow(path, query, leaving.signal, (event) => {
            pause = 1;
            setLive((last) => (last.state === "live" ? last : { state: "live", error: null }));
            handler.current(event);
          });
        } catch (error) {
          if (leaving.signal.aborted) return;
          setLive({ state: "off", error: error as Error });
          // What will not be otherwise by asking again: no right, no such thing, no such call.
          if (error instanceof ApiError && error.code >= 400 && error.code < 429) return;
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
  const live = useEvents(`/projects/${project}:watch`, query, ({ event, data }) => {
    if (event !== "counts") return;
    const counts = JSON.parse(data) as Counts;
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
  const live = useEvents(`/projects/${project}:watch`, on ? { tail: topic } : null, ({ event, data }) => {
    if (event === "skipped") setSkipped((last) => last + Number(JSON.parse(data).messages));
    if (event === "message") setMessages((last) => [JSON.parse(data) as Tailed, ...last].slice(0, most));
  });
  return { ...live, messages, skipped, clear: () => setMessages([]) };
}

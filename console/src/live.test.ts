import assert from "node:assert/strict";
import { test } from "node:test";
import { eventParser, ratesBetween, type ServerEvent } from "./live";

const STREAM =
  'event: counts\r\ndata: {"a":1}\r\n\r\n: still here\n\nid: 7\nevent: message\ndata: one\ndata: two\n\nevent: half\ndata: not';

test("events are the same wherever the stream is cut", () => {
  const wanted: ServerEvent[] = [
    { event: "counts", data: '{"a":1}' },
    { event: "message", data: "one\ntwo" },
  ];
  for (let first = 0; first <= STREAM.length; first++) {
    for (let second = first; second <= STREAM.length; second += 7) {
      const parse = eventParser();
      const pieces = [STREAM.slice(0, first), STREAM.slice(first, second), STREAM.slice(second)];
      assert.deepEqual(pieces.flatMap(parse), wanted, `cut at ${first} and ${second}`);
    }
  }
});

test("a rate is what came between two samples, by the service's clock", () => {
  const at = (time: string, messages: number) => ({ time, topics: { a: { messages, bytes: 0 } }, subscriptions: {} });
  const before = at("2026-01-01T00:00:00Z", 10);
  assert.deepEqual(ratesBetween(before, at("2026-01-01T00:00:02Z", 30)), { a: 10 });
  assert.deepEqual(ratesBetween(undefined, before), {});
  // A topic that was made again counts from 0.
  assert.deepEqual(ratesBetween(before, at("2026-01-01T00:00:01Z", 3)), { a: 0 });
});

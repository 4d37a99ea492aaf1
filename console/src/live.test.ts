import assert from "node:assert/strict";
import { test } from "node:test";
import { ratesBetween } from "./live";

test("a rate is what came between two samples, by the service's clock", () => {
  const at = (time: string, messages: number) => ({ time, topics: { a: { messages, bytes: 0 } }, subscriptions: {} });
  const before = at("2026-01-01T00:00:00Z", 10);
  assert.deepEqual(ratesBetween(before, at("2026-01-01T00:00:02Z", 30)), { a: 10 });
  assert.deepEqual(ratesBetween(undefined, before), {});
  // A topic that was made again counts from 0.
  assert.deepEqual(ratesBetween(before, at("2026-01-01T00:00:01Z", 3)), { a: 0 });
});

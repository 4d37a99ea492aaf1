import assert from "node:assert/strict";
import { test } from "node:test";
import { partsOf, sampleOf } from "./live";
import type { Counts } from "./wire";

const START = Date.parse("2026-01-01T00:00:00Z");
const at = (seconds: number, messages: number, age?: number): Counts => ({
  time: new Date(START + seconds * 1000).toISOString(),
  topics: { a: { messages, bytes: 0 } },
  subscriptions: { s: { current: 0, end: 0, lag: 0, ...(age === undefined ? {} : { oldestUnackedSeconds: age }) } },
});
const rateAt = (seen: Counts[], seconds: number) => sampleOf(seen, START + seconds * 1000)?.rates.a;

test("a rate is of the last ten seconds, and falls to nothing when nothing comes", () => {
  const seen = [at(0, 100), at(1, 110), at(2, 120)];
  assert.equal(rateAt([...seen], 2), 10);
  assert.equal(rateAt([...seen], 8), 2.5);
  assert.equal(rateAt([...seen], 30), 0);
});

test("of the first moments there is no rate, as they say nothing", () => {
  assert.equal(rateAt([at(0, 100)], 0), undefined);
  assert.equal(rateAt([at(0, 100), at(1, 200)], 1), undefined);
  assert.equal(rateAt([at(0, 100), at(1, 200)], 4), 25);
});

test("what is told in rounds is measured from one to the other, however long they take", () => {
  assert.equal(sampleOf([at(0, 100), at(25, 200)], START + 25_000, Number.POSITIVE_INFINITY)?.rates.a, 4);
});

test("many names are asked for in parts of a hundred, all of them", () => {
  const names = Array.from({ length: 159 }, (_, at) => `n${at}`);
  const parts = partsOf(names.slice(0, 100), names.slice(100));
  assert.deepEqual(
    parts.map(({ topics, subscriptions }) =>
      [topics, subscriptions].map((each) => each.split(",").filter(Boolean).length),
    ),
    [
      [100, 0],
      [0, 59],
    ],
  );
  assert.deepEqual(
    parts
      .flatMap(({ topics, subscriptions }) => [topics, subscriptions].join(",").split(",").filter(Boolean))
      .toSorted(),
    names.toSorted(),
  );
  assert.deepEqual(partsOf([], []), []);
});

test("a topic that was made again counts from nothing", () => {
  assert.equal(rateAt([at(0, 100), at(5, 3)], 5), 0);
  assert.equal(sampleOf([], START), null);
});

test("what is of no use any more is forgotten", () => {
  const seen = Array.from({ length: 1000 }, (_, second) => at(second, second));
  assert.equal(rateAt(seen, 999), 1);
  assert.ok(seen.length <= 12);
});

test("ages grow while nothing is sent", () => {
  assert.equal(sampleOf([at(0, 0, 5)], START + 7000)?.counts.subscriptions.s?.oldestUnackedSeconds, 12);
  assert.equal(sampleOf([at(0, 0)], START + 7000)?.counts.subscriptions.s?.oldestUnackedSeconds, undefined);
});

test("what a subscription takes is what came in and does not wait any more", () => {
  const of = (seconds: number, end: number, lag: number): Counts => ({
    ...at(seconds, end),
    subscriptions: { s: { current: end - lag, end, lag } },
  });
  assert.equal(sampleOf([of(0, 100, 50), of(5, 120, 20)], START + 5000)?.taken.s, 10);
  assert.equal(sampleOf([of(0, 100, 0), of(5, 100, 80)], START + 5000)?.taken.s, 0);
});

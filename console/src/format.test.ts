import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, plural, rate, shortName, span, utcTime } from "./format";

test("a span has at most two parts, and none that is nothing", () => {
  const said = [0, 0.25, 9.96, 59.4, 60, 3599, 3600, 3661, 86_400, 86_460, 90_000, 400 * 86_400].map(span);
  assert.deepEqual(said, [
    "0 s",
    "0.3 s",
    "10 s",
    "59 s",
    "1 min",
    "59 min",
    "1 h",
    "1 h 1 min",
    "1 d",
    "1 d",
    "1 d 1 h",
    "400 d",
  ]);
});

test("bytes are counted by 1,024 up to the unit that they fill", () => {
  assert.deepEqual([0, 1023, 1024, 1_500_000, 2 ** 40, 2 ** 52].map(bytes), [
    "0 B",
    "1,023 B",
    "1.0 KiB",
    "1.4 MiB",
    "1.0 TiB",
    "4096.0 TiB",
  ]);
});

test("what is not known is a dash", () => {
  assert.deepEqual([span(undefined), bytes(null), rate(undefined)], ["–", "–", "–"]);
});

test("times, names and counts are written as people read them", () => {
  assert.equal(utcTime(new Date("2026-01-31T12:00:00.000Z")), "2026-01-31 12:00:00 UTC");
  assert.equal(utcTime(new Date("2026-01-31T12:00:00.125Z")), "2026-01-31 12:00:00.125 UTC");
  assert.equal(shortName("projects/P/topics/T"), "T");
  assert.deepEqual([plural(1, "message"), plural(2000, "message")], ["1 message", "2,000 messages"]);
});

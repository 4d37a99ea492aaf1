import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeAvro } from "./avro";

const bytes = (...all: number[]) => Uint8Array.from(all);

test("numbers are zigzag, as the specification has them", () => {
  const cases: [number, number[]][] = [
    [0, [0]],
    [-1, [1]],
    [1, [2]],
    [-64, [127]],
    [64, [128, 1]],
  ];
  for (const [value, written] of cases) assert.equal(decodeAvro("long", bytes(...written)), value);
});

test("a record has its fields, also those of named types used again", () => {
  const place = { type: "record", name: "Place", namespace: "park", fields: [{ name: "bed", type: "string" }] };
  const schema = {
    type: "record",
    name: "park.Walk",
    fields: [
      { name: "from", type: place },
      { name: "to", type: ["null", "Place"] },
      { name: "kind", type: { type: "enum", name: "Kind", symbols: ["SLOW", "FAST"] } },
      { name: "stops", type: { type: "array", items: "int" } },
      { name: "notes", type: { type: "map", values: "boolean" } },
    ],
  };
  const data = bytes(2, 97, 2, 2, 98, 2, 4, 2, 4, 0, 2, 2, 120, 1, 0);
  assert.deepEqual(decodeAvro(schema, data), {
    from: { bed: "a" },
    to: { bed: "b" },
    kind: "FAST",
    stops: [1, 2],
    notes: { x: true },
  });
});

test("what is not of the schema is an error, and never an endless loop", () => {
  assert.throws(() => decodeAvro("string", bytes(20, 97)), /ends in the middle/);
  assert.throws(() => decodeAvro("null", bytes(0)), /behind the datum/);
  assert.throws(() => decodeAvro(["null"], bytes(8)), /no such branch/);
  assert.throws(() => decodeAvro({ type: "array", items: "null" }, bytes(254, 255, 255, 255, 15)), /too large/);
  const endless = { type: "record", name: "E", fields: [{ name: "e", type: "E" }] };
  assert.throws(() => decodeAvro(endless, bytes()), /too large/);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { asHex, asJson, asText, fromBase64, toBase64, visible } from "./text";

test("marks that turn the direction, and controls, are written out", () => {
  assert.equal(visible("abc\u202egnp.exe\u0000"), "abc⟨202E⟩gnp.exe⟨0000⟩");
  assert.equal(visible("two\nlines\tand ü, 漢字, مرحبا"), "two\nlines\tand ü, 漢字, مرحبا");
});

test("bytes survive base64 and back, whatever they are", () => {
  const all = Uint8Array.from({ length: 100_000 }, (_, at) => (at * 7919) % 256);
  assert.deepEqual(fromBase64(toBase64(all)), all);
});

test("data that is no base64 is shown as the text it is", () => {
  assert.equal(asText(fromBase64("not base64!")), "not base64!");
});

test("bytes that are no UTF-8 are no text", () => {
  assert.equal(asText(new Uint8Array([0xff, 0xfe])), null);
  assert.equal(asText(new TextEncoder().encode("ü")), "ü");
});

test("only what is JSON is laid out as JSON", () => {
  assert.equal(asJson('{"a":[1]}'), '{\n  "a": [\n    1\n  ]\n}');
  assert.equal(asJson("{half"), null);
  assert.equal(asJson("plain text"), null);
});

test("JSON is laid out in its own text, as other languages write it", () => {
  assert.equal(asJson(' {"a b": "c \\" d"} '), '{\n  "a b": "c \\" d"\n}');
  assert.equal(asJson('{"a":{},"b":[],"c":[{"d":null}]}'), JSON.stringify({ a: {}, b: [], c: [{ d: null }] }, null, 2));
  const values = ["12345678901234567890", "57.0", "1e3", "1.10", "1e400", "-0", '"\\u00fc"', '"[{,:}]"', '"\\\\"'];
  for (const value of values) assert.equal(asJson(`[${value}, ${value}]`), `[\n  ${value},\n  ${value}\n]`);
  assert.equal(asJson('{"a":1,"a":2}'), '{\n  "a": 1,\n  "a": 2\n}');
  assert.equal(asJson('{"2":0,"1":0}'), '{\n  "2": 0,\n  "1": 0\n}');
  for (const text of ["1", '"a"', "true", "null", "[1,]", "[1 2]", "[01]", "{a:1}"])
    assert.equal(asJson(text), null, text);
});

test("hexadecimal lines say where they are and what is printable, and are cut", () => {
  assert.equal(asHex(new TextEncoder().encode("hello\n")), `00000000  68 65 6c 6c 6f 0a${" ".repeat(32)}hello.`);
  assert.equal(asHex(new Uint8Array(100), 32).split("\n").length, 2);
});

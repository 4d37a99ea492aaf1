import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeProtobuf } from "./protobuf";
import { fromBase64 } from "./text";

/** Of a message `park.Walk` with fields of each kind, as the service made it. */
const DESCRIPTOR = [
  "CgxzY2hlbWEucHJvdG8SBHBhcmsaH2dvb2dsZS9wcm90b2J1Zi90aW1lc3RhbXAucHJvdG8i7AMKBFdhbGsSGQoIZnJvbV9iZWQY",
  "ASABKAlSB2Zyb21CZWQSIAoCdG8YAiABKAsyEC5wYXJrLldhbGsuUGxhY2VSAnRvEiMKBGtpbmQYAyABKA4yDy5wYXJrLldhbGsu",
  "S2luZFIEa2luZBIUCgVzdG9wcxgEIAMoEVIFc3RvcHMSKwoFbm90ZXMYBSADKAsyFS5wYXJrLldhbGsuTm90ZXNFbnRyeVIFbm90",
  "ZXMSKgoCYXQYBiABKAsyGi5nb29nbGUucHJvdG9idWYuVGltZXN0YW1wUgJhdBIQCgNmYXIYByABKANSA2ZhchISCgR3YWxsGAgg",
  "ASgBUgR3YWxsEhAKA3JhdxgJIAEoDFIDcmF3EigKBm90aGVycxgKIAMoCzIQLnBhcmsuV2Fsay5QbGFjZVIGb3RoZXJzEhAKA2xv",
  "dxgLIAEoBVIDbG93EgwKAWYYDCABKAJSAWYaOwoFUGxhY2USEAoDYmVkGAEgASgJUgNiZWQSIAoCaW4YAiABKAsyEC5wYXJrLldh",
  "bGsuUGxhY2VSAmluGjgKCk5vdGVzRW50cnkSEAoDa2V5GAEgASgJUgNrZXkSFAoFdmFsdWUYAiABKAhSBXZhbHVlOgI4ASIaCgRL",
  "aW5kEggKBFNMT1cQABIICgRGQVNUEAFiBnByb3RvMw==",
].join("");
const MESSAGE =
  "CgFhEgUKAWISABgBIgICAyoFCgF4EAEyBgjy54XMBjiAgICAgICAgBBBAAAAAAAA+D9KAgECUgMKAWNSAFj7//////////8BZQAAAD8=";

test("a message is read by its descriptor, as its JSON is written", () => {
  assert.deepEqual(decodeProtobuf({ descriptor: DESCRIPTOR }, fromBase64(MESSAGE)), {
    fromBed: "a",
    to: { bed: "b", in: {} },
    kind: "FAST",
    stops: [1, -2],
    notes: { x: true },
    at: "2026-02-03T04:05:06.000Z",
    far: "1152921504606846976",
    wall: 1.5,
    raw: "AQI=",
    others: [{ bed: "c" }, {}],
    low: -5,
    f: 0.5,
  });
});

test("what is not of the schema is an error, and a field that it does not have is left out", () => {
  const decode = (...all: number[]) => decodeProtobuf({ descriptor: DESCRIPTOR }, Uint8Array.from(all));
  assert.deepEqual(decode(248, 7, 1), {});
  assert.throws(() => decode(10, 5, 97), /ends in the middle/);
  assert.throws(() => decode(10, 1, 255), TypeError);
  assert.throws(() => decode(8, 1), /not of its type/);
  assert.throws(() => decode(0), /not a message/);
  assert.throws(() => decode(...Array(300).fill(163), 1), Error);
  assert.throws(() => decode(...[123, 34, 97, 34]), /not a message|middle|does not end/);
  assert.throws(() => decodeProtobuf({}, Uint8Array.of()));
});

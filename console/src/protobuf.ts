/** Reads one binary message in Protocol Buffers by the descriptor of its schema, to be looked at. */
import { fromBase64 } from "./text";

type Wire = bigint | Uint8Array | Field[];
type Field = [number: number, value: Wire];
type Part = { name: string; type: number; typeName: string; repeated: boolean };
type Message = { parts: Map<number, Part>; isMap: boolean };
type Types = { messages: Map<string, Message>; enums: Map<string, Map<bigint, string>> };

const VARINT = 0;
const LONG = 1;
const BYTES = 2;
const GROUP = 3;
const END = 4;
const SHORT = 5;
const DEEPEST = 100;
const DOUBLE = 1;
const FLOAT = 2;
const BOOL = 8;
const STRING = 9;
const MESSAGES = [10, 11];
const BINARY = 12;
const ENUM = 14;
const SIGNED: Record<number, number> = { 3: 64, 5: 32, 15: 32, 16: 64 };
const ZIGZAG = [17, 18];
/** How a packed list writes its items; those of other types are varints. */
const FIXED: Record<number, number> = { 1: LONG, 2: SHORT, 6: LONG, 7: SHORT, 15: SHORT, 16: LONG };
const REPEATED = 3n;

/** Return the message as a value of JSON; raise an `Error` where the bytes are not of the schema. */
export function decodeProtobuf(schema: unknown, data: Uint8Array): unknown {
  const file = new Reader(fromBase64((schema as { descriptor: string }).descriptor)).fields();
  const types: Types = { messages: new Map(), enums: new Map() };
  const space = strings(file, 2)[0];
  const [root] = within(file, 4).map((each) => declare(each, space ? `.${space}` : "", types));
  if (!root) throw new Error("the schema has no descriptor");
  return read(new Reader(data).fields(), root, types, 0);
}

/** Note a type, and those in it; return its full name. */
function declare(message: Field[], space: string, types: Types): string {
  const name = `${space}.${strings(message, 1)[0]}`;
  const parts = within(message, 2).map((each): [number, Part] => [
    Number(numbers(each, 3)[0]),
    {
      name: strings(each, 10)[0] ?? strings(each, 1)[0] ?? "",
      type: Number(numbers(each, 5)[0]),
      typeName: strings(each, 6)[0] ?? "",
      repeated: numbers(each, 4)[0] === REPEATED,
    },
  ]);
  const isMap = within(message, 7).some((options) => numbers(options, 7)[0] === 1n);
  types.messages.set(name, { parts: new Map(parts), isMap });
  for (const each of within(message, 3)) declare(each, name, types);
  for (const each of within(message, 4)) {
    const values = within(each, 2).map((one): [bigint, string] => [numbers(one, 2)[0] ?? 0n, strings(one, 1)[0] ?? ""]);
    types.enums.set(`${name}.${strings(each, 1)[0]}`, new Map(values));
  }
  return name;
}

function read(fields: Field[], name: string, types: Types, depth: number): unknown {
  const message = types.messages.get(name);
  if (depth > DEEPEST) throw new Error("the message is too deep to be shown");
  if (!message) return wellKnown(fields, name);
  const found: Record<string, unknown> = {};
  for (const [number, raw] of fields) {
    const part = message.parts.get(number);
    if (!part) continue;
    const one = (value: Wire) => scalar(value, part, types, depth);
    if (!part.repeated) found[part.name] = one(raw);
    else if (types.messages.get(part.typeName)?.isMap) {
      const { key = "", value = null } = one(raw) as { key?: unknown; value?: unknown };
      found[part.name] = { ...(found[part.name] as object), [String(key)]: value };
    } else {
      const packed = raw instanceof Uint8Array && ![STRING, BINARY, ...MESSAGES].includes(part.type);
      const items: Wire[] = packed ? new Reader(raw).packed(FIXED[part.type] ?? VARINT) : [raw];
      found[part.name] = [...((found[part.name] as unknown[]) ?? []), ...items.map(one)];
    }
  }
  return found;
}

/** A type of Google that definitions import: a time as people read it, another one by its numbers. */
function wellKnown(fields: Field[], name: string): unknown {
  const at = Number(BigInt.asIntN(64, numbers(fields, 1)[0] ?? 0n)) * 1000 + Number(numbers(fields, 2)[0] ?? 0n) / 1e6;
  if (name === ".google.protobuf.Timestamp") return new Date(at).toISOString();
  return Object.fromEntries(
    fields.map(([number, value]) => [number, value instanceof Uint8Array ? hex(value) : `${value}`]),
  );
}

function scalar(value: Wire, { type, typeName }: Part, types: Types, depth: number): unknown {
  if (MESSAGES.includes(type)) {
    return read(
      value instanceof Uint8Array ? new Reader(value).fields() : (value as Field[]),
      typeName,
      types,
      depth + 1,
    );
  }
  if (value instanceof Uint8Array) {
    if (type === STRING) return new TextDecoder("utf-8", { fatal: true }).decode(value);
    if (type === BINARY) return btoa(String.fromCharCode(...value));
  }
  if (typeof value !== "bigint" || type === STRING || type === BINARY) throw new Error("a field is not of its type");
  if (type === BOOL) return value !== 0n;
  if (type === ENUM) return types.enums.get(typeName)?.get(BigInt.asIntN(32, value)) ?? Number(value);
  if (type === DOUBLE) return new DataView(new BigUint64Array([value]).buffer).getFloat64(0, true);
  if (type === FLOAT) return new DataView(new BigUint64Array([value]).buffer).getFloat32(0, true);
  const bits = SIGNED[type];
  const number = ZIGZAG.includes(type) ? (value >> 1n) ^ -(value & 1n) : bits ? BigInt.asIntN(bits, value) : value;
  return Number.isSafeInteger(Number(number)) ? Number(number) : String(number);
}

function hex(data: Uint8Array): string {
  return Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const raw = (fields: Field[], number: number) => fields.filter((each) => each[0] === number).map((each) => each[1]);
const numbers = (fields: Field[], number: number) => raw(fields, number).filter((each) => typeof each === "bigint");
const pieces = (fields: Field[], number: number) => raw(fields, number).filter((each) => each instanceof Uint8Array);
const strings = (fields: Field[], number: number) =>
  pieces(fields, number).map((each) => new TextDecoder().decode(each));
const within = (fields: Field[], number: number) => pieces(fields, number).map((each) => new Reader(each).fields());

class Reader {
  private at = 0;

  constructor(private readonly data: Uint8Array) {}

  /** The fields of a message, those of a group up to its end. */
  fields(group = 0, depth = 0): Field[] {
    const found: Field[] = [];
    while (this.at < this.data.length) {
      const tag = Number(this.varint());
      const [number, kind] = [Math.floor(tag / 8), tag % 8];
      if (number === 0 || depth > DEEPEST) throw new Error("the data is not a message");
      if (kind === END && number === group) return found;
      found.push([number, kind === GROUP ? this.fields(number, depth + 1) : this.value(kind)]);
    }
    if (group) throw new Error("a group does not end");
    return found;
  }

  packed(kind: number): Wire[] {
    const found: Wire[] = [];
    while (this.at < this.data.length) found.push(this.value(kind));
    return found;
  }

  private value(kind: number): Wire {
    if (kind === VARINT) return this.varint();
    if (kind === BYTES) return this.take(Number(this.varint()));
    if (kind !== LONG && kind !== SHORT) throw new Error("the data is not a message");
    return this.take(kind === LONG ? 8 : 4).reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  }

  private varint(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.take(1)[0] ?? 0;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asUintN(64, value);
    }
    throw new Error("a number has more than 64 bits");
  }

  private take(length: number): Uint8Array {
    if (this.at + length > this.data.length) throw new Error("the data ends in the middle");
    this.at += length;
    return this.data.subarray(this.at - length, this.at);
  }
}

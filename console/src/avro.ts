/** Reads one bare datum of an Avro schema, to be looked at: what AMS keeps on a topic with a schema of this type. */

type AvroSchema = string | AvroSchema[] | Complex;
type Collection = { items: AvroSchema; values: AvroSchema };
type Named = { name: string; namespace?: string; size: number; symbols: string[]; fields: Complex[] };
type Complex = Collection & Named & { type: AvroSchema };

const PRIMITIVES: Record<string, (from: Reader) => unknown> = {
  null: () => null,
  boolean: (from) => from.take(1).getUint8(0) !== 0,
  int: (from) => from.long(),
  long: (from) => from.long(),
  float: (from) => from.take(4).getFloat32(0, true),
  double: (from) => from.take(8).getFloat64(0, true),
  bytes: (from) => from.binary(from.long()),
  string: (from) => from.text(),
};

const NAMED: AvroSchema[] = ["record", "error", "enum", "fixed"];
const DEEPEST = 200;
const MOST_ITEMS = 1_000_000;

/** Return the datum as a value of JSON; raise an `Error` where the bytes are not of the schema. */
export function decodeAvro(schema: unknown, data: Uint8Array): unknown {
  const reader = new Reader(data);
  const value = reader.value(schema as AvroSchema, "", 0);
  if (reader.at < data.length) throw new Error("there are bytes behind the datum");
  return value;
}

class Reader {
  at = 0;
  private items = 0;
  private readonly names = new Map<string, Complex>();

  constructor(private readonly data: Uint8Array) {}

  value(schema: AvroSchema, space: string, depth: number): unknown {
    if (depth > DEEPEST || ++this.items > MOST_ITEMS) throw new Error("the datum is too large to be shown");
    if (typeof schema === "string") return this.named(schema, space, depth);
    const inside = (of: AvroSchema, within = space) => this.value(of, within, depth + 1);
    if (Array.isArray(schema)) {
      const branch = schema[this.long()];
      if (branch === undefined) throw new Error("no such branch of a union");
      return inside(branch);
    }
    if (schema.type === "array") return this.blocks(() => inside(schema.items));
    const entry = () => [this.text(), inside(schema.values)];
    if (schema.type === "map") return Object.fromEntries(this.blocks(entry));
    if (!NAMED.includes(schema.type)) return inside(schema.type);
    const own = this.declare(schema, space);
    if (schema.type === "enum") return schema.symbols[this.long()];
    if (schema.type === "fixed") return this.binary(schema.size);
    return Object.fromEntries(schema.fields.map((field) => [field.name, inside(field.type, own)]));
  }

  /** Note a name for those who use it, and return the namespace inside. */
  private declare(schema: Complex, space: string): string {
    const dot = schema.name.lastIndexOf(".");
    const inner = dot >= 0 ? schema.name.slice(0, dot) : (schema.namespace ?? space);
    const own = schema.name.slice(dot + 1);
    this.names.set(inner ? `${inner}.${own}` : own, schema);
    return inner;
  }

  private named(name: string, space: string, depth: number): unknown {
    if (Object.hasOwn(PRIMITIVES, name)) return PRIMITIVES[name]?.(this);
    const known = this.names.get(space && !name.includes(".") ? `${space}.${name}` : name) ?? this.names.get(name);
    if (!known) throw new Error(`unknown type ${name}`);
    return this.value(known, space, depth + 1);
  }

  private blocks<T>(item: () => T): T[] {
    const all: T[] = [];
    for (let count = this.long(); count !== 0; count = this.long()) {
      if (count < 0) this.long(); // how many bytes follow
      for (let left = Math.abs(count); left > 0; left--) all.push(item());
    }
    return all;
  }

  /** A zigzag number of at most 64 bits; those beyond 2^53 lose their last digits. */
  long(): number {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.take(1).getUint8(0);
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return Number((value >> 1n) ^ -(value & 1n));
    }
    throw new Error("a number has more than 64 bits");
  }

  text(): string {
    return new TextDecoder("utf-8", { fatal: true }).decode(this.take(this.long()));
  }

  /** Bytes as Avro's JSON writes them: one character for each. */
  binary(length: number): string {
    const taken = this.take(length);
    return Array.from({ length }, (_, at) => String.fromCharCode(taken.getUint8(at))).join("");
  }

  take(length: number): DataView {
    if (length < 0 || this.at + length > this.data.length) throw new Error("the datum ends in the middle");
    this.at += length;
    return new DataView(this.data.buffer, this.data.byteOffset + this.at - length, length);
  }
}

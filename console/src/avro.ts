/** Reads one bare datum of an Avro schema, to be looked at: what AMS keeps on a topic with a schema of this type. */

type AvroSchema = string | AvroSchema[] | { type: AvroSchema; [field: string]: unknown };
type Named = { name: string; namespace?: string };

const DEEPEST = 200;
const MOST_ITEMS = 1_000_000;

/** Return the datum as a value of JSON; raise an `Error` where the bytes are not of the schema. */
export function decodeAvro(schema: unknown, data: Uint8Array): unknown {
  const reader = new Reader(data);
  const value = reader.value(schema as AvroSchema, "", 0);
  if (!reader.atEnd) throw new Error("there are bytes behind the datum");
  return value;
}

class Reader {
  private at = 0;
  private items = 0;
  private readonly names = new Map<string, AvroSchema>();

  constructor(private readonly data: Uint8Array) {}

  get atEnd(): boolean {
    return this.at === this.data.length;
  }

  value(schema: AvroSchema, space: string, depth: number): unknown {
    if (depth > DEEPEST || ++this.items > MOST_ITEMS) throw new Error("the datum is too large to be shown");
    if (Array.isArray(schema)) {
      const branch = schema[this.long()];
      if (branch === undefined) throw new Error("no such branch of a union");
      return this.value(branch, space, depth + 1);
    }
    if (typeof schema === "string") return this.named(schema, space, depth);
    const type = schema.type;
    if (typeof type !== "string") return this.value(type, space, depth + 1);
    if (type === "array") return this.blocks(() => this.value(schema.items as AvroSchema, space, depth + 1));
    if (type === "map") {
      return Object.fromEntries(
        this.blocks(() => [this.text(), this.value(schema.values as AvroSchema, space, depth + 1)] as const),
      );
    }
    if (type !== "record" && type !== "error" && type !== "enum" && type !== "fixed")
      return this.named(type, space, depth);
    const inner = this.declare(schema as AvroSchema & Named, space);
    if (type === "enum") return (schema.symbols as string[])[this.long()];
    if (type === "fixed") return binary(this.take(schema.size as number));
    const fields = schema.fields as { name: string; type: AvroSchema }[];
    return Object.fromEntries(fields.map((field) => [field.name, this.value(field.type, inner, depth + 1)]));
  }

  /** Note a name for those who use it, and return the namespace inside. */
  private declare(schema: AvroSchema & Named, space: string): string {
    const dot = schema.name.lastIndexOf(".");
    const inner = dot >= 0 ? schema.name.slice(0, dot) : (schema.namespace ?? space);
    const own = schema.name.slice(dot + 1);
    this.names.set(inner ? `${inner}.${own}` : own, schema);
    return inner;
  }

  private named(name: string, space: string, depth: number): unknown {
    switch (name) {
      case "null":
        return null;
      case "boolean":
        return this.take(1)[0] !== 0;
      case "int":
      case "long":
        return this.long();
      case "float":
        return this.view(4).getFloat32(0, true);
      case "double":
        return this.view(8).getFloat64(0, true);
      case "bytes":
        return binary(this.take(this.long()));
      case "string":
        return this.text();
    }
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
  private long(): number {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.take(1)[0] ?? 0;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return Number((value >> 1n) ^ -(value & 1n));
    }
    throw new Error("a number has more than 64 bits");
  }

  private text(): string {
    return new TextDecoder("utf-8", { fatal: true }).decode(this.take(this.long()));
  }

  private view(length: number): DataView {
    const taken = this.take(length);
    return new DataView(taken.buffer, taken.byteOffset, length);
  }

  private take(length: number): Uint8Array {
    if (length < 0 || this.at + length > this.data.length) throw new Error("the datum ends in the middle");
    this.at += length;
    return this.data.subarray(this.at - length, this.at);
  }
}

/** Bytes as Avro's JSON writes them: one character for each. */
function binary(data: Uint8Array): string {
  return [...data].map((each) => String.fromCharCode(each)).join("");
}

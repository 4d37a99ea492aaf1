// Write src/wire.d.ts: what the API is asked and answers, as types, from its description docs/reference/openapi.json.
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

const here = import.meta.dirname;
const description = JSON.parse(await readFile(join(here, "../docs/reference/openapi.json"), "utf8"));

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return several.map(typeOf).join(" | ");
  if (Array.isArray(schema.type)) return schema.type.map((type) => typeOf({ ...schema, type })).join(" | ");
  switch (schema.type) {
    case "integer":
    case "number":
      return "number";
    case "string":
    case "boolean":
    case "null":
      return schema.type;
    case "array":
      return `(${typeOf(schema.items ?? {})})[]`;
    case "object":
      return schema.properties ? fieldsOf(schema) : `Record<string, ${typeOf(schema.additionalProperties || {})}>`;
  }
  return "unknown";
}

function fieldsOf({ properties, required = [] }) {
  const fields = Object.entries(properties).map(
    ([name, schema]) => `  ${JSON.stringify(name)}${required.includes(name) ? "" : "?"}: ${typeOf(schema)};\n`,
  );
  return `{\n${fields.join("")}}`;
}

const types = Object.entries(description.components.schemas).map(
  ([name, schema]) => `export type ${name} = ${typeOf(schema)};\n`,
);
await writeFile(join(here, "src/wire.d.ts"), types.join("\n"));

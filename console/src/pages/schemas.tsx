/** Schemas of a project: what messages must be, what they had to be before, and whether one would be taken. */
import { diffLines } from "diff";
import { named, post, put } from "../api";
import { shortName } from "../format";
import { useGet } from "../load";
import { asking } from "../parts/actions";
import { Badge, Card, linked, shown, Time } from "../parts/basics";
import { DryRunCard } from "../parts/dry-run";
import { ATTRIBUTES, Form, field, NAME, type Values } from "../parts/form";
import { Resource, Resources } from "../parts/resources";
import { column, valued } from "../parts/table";
import { go, type PageProps } from "../router";
import { attributesOf, toBase64, visible } from "../text";
import type { Revision, Schema } from "../wire";

const TYPES = { json: "JSON Schema", avro: "Avro", protobuf: "Protocol Buffers" };

const SCHEMA_HINT = "JSON, or a definition in Protocol Buffers; empty: anything";

function fieldsOf({ type = "json", schema = {}, attributes = {} }: Partial<Schema>) {
  const placeholder = '{"required": ["site"]}';
  return [
    field("type", "Type", { value: type, options: TYPES }),
    field("schema", "What payloads must be", { rows: 10, value: text(schema), hint: SCHEMA_HINT }),
    field("attributes", "What attributes must be", { rows: 3, value: text(attributes), placeholder }),
  ];
}

/** A part as people write it: of Protocol Buffers the definition, not what the service made of it. */
function text(part: object | undefined): string {
  if (part && "descriptor" in part && "definition" in part) return String(part.definition);
  return part && Object.keys(part).length > 0 ? JSON.stringify(part, null, 2) : "";
}

function bodyOf({ type, schema, attributes }: Values): object {
  const parsed = (part?: string) => (part?.trim() ? (JSON.parse(part) as object) : undefined);
  const content = type === "protobuf" ? { definition: schema } : parsed(schema);
  return { type, schema: content, attributes: parsed(attributes) ?? {} };
}

export function Schemas({ params: { project = "" } }: PageProps) {
  const make = async ({ name = "", ...rest }: Values) => {
    await post(named(`/projects/${project}/schemas`, name), bodyOf(rest));
    go(["p", project, "schemas", name]);
  };
  const checks = ({ schema, attributes }: Schema) =>
    [text(schema) && "payload", text(attributes) && "attributes"].filter(Boolean).join(", ");
  return (
    <Resources<Schema>
      title="Schemas"
      kind={project}
      path={`/projects/${project}/schemas`}
      columns={[
        column("Schema", (row) => linked(project, "schemas", row.name), { by: (row) => shortName(row.name) }),
        valued("Type", (row) => row.type),
        valued("Checks", checks),
      ]}
      empty="The project has no schemas. Make one here, or in a terminal:"
      command={`ams schemas create reading --file reading.json --project ${project}`}
      make={asking("New schema", [NAME, ...fieldsOf({})], make)}
    />
  );
}

export function SchemaPage({ params: { project = "", schema: name = "" } }: PageProps) {
  const base = `/projects/${project}/schemas/${name}`;
  const save = (schema: Schema) => (values: Values) => put(base, bodyOf(values), schema);
  const now = (schema: Schema) => (
    <Card wide title={schema.type}>
      <pre>{visible(text(schema.schema) || "Payloads may be anything.")}</pre>
      {text(schema.attributes) && <pre>{visible(text(schema.attributes))}</pre>}
    </Card>
  );
  return (
    <Resource<Schema>
      title={name}
      kind="Schema"
      path={base}
      tabs={(schema) => [
        ["now", "Now", now(schema)],
        ["revisions", "Revisions", <Revisions key="r" path={`${base}:revisions`} />],
        ["try", "Try it", <Try key="t" project={project} base={base} schema={schema} />],
      ]}
      actions={(schema) => [{ ...asking("New revision", fieldsOf(schema), save(schema)), primary: true }]}
      deleted={["Topics that have it take any message from then on.", ["p", project, "schemas"]]}
    />
  );
}

/** Each revision with what changed since the one before. */
function Revisions({ path }: { path: string }) {
  const loaded = useGet<{ revisions: Revision[] }>(path);
  const whole = (one?: Revision) =>
    one ? [`type: ${one.type}`, text(one.schema), text(one.attributes)].filter(Boolean).join("\n") : "";
  return shown(loaded, ({ revisions }) =>
    revisions.map((each, at) => (
      <Card key={each.revision} wide title={each.revision}>
        <p>
          <Badge>{each.type}</Badge> <Time at={each.created_on} age />
        </p>
        <pre class="diff">{difference(whole(revisions[at + 1]), whole(each))}</pre>
      </Card>
    )),
  );
}

function difference(before: string, after: string) {
  return diffLines(before, after).map(({ added, removed, value }, at) => {
    const Kind = added ? "ins" : removed ? "del" : "span";
    const sign = { ins: "+", del: "-", span: " " }[Kind];
    const lines = value.replace(/\n$/, "").split("\n");
    return <Kind key={at}>{lines.map((line) => `${sign} ${visible(line)}\n`).join("")}</Kind>;
  });
}

function Try({ project, base, schema }: { project: string; base: string; schema: Schema }) {
  const binary = schema.type !== "json";
  const ofAttributes = text(schema.attributes) !== "";
  const payload = field("body", binary ? "Payload, as base64" : "Payload", { rows: 8 });
  const topic = field("topic", "Topic", { required: true, from: `/projects/${project}/topics` });
  const validate = async ({ body = "", attributes = "" }: Values) => {
    const data = binary ? body.trim() : toBase64(new TextEncoder().encode(body));
    const payload = binary ? { data } : (JSON.parse(body || "null") as object);
    const message = ofAttributes ? { attributes: attributesOf(attributes), data } : payload;
    return (await post<{ message: string }>(`${base}:validate`, message)).message;
  };
  return (
    <div class="grid">
      <Card title="A message">
        <Form button="Validate" onSubmit={validate} fields={[payload, ofAttributes && ATTRIBUTES]} />
      </Card>
      <DryRunCard choice={topic} ask={({ topic }, messages) => post(`${base}:dryRun`, { topic, messages })} />
    </div>
  );
}

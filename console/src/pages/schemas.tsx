/** Schemas of a project: what messages must be, what they had to be before, and whether one would be taken. */
import { diffLines } from "diff";
import { call } from "../api";
import { shortName } from "../format";
import { useGet } from "../load";
import { Badge, Card, Page, Shown, Tabs, Time } from "../parts/basics";
import { Field, type FieldProps, Form, type Values } from "../parts/form";
import { Acts, Resources } from "../parts/resources";
import { column, valued } from "../parts/table";
import { go } from "../router";
import { toBase64, visible } from "../text";
import type { Revision, Schema } from "../types";
import type { Params } from ".";
import { attributesOf, DryRunCard } from "./topic";
import { linked } from "./topics";

const CONTENT = (type = "json", schema?: object, attributes?: object): FieldProps[] => [
  {
    name: "type",
    label: "Type",
    value: type,
    options: [
      ["json", "JSON Schema"],
      ["avro", "Avro"],
    ],
  },
  { name: "schema", label: "What payloads must be", rows: 10, value: text(schema), hint: "JSON; empty: anything" },
  {
    name: "attributes",
    label: "What attributes must be",
    rows: 3,
    value: text(attributes),
    placeholder: '{"required": ["site"]}',
  },
];

function text(part: object | undefined): string {
  return part && Object.keys(part).length > 0 ? JSON.stringify(part, null, 2) : "";
}

function bodyOf({ type, schema, attributes }: Values): object {
  const parsed = (part?: string) => (part?.trim() ? (JSON.parse(part) as object) : undefined);
  return { type, schema: parsed(schema), attributes: parsed(attributes) ?? {} };
}

export function Schemas({ params: { project = "" } }: { params: Params }) {
  return (
    <Resources<Schema>
      title="Schemas"
      kind={project}
      path={`/projects/${project}/schemas`}
      rows={({ schemas }: { schemas: Schema[] }) => schemas}
      rowKey={(row) => row.name}
      text={(row) => shortName(row.name)}
      columns={[
        column("Schema", (row) => linked(project, "schemas", row.name), { by: (row) => row.name }),
        valued("Type", (row) => row.type),
        valued("Checks", (row) =>
          [text(row.schema) && "payload", text(row.attributes) && "attributes"].filter(Boolean).join(", "),
        ),
      ]}
      empty="The project has no schemas. Make one here, or in a terminal:"
      command={`ams schemas create reading --file reading.json --project ${project}`}
      make={{
        label: "New schema",
        fields: [{ name: "name", label: "Name", required: true, autofocus: true }, ...CONTENT()],
        run: async ({ name = "", ...rest }) => {
          await call(`/projects/${project}/schemas/${name}`, { method: "POST", body: bodyOf(rest) });
          go(["p", project, "schemas", name]);
        },
      }}
    />
  );
}

export function SchemaPage({ params: { project = "", schema: name = "" } }: { params: Params }) {
  const base = `/projects/${project}/schemas/${name}`;
  const loaded = useGet<Schema>(base);
  const put = async (values: Values) => {
    await call(base, { method: "PUT", body: bodyOf(values) });
    loaded.reload();
  };
  const remove = async () => {
    await call(base, { method: "DELETE" });
    go(["p", project, "schemas"]);
  };
  return (
    <Page title={name} kind="Schema">
      <Shown of={loaded}>
        {(schema) => (
          <Tabs
            tabs={[
              [
                "now",
                "Now",
                <Card
                  key="n"
                  wide
                  title={schema.type}
                  actions={
                    <>
                      <Acts
                        action={{
                          label: "New revision",
                          fields: CONTENT(schema.type, schema.schema, schema.attributes),
                          run: put,
                        }}
                        primary
                      />
                      <Acts
                        action={{
                          label: "Delete",
                          typed: [name, "Topics that have it take any message from then on."],
                          run: remove,
                        }}
                      />
                    </>
                  }>
                  <pre>{visible(text(schema.schema) || "Payloads may be anything.")}</pre>
                  {text(schema.attributes) && <pre>{visible(text(schema.attributes))}</pre>}
                </Card>,
              ],
              ["revisions", "Revisions", <Revisions key="r" path={`${base}:revisions`} />],
              ["try", "Try it", <Try key="t" project={project} base={base} schema={schema} />],
            ]}
          />
        )}
      </Shown>
    </Page>
  );
}

/** Each revision with what changed since the one before. */
function Revisions({ path }: { path: string }) {
  const loaded = useGet<{ revisions: Revision[] }>(path);
  return (
    <Shown of={loaded}>
      {({ revisions }) => (
        <>
          {revisions.map((each, at) => (
            <Card key={each.revision} wide title={each.revision}>
              <p>
                <Badge>{each.type}</Badge> <Time at={each.created_on} age />
              </p>
              <Difference before={whole(revisions[at + 1])} after={whole(each)} />
            </Card>
          ))}
        </>
      )}
    </Shown>
  );
}

function whole(revision: Revision | undefined): string {
  if (!revision) return "";
  return [`type: ${revision.type}`, text(revision.schema), text(revision.attributes)].filter(Boolean).join("\n");
}

export function Difference({ before, after }: { before: string; after: string }) {
  return (
    <pre class="diff">
      {diffLines(before, after).map((part, at) => {
        const mark = part.added ? "+" : part.removed ? "-" : " ";
        const lines = part.value
          .replace(/\n$/, "")
          .split("\n")
          .map((line) => `${mark} ${visible(line)}\n`);
        const Kind = part.added ? "ins" : part.removed ? "del" : "span";
        return <Kind key={at}>{lines.join("")}</Kind>;
      })}
    </pre>
  );
}

function Try({ project, base, schema }: { project: string; base: string; schema: Schema }) {
  const topics = useGet<{ topics: { name: string }[] }>(`/projects/${project}/topics`);
  const validate = async ({ body = "", attributes = "" }: Values) => {
    const data = toBase64(new TextEncoder().encode(body));
    const payload = schema.type === "avro" ? { data: body.trim() } : (JSON.parse(body || "null") as unknown);
    const message = text(schema.attributes) ? { attributes: attributesOf(attributes), data } : payload;
    return (await call<{ message: string }>(`${base}:validate`, { method: "POST", body: message })).message;
  };
  return (
    <div class="grid">
      <Card title="A message">
        <Form button="Validate" onSubmit={validate}>
          <Field name="body" label={schema.type === "avro" ? "Payload, as base64" : "Payload"} rows={8} />
          {text(schema.attributes) && (
            <Field name="attributes" label="Attributes" rows={3} hint="One name=value a line" />
          )}
        </Form>
      </Card>
      <DryRunCard
        field={{
          name: "topic",
          label: "Topic",
          options: (topics.data?.topics ?? []).map(({ name }) => [name.replace(/^\//, ""), shortName(name)]),
        }}
        ask={({ topic }, messages) => call(`${base}:dryRun`, { method: "POST", body: { topic, messages } })}
      />
    </div>
  );
}

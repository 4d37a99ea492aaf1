/** One topic: what comes in, who reads it, its messages, its schema, and what can be changed. */
import { useRef, useState } from "preact/hooks";
import { call } from "../api";
import { bytes, number, plural, rate, shortName, span } from "../format";
import { useCounts } from "../live";
import { useGet, useLoad } from "../load";
import { AccessList } from "../parts/access";
import { Card, Command, Empty, Facts, Link, Note, Page, Shown, Stat, Tabs, Time } from "../parts/basics";
import { Destroys, Opens } from "../parts/dialog";
import { Check, Field, type FieldProps, Form, type Values } from "../parts/form";
import { Plots, rateLine } from "../parts/history";
import { Table } from "../parts/table";
import { administers, useUser } from "../rights";
import { go } from "../router";
import { toBase64, visible } from "../text";
import type { DryRun, History, Schema, Subscription, Topic } from "../types";
import type { Params } from ".";
import { Messages } from "./messages";
import { NewSubscription, subscriptionColumns } from "./subscriptions";
import { MOST_WATCHED, namesOf } from "./topics";

interface Props {
  admin: boolean;
  project: string;
  name: string;
  base: string;
  topic: Topic;
  reload: () => void;
}

export function TopicPage(props: { params: Params }) {
  const { project = "", topic: name = "" } = props.params;
  const user = useUser();
  const base = `/projects/${project}/topics/${name}`;
  const topic = useGet<Topic>(base);
  const admin = administers(user, project);
  return (
    <Page title={name} kind="Topic">
      <Shown of={topic}>
        {(data) => {
          const all = { project, name, base, topic: data, reload: topic.reload, admin };
          const access = <AccessList title="Who may publish" project={project} path={base} of="publisher" />;
          return (
            <Tabs
              tabs={[
                ["overview", "Overview", <TopicOverview key="o" {...all} />],
                admin && ["messages", "Messages", <Messages key="m" {...all} />],
                ["publish", "Publish", <Publish key="p" {...all} />],
                admin && ["schema", "Schema", <SchemaOf key="s" {...all} />],
                admin && ["access", "Access", access],
                admin && ["settings", "Settings", <Settings key="t" {...all} />],
              ]}
            />
          );
        }}
      </Shown>
    </Page>
  );
}

function TopicOverview(props: Props) {
  const { project, name, topic, admin } = props;
  const readers = useLoad<Subscription[]>(admin ? `readers ${name}` : null, async (signal) => {
    const { subscriptions } = await call<{ subscriptions: string[] }>(`${props.base}/subscriptions`, { signal });
    return Promise.all(subscriptions.map((each) => call<Subscription>(each, { signal })));
  });
  const { sample } = useCounts(
    project,
    [name],
    (readers.data ?? []).slice(0, MOST_WATCHED - 1).map((each) => shortName(each.name)),
  );
  const counts = sample?.counts.topics[name];
  return (
    <>
      <dl class="stats">
        <Stat label="Published now" value={rate(sample?.rates[name])} />
        <Stat label="Messages ever" value={number(counts?.messages)} />
        <Stat label="Bytes ever" value={bytes(counts?.bytes)} />
        <Stat label="Kept for" value={topic.retentionSeconds ? span(topic.retentionSeconds) : "as the project"} />
      </dl>
      <Plots project={project} topics={[name]} plots={(history) => plotsOf(history, name)} />
      {admin && (
        <Card
          title="Subscriptions"
          wide
          actions={<Opens label="New subscription">{() => <NewSubscription project={project} topic={name} />}</Opens>}>
          <Shown of={readers}>
            {(all) => (
              <Table
                label={`Subscriptions of ${name}`}
                rows={all}
                columns={subscriptionColumns(project, sample?.counts).filter((column) => column.id !== "topic")}
                rowKey={(row) => row.name}
                empty={
                  <Empty command={`ams subs create watering --topic ${name} --project ${project}`}>
                    Nobody reads this topic. Make a subscription here, or in a terminal:
                  </Empty>
                }
              />
            )}
          </Shown>
        </Card>
      )}
      <Facts
        rows={[
          ["Created", <Time key="t" at={topic.created_on} />],
          [
            "Schema",
            topic.schema ? (
              <Link key="s" to={["p", project, "schemas", shortName(topic.schema)]}>
                {shortName(topic.schema)}
              </Link>
            ) : (
              "none"
            ),
          ],
        ]}
      />
    </>
  );
}

function plotsOf(history: History, name: string) {
  const own = history.topics[name];
  if (!own) return [];
  return [
    { title: "Messages a second", format: rate, lines: [rateLine("published", own.published, history)] },
    { title: "Bytes a second", format: bytes, lines: [rateLine("published", own.publishedBytes, history, 2)] },
  ];
}

function Publish({ base, name, project }: Props) {
  // The same key until it was answered: what is sent again by hand or after a new login is stored once.
  const sent = useRef({ text: "", key: "" });
  const publish = async ({ body = "", base64, attributes = "", orderingKey }: Values) => {
    const data = base64 ? body.replace(/\s/g, "") : toBase64(new TextEncoder().encode(body));
    const message = { data, attributes: attributesOf(attributes), ...(orderingKey ? { orderingKey } : {}) };
    const text = JSON.stringify(message);
    if (sent.current.text !== text) sent.current = { text, key: crypto.randomUUID() };
    const answer = await call<{ messageIds: string[] }>(`${base}:publish`, {
      method: "POST",
      body: { messages: [message] },
      headers: { "Idempotency-Key": sent.current.key },
    });
    sent.current.text = "";
    return `It has the id ${answer.messageIds[0]}.`;
  };
  return (
    <Card title="Publish a message">
      <Form button="Publish" onSubmit={publish}>
        <Field name="body" label="Body" rows={8} />
        <Check name="base64" label="The body is base64" />
        <Field name="attributes" label="Attributes" rows={3} placeholder="lang=en" hint="One name=value a line" />
        <Field name="orderingKey" label="Ordering key" />
      </Form>
      <p class="quiet">In a terminal:</p>
      <Command text={`ams publish ${name} --project ${project} --data "hello" --attr lang=en`} />
    </Card>
  );
}

/** `name=value` lines as a map; raises an `Error` for a line that is neither empty nor such. */
export function attributesOf(text: string): Record<string, string> {
  const pairs = text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const at = line.indexOf("=");
      if (at < 1) throw new Error(`An attribute is written name=value; this is not: ${line.slice(0, 80)}`);
      return [line.slice(0, at).trim(), line.slice(at + 1)];
    });
  return Object.fromEntries(pairs);
}

function SchemaOf({ project, topic, base, name, reload }: Props) {
  const schemas = useGet<{ schemas: Schema[] }>(`/projects/${project}/schemas`);
  const options = namesOf(schemas.data?.schemas);
  const own = schemas.data?.schemas.find((each) => each.name === topic.schema);
  const attach = async ({ schema }: Values) => {
    await call(`${base}:attachSchema`, { method: "POST", body: schema ? { schema } : {} });
    reload();
    return schema ? "It holds from the next message on." : "It takes any message now.";
  };
  if (!schemas.data) return <Shown of={schemas}>{() => null}</Shown>;
  if (options.length === 0) {
    return (
      <Empty command={`ams schemas create reading --file reading.json --project ${project}`}>
        The project has no schemas. Make one on the page Schemas or in a terminal, and messages are checked by it:
      </Empty>
    );
  }
  return (
    <div class="grid">
      <Card title="Schema">
        <Form button="Change" onSubmit={attach}>
          <Field
            name="schema"
            label="Messages must be as"
            value={topic.schema}
            options={[["", "nothing says: any message"], ...options]}
          />
        </Form>
        {own && <pre>{visible(JSON.stringify(own.schema, null, 2).slice(0, 5000))}</pre>}
      </Card>
      <DryRunCard
        field={{ name: "schema", label: "Schema", value: topic.schema, options }}
        ask={({ schema }, messages) =>
          call(`/${schema}:dryRun`, { method: "POST", body: { topic: `projects/${project}/topics/${name}`, messages } })
        }
      />
    </div>
  );
}

/** Asks what a schema would have refused of the newest messages of a topic; `field` chooses one of the two. */
export function DryRunCard(props: { field: FieldProps; ask: (values: Values, messages: number) => Promise<DryRun> }) {
  const [tried, setTried] = useState<DryRun | null>(null);
  const run = async (values: Values) => {
    setTried(null);
    setTried(await props.ask(values, Number(values.messages)));
  };
  const hint = "At most 10,000; nothing is changed";
  return (
    <Card title="On messages that are there">
      <Form button="Dry run" onSubmit={run}>
        <Field {...props.field} />
        <Field name="messages" label="How many of the newest" type="number" min={1} value="1000" hint={hint} />
      </Form>
      {tried && (
        <Note tone={tried.refused > 0 ? "warn" : "good"}>
          <p>
            Of {plural(tried.checked, "message")} it would refuse {number(tried.refused)}.
          </p>
          {tried.reasons.map((each) => (
            <p key={each.messageId}>{visible(each.reason.slice(0, 500))}</p>
          ))}
        </Note>
      )}
    </Card>
  );
}

function Settings({ project, topic, base, name, reload }: Props) {
  const keep = async ({ seconds }: Values) => {
    await call(`${base}:modifyRetention`, { method: "POST", body: { retentionSeconds: Number(seconds) } });
    reload();
    return "A shorter time holds for all messages at once, a longer one for those to come.";
  };
  const remove = async () => {
    await call(base, { method: "DELETE" });
    go(["p", project, "topics"]);
  };
  return (
    <div class="grid">
      <Card title="How long messages are kept">
        <Form button="Change" onSubmit={keep}>
          <Field
            name="seconds"
            label="Seconds"
            type="number"
            min={0}
            value={String(topic.retentionSeconds ?? 0)}
            hint="0: as the project says"
          />
        </Form>
      </Card>
      <Card title="Delete">
        <p>The topic goes with all its messages; its subscriptions stay, without a topic.</p>
        <Destroys label="Delete" name={name} consequence="All messages of this topic are lost for good." act={remove} />
      </Card>
    </div>
  );
}

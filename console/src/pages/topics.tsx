/** The topics of a project, and one of them: what comes in, who reads it, its messages, its schema, what can be changed. */
import { useRef, useState } from "preact/hooks";
import { call, named, post, put } from "../api";
import { bytes, number, rate, shortName, span } from "../format";
import { MOST_WATCHED, useCounts } from "../live";
import { useGet, useLoad } from "../load";
import { AccessList } from "../parts/access";
import { Acts, asking } from "../parts/actions";
import { Card, Command, Empty, type Fact, Facts, linked, Stat, shown, type Tab, Time } from "../parts/basics";
import { DryRunCard } from "../parts/dry-run";
import { ATTRIBUTES, Form, field, NAME, tick, type Values } from "../parts/form";
import { Plots, rateLine } from "../parts/plot";
import { type PartProps, Resource, Resources } from "../parts/resources";
import { type Column, column, Table, timed, valued } from "../parts/table";
import { administers, useUser } from "../rights";
import { go, type PageProps } from "../router";
import { attributesOf, fromBase64, toBase64, visible } from "../text";
import type { DryRun, History, Schema, Subscription, Topic } from "../wire";
import { Messages } from "./messages";
import { newSubscription, subscriptionColumns } from "./subscriptions";

export type TopicProps = PartProps & { topic: Topic };

export function Topics({ params: { project = "" } }: PageProps) {
  const user = useUser();
  const admin = administers(user, project);
  const [sight, setSight] = useState<string[]>([]);
  const { sample } = useCounts(project, sight, []);
  const kept = (row: Topic) => row.retentionSeconds ?? 0;
  const columns: Column<Topic>[] = [
    column("Topic", (row) => linked(project, "topics", row.name), { by: (row) => shortName(row.name) }),
    column("Messages ever", (row) => number(sample?.counts.topics[shortName(row.name)]?.messages), { right: true }),
    column("Now", (row) => rate(sample?.rates[shortName(row.name)]), { right: true }),
    valued("Schema", (row) => shortName(row.schema), { wide: true }),
    column("Kept for", (row) => (kept(row) ? span(kept(row)) : "as the project"), { by: kept, wide: true }),
    timed("Created", (row) => row.created_on, { wide: true }),
  ];
  const make = async ({ name = "", schema }: Values) => {
    await put(named(`/projects/${project}/topics`, name), schema ? { schema } : {});
    go(["p", project, "topics", name]);
  };
  const any = { "": "none: it takes any message" };
  const schema = field("schema", "Schema", { options: any, from: `/projects/${project}/schemas` });
  const nobody = `No topic lists ${user.name}. Ask an administrator of ${project} to put you on its access list.`;
  return (
    <Resources<Topic>
      title="Topics"
      kind={project}
      path={`/projects/${project}/topics`}
      columns={columns}
      onSight={(rows) => setSight(rows.slice(0, MOST_WATCHED).map((row) => shortName(row.name)))}
      empty={admin ? "There are no topics yet. Make one here, or in a terminal:" : nobody}
      command={admin ? `ams topics create readings --project ${project}` : undefined}
      make={admin && asking("New topic", [NAME, schema], make)}
    />
  );
}

export function TopicPage({ params: { project = "", topic: name = "" } }: PageProps) {
  const base = `/projects/${project}/topics/${name}`;
  const admin = administers(useUser(), project);
  const hint = "0: as the project says. A shorter time holds for all messages at once, a longer one for those to come";
  const kept = field("seconds", "Seconds that messages are kept", { type: "number", min: 0, hint });
  const retention = (read: Topic) =>
    asking("Retention", [{ ...kept, value: String(read.retentionSeconds ?? 0) }], ({ seconds }) =>
      post(`${base}:modifyRetention`, { retentionSeconds: Number(seconds) }, read),
    );
  const tabs = (topic: Topic, reload: () => void): (Tab | false)[] => {
    const all = { project, name, base, topic, reload, admin };
    return [
      ["overview", "Overview", <TopicOverview key="o" {...all} />],
      admin && ["messages", "Messages", <Messages key="m" {...all} />],
      ["publish", "Publish", <Publish key="p" {...all} />],
      admin && ["schema", "Schema", <SchemaOf key="s" {...all} />],
      admin && ["access", "Access", <AccessList key="a" project={project} path={base} of="publisher" />],
    ];
  };
  const lost = "All its messages are lost for good; its subscriptions stay, without a topic.";
  return (
    <Resource<Topic>
      title={name}
      kind="Topic"
      path={base}
      tabs={tabs}
      actions={(topic) => (admin ? [retention(topic)] : [])}
      deleted={admin && [lost, ["p", project, "topics"]]}
    />
  );
}

function TopicOverview({ project, name, base, topic, admin }: TopicProps) {
  const readers = useLoad<Subscription[]>(admin ? `readers ${name}` : null, async (signal) => {
    const { subscriptions } = await call<{ subscriptions: string[] }>(`${base}/subscriptions`, { signal });
    return Promise.all(subscriptions.map((each) => call<Subscription>(each, { signal })));
  });
  const watched = (readers.data ?? []).slice(0, MOST_WATCHED - 1).map((each) => shortName(each.name));
  const { sample } = useCounts(project, [name], watched);
  const counts = sample?.counts.topics[name];
  const columns = subscriptionColumns(project, sample?.counts).filter(({ id }) => id !== "topic");
  const schema = topic.schema && admin ? linked(project, "schemas", topic.schema) : shortName(topic.schema) || "none";
  const facts: Fact[] = [
    ["Created", <Time key="t" at={topic.created_on} />],
    ["Schema", schema],
  ];
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
        <Card title="Subscriptions" wide actions={<Acts action={newSubscription(project, name)} />}>
          {shown(readers, (all) => (
            <Table
              label={`Subscriptions of ${name}`}
              rows={all}
              columns={columns}
              empty="Nobody reads this topic. Make a subscription here, or in a terminal:"
              command={`ams subs create watering --topic ${name} --project ${project}`}
            />
          ))}
        </Card>
      )}
      <Facts rows={facts} />
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

const MESSAGE = [
  field("body", "Body", { rows: 8 }),
  tick("base64", "The body is base64"),
  { ...ATTRIBUTES, placeholder: "lang=en" },
  field("orderingKey", "Ordering key"),
];

function Publish({ base, name, project }: TopicProps) {
  // The same key until it was answered: what is sent again by hand or after a new login is stored once.
  const sent = useRef({ text: "", key: "" });
  const publish = async ({ body = "", base64, attributes = "", orderingKey }: Values) => {
    const data = base64 ? body.replace(/\s/g, "") : toBase64(new TextEncoder().encode(body));
    if (toBase64(fromBase64(data)) !== data) throw new Error("The body is not base64");
    const message = { data, attributes: attributesOf(attributes), orderingKey: orderingKey || undefined };
    const text = JSON.stringify(message);
    if (sent.current.text !== text) sent.current = { text, key: crypto.randomUUID() };
    const headers = { "Idempotency-Key": sent.current.key };
    const asked = { method: "POST", body: { messages: [message] }, headers };
    const { messageIds } = await call<{ messageIds: string[] }>(`${base}:publish`, asked);
    sent.current.text = "";
    return `It has the id ${messageIds[0]}.`;
  };
  return (
    <Card title="Publish a message">
      <Form button="Publish" onSubmit={publish} fields={MESSAGE} />
      <p class="quiet">In a terminal:</p>
      <Command text={`ams publish ${name} --project ${project} --data "hello" --attr lang=en`} />
    </Card>
  );
}

function SchemaOf({ project, topic, base, reload }: TopicProps) {
  const own = useGet<Schema>(topic.schema ? `/${topic.schema}` : null);
  const of = { from: `/projects/${project}/schemas`, value: topic.schema };
  const choice = { ...of, options: { "": "nothing says: any message" } };
  const attach = async ({ schema }: Values) => {
    await post(`${base}:attachSchema`, schema ? { schema } : {}, topic);
    reload();
    return schema ? "It holds from the next message on." : "It takes any message now.";
  };
  const self = base.slice(1);
  const dryRun = ({ schema }: Values, messages: number) => post<DryRun>(`/${schema}:dryRun`, { topic: self, messages });
  return (
    <div class="grid">
      <Card title="Schema">
        <Form button="Change" onSubmit={attach} fields={[field("schema", "Messages must be as", choice)]} />
        {own.data && <pre>{visible(JSON.stringify(own.data.schema, null, 2).slice(0, 5000))}</pre>}
        {!topic.schema && (
          <Empty command={`ams schemas create reading --file reading.json --project ${project}`}>
            Schemas are made on the page Schemas, or in a terminal:
          </Empty>
        )}
      </Card>
      <DryRunCard choice={field("schema", "Schema", { ...of, required: true })} topic={self} ask={dryRun} />
    </div>
  );
}

/** One topic: what comes in, who reads it, its messages, its schema, and what can be changed. */
import { useRef } from "preact/hooks";
import { call, post } from "../api";
import { bytes, number, rate, shortName, span } from "../format";
import { MOST_WATCHED, useCounts } from "../live";
import { useGet, useLoad } from "../load";
import { AccessList } from "../parts/access";
import { Acts, asking } from "../parts/actions";
import { Card, Command, Facts, linked, Stat, shown, type Tab, Time } from "../parts/basics";
import { DryRunCard } from "../parts/dry-run";
import { ATTRIBUTES, Form, field, tick, type Values } from "../parts/form";
import { Plots, rateLine } from "../parts/history";
import { Resource } from "../parts/resources";
import { Table } from "../parts/table";
import { administers, useUser } from "../rights";
import type { PageProps } from "../router";
import { attributesOf, toBase64, visible } from "../text";
import type { DryRun, History, Schema, Subscription, Topic } from "../wire";
import { Messages } from "./messages";
import { newSubscription, subscriptionColumns } from "./subscriptions";

interface Props {
  admin: boolean;
  project: string;
  name: string;
  base: string;
  topic: Topic;
  reload: () => void;
}

export function TopicPage({ params: { project = "", topic: name = "" } }: PageProps) {
  const base = `/projects/${project}/topics/${name}`;
  const admin = administers(useUser(), project);
  const hint = "0: as the project says. A shorter time holds for all messages at once, a longer one for those to come";
  const kept = field("seconds", "Seconds that messages are kept", { type: "number", min: 0, hint });
  const retention = ({ retentionSeconds = 0 }: Topic) =>
    asking("Retention", [{ ...kept, value: String(retentionSeconds) }], ({ seconds }) =>
      post(`${base}:modifyRetention`, { retentionSeconds: Number(seconds) }),
    );
  const tabs = (topic: Topic, reload: () => void): (Tab | false)[] => {
    const all = { project, name, base, topic, reload, admin };
    const access = <AccessList title="Who may publish" project={project} path={base} of="publisher" />;
    return [
      ["overview", "Overview", <TopicOverview key="o" {...all} />],
      admin && ["messages", "Messages", <Messages key="m" {...all} />],
      ["publish", "Publish", <Publish key="p" {...all} />],
      admin && ["schema", "Schema", <SchemaOf key="s" {...all} />],
      admin && ["access", "Access", access],
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

function TopicOverview({ project, name, base, topic, admin }: Props) {
  const readers = useLoad<Subscription[]>(admin ? `readers ${name}` : null, async (signal) => {
    const { subscriptions } = await call<{ subscriptions: string[] }>(`${base}/subscriptions`, { signal });
    return Promise.all(subscriptions.map((each) => call<Subscription>(each, { signal })));
  });
  const watched = (readers.data ?? []).slice(0, MOST_WATCHED - 1).map((each) => shortName(each.name));
  const { sample } = useCounts(project, [name], watched);
  const counts = sample?.counts.topics[name];
  const columns = subscriptionColumns(project, sample?.counts).filter(({ id }) => id !== "topic");
  const schema = topic.schema && admin ? linked(project, "schemas", topic.schema) : shortName(topic.schema) || "none";
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
      <Facts
        rows={[
          ["Created", <Time key="t" at={topic.created_on} />],
          ["Schema", schema],
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
    const headers = { "Idempotency-Key": sent.current.key };
    const asked = { method: "POST", body: { messages: [message] }, headers };
    const { messageIds } = await call<{ messageIds: string[] }>(`${base}:publish`, asked);
    sent.current.text = "";
    return `It has the id ${messageIds[0]}.`;
  };
  return (
    <Card title="Publish a message">
      <Form
        button="Publish"
        onSubmit={publish}
        fields={[
          field("body", "Body", { rows: 8 }),
          tick("base64", "The body is base64"),
          { ...ATTRIBUTES, placeholder: "lang=en" },
          field("orderingKey", "Ordering key"),
        ]}
      />
      <p class="quiet">In a terminal:</p>
      <Command text={`ams publish ${name} --project ${project} --data "hello" --attr lang=en`} />
    </Card>
  );
}

function SchemaOf({ project, topic, base, name, reload }: Props) {
  const own = useGet<Schema>(topic.schema ? `/${topic.schema}` : null);
  const choice = { name: "schema", value: topic.schema, from: `/projects/${project}/schemas` };
  const attach = async ({ schema }: Values) => {
    await post(`${base}:attachSchema`, schema ? { schema } : {});
    reload();
    return schema ? "It holds from the next message on." : "It takes any message now.";
  };
  const self = `projects/${project}/topics/${name}`;
  const dryRun = ({ schema }: Values, messages: number) => post<DryRun>(`/${schema}:dryRun`, { topic: self, messages });
  return (
    <div class="grid">
      <Card title="Schema">
        <Form
          button="Change"
          onSubmit={attach}
          fields={[{ ...choice, label: "Messages must be as", options: [["", "nothing says: any message"]] }]}
        />
        {own.data && <pre>{visible(JSON.stringify(own.data.schema, null, 2).slice(0, 5000))}</pre>}
        {!topic.schema && (
          <>
            <p class="quiet">Schemas are made on the page Schemas, or in a terminal:</p>
            <Command text={`ams schemas create reading --file reading.json --project ${project}`} />
          </>
        )}
      </Card>
      <DryRunCard field={{ ...choice, label: "Schema", required: true }} topic={self} ask={dryRun} />
    </div>
  );
}

/** The subscriptions of a project, and one of them: where it stands and why, its messages by hand, its delivery. */
import { useState } from "preact/hooks";
import { named, post, put } from "../api";
import { number, plural, rate, shortName, span } from "../format";
import { MOST_WATCHED, useCounts } from "../live";
import { useGet } from "../load";
import { AccessList } from "../parts/access";
import { type Action, asking } from "../parts/actions";
import { Badge, Card, Empty, Facts, Findings, linked, Stat, shown, type Tab, Time } from "../parts/basics";
import { Act, field, NAME, tick } from "../parts/form";
import { MessageCard } from "../parts/message";
import { Plots, rateLine } from "../parts/plot";
import { type PartProps, Resource, Resources } from "../parts/resources";
import { type Column, column, timed } from "../parts/table";
import { administers, useUser } from "../rights";
import { go, type PageProps } from "../router";
import { visible } from "../text";
import type { Counts, Diagnosis, History, ReceivedMessage, Standing, Subscription } from "../wire";
import { DeadLetters } from "./dead-letters";
import { Push } from "./push";
import { Seek } from "./seek";

export type SubscriptionProps = PartProps & { subscription: Subscription };

export function Subscriptions({ params: { project = "" } }: PageProps) {
  const user = useUser();
  const admin = administers(user, project);
  const [sight, setSight] = useState<string[]>([]);
  const { sample } = useCounts(project, [], sight);
  const nobody = `No subscription lists ${user.name}. Ask an administrator of ${project} to put you on its access list.`;
  return (
    <Resources<Subscription>
      title="Subscriptions"
      kind={project}
      path={`/projects/${project}/subscriptions`}
      columns={subscriptionColumns(project, sample?.counts)}
      onSight={(rows) => setSight(rows.slice(0, MOST_WATCHED).map((row) => shortName(row.name)))}
      empty={admin ? "There are no subscriptions yet. Make one here, or in a terminal:" : nobody}
      command={admin ? `ams subs create watering --topic readings --project ${project}` : undefined}
      make={admin && newSubscription(project)}
    />
  );
}

export function subscriptionColumns(project: string, counts: Counts | undefined): Column<Subscription>[] {
  const of = (row: Subscription) => counts?.subscriptions[shortName(row.name)];
  const topic = (row: Subscription) => shortName(row.topic);
  return [
    column("Subscription", (row) => linked(project, "subscriptions", row.name), { by: (row) => shortName(row.name) }),
    column("Topic", (row) => linked(project, "topics", row.topic), { by: topic, wide: true }),
    column("Behind by", (row) => number(of(row)?.lag), { right: true }),
    column("Oldest waits", (row) => span(of(row)?.oldestUnackedSeconds), { right: true }),
    column("Delivery", (row) => delivery(row).map((each) => <Badge key={each}>{each}</Badge>), {
      by: (row) => delivery(row).join(" "),
    }),
    timed("Created", (row) => row.createdOn, { wide: true }),
  ];
}

function delivery({ pushConfig: push, type, detached }: Subscription): string[] {
  const unverified = push.type === "http_endpoint" && !push.verified;
  const all = [push.type ? "push" : "pull", type, detached && "detached", unverified && "not verified"];
  return all.filter((each): each is string => Boolean(each));
}

const SECONDS = field("seconds", "Seconds to acknowledge in", { type: "number", value: "10", min: 0 });
const HINT = "Of a parallel one; empty: all messages";
const FILTER = field("filter", "Filter", { placeholder: 'attributes.lang = "en"', hint: HINT });
const PARALLEL = tick("parallel", "Parallel: each message is acknowledged by itself");

/** Makes a subscription of a topic, or of one that is chosen. */
export function newSubscription(project: string, of?: string): Action {
  const from = `/projects/${project}/topics`;
  const chosen = field("topic", "Topic", { required: true, options: { "": "Choose a topic" }, from });
  const fields = [NAME, ...(of ? [] : [chosen]), SECONDS, FILTER, PARALLEL];
  return asking("New subscription", fields, async ({ name = "", topic, seconds, filter, parallel }) => {
    await put(named(`/projects/${project}/subscriptions`, name), {
      topic: topic ?? `projects/${project}/topics/${of}`,
      ackDeadlineSeconds: Number(seconds),
      filter: filter || undefined,
      type: parallel ? "parallel" : undefined,
    });
    go(["p", project, "subscriptions", name]);
  });
}

export function SubscriptionPage({ params: { project = "", subscription: name = "" } }: PageProps) {
  const base = `/projects/${project}/subscriptions/${name}`;
  const admin = administers(useUser(), project);
  const hint = `All other options in a terminal: ams subs update ${name} --project ${project} --help`;
  const within = field("seconds", "Seconds", { type: "number", min: 0, hint });
  const deadline = (read: Subscription) =>
    asking("Time to acknowledge", [{ ...within, value: String(read.ackDeadlineSeconds) }], ({ seconds }) =>
      post(`${base}:modifyAckDeadline`, { ackDeadlineSeconds: Number(seconds) }, read),
    );
  const tabs = (subscription: Subscription, reload: () => void): (Tab | false)[] => {
    const all = { project, name, base, subscription, reload, admin };
    const { pushConfig: push, deadLetterPolicy } = subscription;
    const pushed = Boolean(push.type);
    const dead = shortName(deadLetterPolicy?.deadLetterTopic ?? push.deadLetterTopic);
    return [
      ["overview", "Overview", <Overview key="o" {...all} />],
      !pushed && ["messages", "Pull", <ByHand key="b" {...all} />],
      ["seek", "Move", <Seek key="s" {...all} />],
      (pushed || admin) && ["push", "Push", <Push key="p" {...all} />],
      admin && dead !== "" && ["dead", "Dead letters", <DeadLetters key="d" {...all} source={dead} />],
      admin && ["access", "Access", <AccessList key="a" project={project} path={base} of="consumer" />],
    ];
  };
  const lost = "Where its consumers stood is lost for good; the messages stay in the topic.";
  return (
    <Resource<Subscription>
      title={name}
      kind="Subscription"
      path={base}
      tabs={tabs}
      actions={(subscription) => (admin ? [deadline(subscription)] : [])}
      deleted={admin && [lost, ["p", project, "subscriptions"]]}
    />
  );
}

function Overview({ project, name, base, subscription }: SubscriptionProps) {
  const doctor = useGet<Diagnosis>(`${base}:doctor`, 10);
  const { sample } = useCounts(project, [], [name]);
  const live = sample?.counts.subscriptions[name];
  const standing = doctor.data?.standing;
  const ago = (seconds?: number) => seconds !== undefined && `${span(seconds)} ago`;
  const parallel = subscription.type === "parallel";
  const end = `of ${number(live?.end ?? standing?.max)}`;
  return (
    <>
      <dl class="stats">
        <Stat label="Behind by" value={number(live?.lag ?? standing?.backlog)} />
        <Stat label="Oldest waits" value={span(live?.oldestUnackedSeconds ?? standing?.oldestWaitingSeconds)} />
        <Stat label="Stands at" value={number(live?.current ?? standing?.current)} note={end} />
        <Stat label="Handed out" value={number(live?.outstanding ?? standing?.handedOut)} />
        <Stat label="Lost to retention" value={number(standing?.lost)} wrong={(standing?.lost ?? 0) > 0} />
      </dl>
      <Card title="Is anything wrong?" wide>
        {shown(doctor, ({ healthy, findings }) => (
          <>
            <Badge tone={healthy ? "good" : "bad"}>{healthy ? "All is well" : "Something has to be done"}</Badge>
            <Findings of={findings} />
          </>
        ))}
      </Card>
      <Plots project={project} subscriptions={[name]} plots={(history) => plotsOf(history, name)} />
      <Facts
        rows={[
          ["Topic", linked(project, "topics", subscription.topic)],
          ["Kind", parallel ? "parallel: each message is acknowledged by itself" : "ordered: one position for all"],
          ["Acknowledge within", span(subscription.ackDeadlineSeconds)],
          ["Filter", subscription.filter && <code>{visible(subscription.filter)}</code>],
          ["Last publish", ago(standing?.lastPublishSecondsAgo)],
          ["Last pull", ago(standing?.lastPullSecondsAgo)],
          ["Last acknowledgement", ago(standing?.lastAcknowledgementSecondsAgo)],
          ["Who holds what", standing && parallel && holders(standing)],
          ["Created", <Time key="c" at={subscription.createdOn} />],
        ]}
      />
    </>
  );
}

function holders({ leased = 0, waiting = 0, blocked = 0, failed = 0 }: Standing): string {
  const parts = [`${plural(leased, "message")} with consumers`, `${number(waiting)} to be given again`];
  return [...parts, `${number(blocked)} behind another of their key`, `${number(failed)} failed before`].join(", ");
}

function plotsOf(history: History, name: string) {
  const own = history.subscriptions[name];
  if (!own) return [];
  const age = { label: "age", values: own.oldestUnackedSeconds };
  return [
    { title: "Behind by", lines: [{ label: "messages", values: own.lag, colour: 3 as const }] },
    { title: "Delivered a second", format: rate, lines: [rateLine("delivered", own.delivered, history, 2)] },
    { title: "Age of the oldest that waits", format: span, lines: [age] },
  ];
}

const AT_ONCE = 10;

/** Pull and acknowledge by hand. What is pulled here is handed out, as to any consumer. */
function ByHand({ project, name, base, subscription }: SubscriptionProps) {
  const parallel = subscription.type === "parallel";
  const within = span(subscription.ackDeadlineSeconds);
  const [pulled, setPulled] = useState<ReceivedMessage[] | null>(null);
  const pull = async () => {
    const asked = { maxMessages: AT_ONCE, returnImmediately: true };
    setPulled((await post<{ receivedMessages: ReceivedMessage[] }>(`${base}:pull`, asked)).receivedMessages);
  };
  const settle = async (done: ReceivedMessage[], verb = "acknowledge", how: object = {}) => {
    // Of an ordered subscription the last one stands for all before it.
    const ids = (parallel ? done : done.slice(-1)).map((each) => each.ackId);
    await post(`${base}:${verb}`, { ackIds: ids, ...how });
    setPulled((last) => (last ?? []).filter((each) => !done.includes(each)));
  };
  return (
    <>
      <Card wide>
        <p>
          {parallel
            ? `What is pulled is leased to you for ${within}: nobody else gets it meanwhile, and then it comes again.`
            : `Pulling moves nothing: the same messages come again until they are acknowledged, within ${within}.`}
        </p>
        <div class="actions">
          <Act label={`Pull ${AT_ONCE} messages`} primary act={pull} />
          {pulled && pulled.length > 0 && <Act label="Acknowledge all of these" act={() => settle(pulled)} />}
        </div>
      </Card>
      {pulled?.map((each, at) => (
        <MessageCard key={each.ackId} message={each.message} orderingKey={each.orderingKey} view="auto">
          {each.deliveryAttempt !== undefined && <Badge>delivery {each.deliveryAttempt}</Badge>}
          {parallel && <Act label="Acknowledge" act={() => settle([each])} />}
          {parallel && <Act label="Give back" act={() => settle([each], "nack", { failed: false })} />}
          {!parallel && <Act label="Acknowledge up to here" act={() => settle(pulled.slice(0, at + 1))} />}
        </MessageCard>
      ))}
      {pulled?.length === 0 && (
        <Empty command={`ams pull ${name} --project ${project}`}>There is nothing to pull now. In a terminal:</Empty>
      )}
    </>
  );
}

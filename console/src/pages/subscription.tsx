/** One subscription: where it stands and why, its messages by hand, its delivery, and moving it. */
import { useState } from "preact/hooks";
import { call } from "../api";
import { number, rate, shortName, span } from "../format";
import { useCounts } from "../live";
import { useGet } from "../load";
import { AccessList } from "../parts/access";
import { Badge, Card, Command, Empty, Facts, Link, Page, Shown, Stat, Tabs, Time } from "../parts/basics";
import { Destroys } from "../parts/dialog";
import { Act, Field, Form, type Values } from "../parts/form";
import { Plots, rateLine } from "../parts/history";
import { MessageCard } from "../parts/message";
import type { Line } from "../parts/plot";
import { administers, useUser } from "../rights";
import { go } from "../router";
import { visible } from "../text";
import type { Doctor, History, ReceivedMessage, Subscription } from "../types";
import type { Params } from ".";
import { DeadLetters } from "./dead-letters";
import { Push } from "./push";
import { Seek } from "./seek";

export interface SubscriptionProps {
  project: string;
  name: string;
  base: string;
  subscription: Subscription;
  reload: () => void;
  admin: boolean;
}

export function SubscriptionPage(props: { params: Params }) {
  const { project = "", subscription: name = "" } = props.params;
  const user = useUser();
  const base = `/projects/${project}/subscriptions/${name}`;
  const subscription = useGet<Subscription>(base);
  const admin = administers(user, project);
  return (
    <Page title={name} kind="Subscription">
      <Shown of={subscription}>
        {(data) => {
          const all = { project, name, base, subscription: data, reload: subscription.reload, admin };
          const pushed = Boolean(data.pushConfig.type);
          const access = <AccessList title="Who may consume" project={project} path={base} of="consumer" />;
          return (
            <Tabs
              tabs={[
                ["overview", "Overview", <Standing key="o" {...all} />],
                !pushed && ["messages", "Pull", <ByHand key="b" {...all} />],
                ["seek", "Move", <Seek key="s" {...all} />],
                (pushed || admin) && ["push", "Push", <Push key="p" {...all} />],
                admin && deadLetterTopic(data) !== "" && ["dead", "Dead letters", <DeadLetters key="d" {...all} />],
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

export function deadLetterTopic(subscription: Subscription): string {
  return shortName(subscription.deadLetterPolicy?.deadLetterTopic ?? subscription.pushConfig.deadLetterTopic);
}

function Standing(props: SubscriptionProps) {
  const { project, name, subscription } = props;
  const doctor = useGet<Doctor>(`${props.base}:doctor`, 10);
  const { sample } = useCounts(project, [], [name]);
  const live = sample?.counts.subscriptions[name];
  const standing = doctor.data?.standing;
  const topic = shortName(subscription.topic);
  return (
    <>
      <dl class="stats">
        <Stat label="Behind by" value={number(live?.lag ?? standing?.backlog)} />
        <Stat label="Oldest waits" value={span(live?.oldestUnackedSeconds ?? standing?.oldestWaitingSeconds)} />
        <Stat
          label="Stands at"
          value={number(live?.current ?? standing?.current)}
          note={`of ${number(live?.end ?? standing?.max)}`}
        />
        <Stat label="Handed out" value={number(live?.outstanding ?? standing?.handedOut)} />
        <Stat label="Lost to retention" value={number(standing?.lost)} wrong={(standing?.lost ?? 0) > 0} />
      </dl>
      <Card title="Is anything wrong?" wide>
        <Shown of={doctor}>
          {({ healthy, findings }) => (
            <>
              <Badge tone={healthy ? "good" : "bad"}>{healthy ? "All is well" : "Something has to be done"}</Badge>
              <ul class="findings">
                {findings.map((finding) => (
                  <li key={finding.text} class={finding.wrong ? "wrong" : ""}>
                    {visible(finding.text)}
                  </li>
                ))}
              </ul>
            </>
          )}
        </Shown>
      </Card>
      <Plots project={project} subscriptions={[name]} plots={(history) => plotsOf(history, name)} />
      <Facts
        rows={[
          [
            "Topic",
            <Link key="t" to={["p", project, "topics", topic]}>
              {topic}
            </Link>,
          ],
          [
            "Kind",
            subscription.type === "parallel"
              ? "parallel: each message is acknowledged by itself"
              : "ordered: one position for all",
          ],
          ["Acknowledge within", span(subscription.ackDeadlineSeconds)],
          ...(subscription.filter
            ? [["Filter", <code key="f">{visible(subscription.filter)}</code>] as [string, preact.VNode]]
            : []),
          ["Created", <Time key="c" at={subscription.createdOn} />],
        ]}
      />
    </>
  );
}

function plotsOf(history: History, name: string) {
  const own = history.subscriptions[name];
  if (!own) return [];
  const lag: Line = { label: "messages", values: own.lag, colour: 3, filled: true };
  return [
    { title: "Behind by", lines: [lag] },
    { title: "Delivered a second", format: rate, lines: [rateLine("delivered", own.delivered, history, 2)] },
    {
      title: "Age of the oldest that waits",
      format: span,
      lines: [{ label: "age", values: own.oldestUnackedSeconds, filled: true }],
    },
  ];
}

const AT_ONCE = 10;

/** Pull and acknowledge by hand. What is pulled here is handed out, as to any consumer. */
function ByHand(props: SubscriptionProps) {
  const { base, subscription } = props;
  const parallel = subscription.type === "parallel";
  const [pulled, setPulled] = useState<ReceivedMessage[] | null>(null);
  const settle = async (verb: string, ids: string[], body: object, done: (each: ReceivedMessage) => boolean) => {
    await call(`${base}:${verb}`, { method: "POST", body: { ackIds: ids, ...body } });
    setPulled((last) => (last ?? []).filter((each) => !done(each)));
  };
  return (
    <>
      <Card wide>
        <p>
          {parallel
            ? `What is pulled is leased to you for ${span(subscription.ackDeadlineSeconds)}: nobody else gets it meanwhile, and then it comes again.`
            : `Pulling moves nothing: the same messages come again until they are acknowledged, within ${span(subscription.ackDeadlineSeconds)}.`}
        </p>
        <div class="actions">
          <Act
            label={`Pull ${AT_ONCE} messages`}
            primary
            act={async () => {
              const body = { maxMessages: AT_ONCE, returnImmediately: true };
              setPulled(
                (await call<{ receivedMessages: ReceivedMessage[] }>(`${base}:pull`, { method: "POST", body }))
                  .receivedMessages,
              );
            }}
          />
          {pulled && pulled.length > 0 && (
            <Act
              label="Acknowledge all of these"
              act={() =>
                settle(
                  "acknowledge",
                  pulled.map((each) => each.ackId),
                  {},
                  () => true,
                )
              }
            />
          )}
        </div>
      </Card>
      {pulled?.map((each, at) => (
        <MessageCard
          key={each.ackId}
          message={each.message}
          orderingKey={each.orderingKey}
          view="auto"
          notes={
            <>
              {each.deliveryAttempt !== undefined && <Badge>delivery {each.deliveryAttempt}</Badge>}
              <Act
                label={parallel ? "Acknowledge" : "Acknowledge up to here"}
                act={() =>
                  settle("acknowledge", [each.ackId], {}, (one) =>
                    parallel ? one === each : pulled.indexOf(one) <= at,
                  )
                }
              />
              {parallel && (
                <Act
                  label="Give back"
                  act={() => settle("nack", [each.ackId], { failed: false }, (one) => one === each)}
                />
              )}
            </>
          }
        />
      ))}
      {pulled?.length === 0 && (
        <Empty command={`ams pull ${props.name} --project ${props.project}`}>
          There is nothing to pull now. In a terminal:
        </Empty>
      )}
    </>
  );
}

function Settings({ project, name, base, subscription, reload }: SubscriptionProps) {
  const change = async ({ seconds }: Values) => {
    await call(`${base}:modifyAckDeadline`, { method: "POST", body: { ackDeadlineSeconds: Number(seconds) } });
    reload();
    return "Changed.";
  };
  const remove = async () => {
    await call(base, { method: "DELETE" });
    go(["p", project, "subscriptions"]);
  };
  return (
    <div class="grid">
      <Card title="Time to acknowledge">
        <Form button="Change" onSubmit={change}>
          <Field name="seconds" label="Seconds" type="number" min={0} value={String(subscription.ackDeadlineSeconds)} />
        </Form>
        <p class="quiet">All other options in a terminal:</p>
        <Command text={`ams subs update ${name} --project ${project} --help`} />
      </Card>
      <Card title="Delete">
        <p>The subscription goes with its position and its access list; the messages stay in the topic.</p>
        <Destroys label="Delete" name={name} consequence="Where its consumers stood is lost for good." act={remove} />
      </Card>
    </div>
  );
}

/** Delivery by push: how it goes, each attempt, the endpoint, and its secret. */
import { post } from "../api";
import { bytes, number, shortName } from "../format";
import { useGet } from "../load";
import { type Action, confirmed, useActions } from "../parts/actions";
import { Badge, Card, Command, Empty, Facts, Note, Stat, shown, Time, type Tone } from "../parts/basics";
import { Act, Form, field, tick, type Values } from "../parts/form";
import { type Column, column, Table, timed, valued } from "../parts/table";
import { visible } from "../text";
import type { PushAttempt, PushConfig, PushReport } from "../wire";
import type { SubscriptionProps } from "./subscriptions";

export function Push(props: SubscriptionProps) {
  const { type, verified } = props.subscription.pushConfig;
  return (
    <>
      {type && <Delivery base={props.base} />}
      {!type && <Empty>Its messages are pulled. With an endpoint they are delivered there as they come.</Empty>}
      {props.admin && (
        <div class="grid">
          {type === "http_endpoint" && !verified && <Verify {...props} />}
          <Endpoint {...props} />
        </div>
      )}
    </>
  );
}

const TONES: Record<string, Tone> = {
  active: "good",
  retrying: "warn",
  stopped: "bad",
  unverified: "warn",
  inactive: "bad",
  open: "bad",
};

function Delivery({ base }: { base: string }) {
  const status = useGet<PushReport>(`${base}:pushStatus`, 3);
  const state = (name = "–") => <Badge tone={TONES[name] ?? "calm"}>{name}</Badge>;
  return shown(status, (now) => (
    <>
      <dl class="stats">
        <Stat label="State" value={state(now.state)} />
        <Stat label="Circuit" value={state(now.circuit)} />
        <Stat label="Waiting" value={number(now.backlog)} />
        <Stat label="Delivered" value={number(now.delivered)} />
        <Stat label="Failed requests" value={number(now.failed)} wrong={(now.failed ?? 0) > 0} />
        <Stat label="Put aside" value={number(now.dead)} />
      </dl>
      {now.error && <Note tone="bad">{answered(now.error.detail, now.error.status)}</Note>}
      <Facts
        rows={[
          ["Last success", <Time key="l" at={now.lastSuccess} age />],
          ["Next attempt", <Time key="n" at={now.nextAttempt} />],
        ]}
      />
      <Card title="Attempts" wide>
        <Table
          id="attempts-"
          label="Attempts"
          rows={now.attempts}
          columns={ATTEMPTS}
          rowKey={(row) => row.time}
          sort="-when"
          empty="Nothing was sent since the process that delivers began."
        />
      </Card>
    </>
  ));
}

const ATTEMPTS: Column<PushAttempt>[] = [
  timed("When", (row) => row.time),
  column("Answer", (row) => answered(row.error, row.status), { by: (row) => `${row.status ?? ""} ${row.error ?? ""}` }),
  column("Took", (row) => `${number(row.milliseconds)} ms`, { by: (row) => row.milliseconds, right: true }),
  valued("Messages", (row) => row.messages, { right: true, wide: true }),
  column("Size", (row) => bytes(row.bytes), { by: (row) => row.bytes, right: true, wide: true }),
];

function answered(error = "", status?: number) {
  return (
    <>
      <Badge tone={error ? "bad" : "good"}>{status ?? "none"}</Badge> {visible(error)}
    </>
  );
}

function Verify({ base, subscription, reload }: SubscriptionProps) {
  const { pushEndpoint = "", verificationHash = "" } = subscription.pushConfig;
  const root = URL.canParse(pushEndpoint) ? new URL(pushEndpoint).origin : "";
  return (
    <Card title="Verify the endpoint">
      <p>
        Nothing is delivered until <code>{visible(root)}/ams_verification_hash</code> answers with exactly this text:
      </p>
      <Command text={verificationHash} />
      <Act
        label="Verify it now"
        primary
        act={() => post(`${base}:verifyPushEndpoint`, {}, subscription).then(reload)}
      />
    </Card>
  );
}

/** What a configuration says besides what the form changes: it is replaced whole. */
function kept(config: PushConfig): Partial<PushConfig> {
  const { verificationHash, verified, authorizationHeader, deadLetterTopic, maxDeliveryAttempts, ...rest } = config;
  const type = authorizationHeader?.type;
  return { ...rest, ...(type === "disabled" ? { authorizationHeader: { type } } : {}) };
}

const KINDS = { http_endpoint: "HTTPS endpoint", mattermost: "Mattermost hook" };
const POLICIES = { linear: "linear", slowstart: "slow start", exponential: "exponential" };
const ASIDE = "Where messages go that are refused too often; empty: they are tried without limit";
const STOPPED = "It is pulled from then on and keeps its position; endpoint, hash and secrets are forgotten.";

function fieldsOf(config: PushConfig, ordered: boolean) {
  const { type, pushEndpoint, mattermostUrl, maxMessages, retryPolicy, deadLetterTopic, maxDeliveryAttempts } = config;
  const least = { type: "number", min: 1 } as const;
  const address = { type: "url", value: pushEndpoint || mattermostUrl, placeholder: "https://" } as const;
  return [
    field("type", "Kind", { value: type, options: KINDS }),
    field("url", "Address", { ...address, required: true }),
    field("most", "Messages in a delivery, at most", { ...least, value: String(maxMessages || 1) }),
    field("policy", "Wait after a failure", { value: retryPolicy?.type, options: POLICIES }),
    tick("decode", "Deliver the data decoded from base64", config.base64Decode),
    ordered && field("dead", "Dead letter topic", { value: shortName(deadLetterTopic), hint: ASIDE }),
    ordered && field("attempts", "Refused so often", { ...least, value: String(maxDeliveryAttempts ?? 5) }),
  ];
}

function Endpoint({ base, name, subscription, reload }: SubscriptionProps) {
  const config = subscription.pushConfig;
  const fields = fieldsOf(config, subscription.type !== "parallel");
  const { buttons, once } = useActions(reload);
  const change = (pushConfig: PushConfig) => post(`${base}:modifyPushConfig`, { pushConfig }, subscription);
  const save = async ({ type = "", url = "", most, policy = "", decode, dead, attempts }: Values) => {
    await change({
      ...kept(config),
      type,
      ...(type === "mattermost" ? { mattermostUrl: url } : { pushEndpoint: url, maxMessages: Number(most) }),
      retryPolicy: { ...(policy === config.retryPolicy?.type ? config.retryPolicy : {}), type: policy },
      base64Decode: decode === "on",
      ...(dead ? { deadLetterTopic: dead, maxDeliveryAttempts: Number(attempts) } : {}),
    });
    reload();
    return "It holds from the next delivery on.";
  };
  const secret: Action = { label: "New signing secret", run: () => post(`${base}:rotatePushSecret`), gives: "secret" };
  const stop = confirmed("Stop delivering", name, STOPPED, () => change({}));
  const actions = config.type === "http_endpoint" ? [secret, stop] : config.type ? [stop] : [];
  return (
    <Card title="Endpoint" actions={buttons(actions)}>
      <Form button={config.type ? "Change" : "Deliver there"} onSubmit={save} fields={fields} />
      {once}
    </Card>
  );
}

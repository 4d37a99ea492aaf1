/** Delivery by push: how it goes, each attempt, the endpoint, and its secret. */
import { useState } from "preact/hooks";
import { call } from "../api";
import { bytes, number, shortName } from "../format";
import { useGet } from "../load";
import { Badge, Card, Command, Copy, Empty, Facts, Note, Shown, Stat, Time, type Tone } from "../parts/basics";
import { Destroys } from "../parts/dialog";
import { Act, Check, type Choice, Field, Form, type Values } from "../parts/form";
import { type Column, column, Table, timed, valued } from "../parts/table";
import { visible } from "../text";
import type { PushAttempt, PushConfig, PushStatus } from "../types";
import type { SubscriptionProps } from "./subscription";

export function Push(props: SubscriptionProps) {
  const { pushConfig } = props.subscription;
  const pushed = Boolean(pushConfig.type);
  return (
    <>
      {pushed && <Delivery base={props.base} />}
      {!pushed && <Empty>Its messages are pulled. With an endpoint they are delivered there as they come.</Empty>}
      {props.admin && (
        <div class="grid">
          {pushConfig.type === "http_endpoint" && !pushConfig.verified && <Verify {...props} />}
          <Endpoint {...props} />
          {pushConfig.type === "http_endpoint" && <Secret {...props} />}
          {pushed && <Stop {...props} />}
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
};

function Delivery(props: { base: string }) {
  const status = useGet<PushStatus>(`${props.base}:pushStatus`, 3);
  return (
    <Shown of={status}>
      {(now) => (
        <>
          <dl class="stats">
            <Stat label="State" value={<Badge tone={TONES[now.state] ?? "calm"}>{now.state}</Badge>} />
            <Stat
              label="Circuit"
              value={<Badge tone={now.circuit === "open" ? "bad" : "calm"}>{now.circuit ?? "–"}</Badge>}
            />
            <Stat label="Waiting" value={number(now.backlog)} />
            <Stat label="Delivered" value={number(now.delivered)} />
            <Stat label="Failed requests" value={number(now.failed)} wrong={(now.failed ?? 0) > 0} />
            <Stat label="Put aside" value={number(now.dead)} />
          </dl>
          {now.error && (
            <Note tone="bad">
              <p>
                {now.error.status !== undefined && <strong>{now.error.status} </strong>}
                {visible(now.error.detail ?? "")}
              </p>
            </Note>
          )}
          <Facts
            rows={[
              ["Last success", <Time key="l" at={now.lastSuccess} age />],
              ["Next attempt", <Time key="n" at={now.nextAttempt} />],
            ]}
          />
          <Card title="Attempts" wide>
            <Table
              id="attempts-"
              label="Attempts, the newest first"
              rows={(now.attempts ?? []).toReversed()}
              columns={ATTEMPTS}
              rowKey={(row) => row.time}
              empty={<Empty>Nothing was sent since the process that delivers began.</Empty>}
            />
          </Card>
        </>
      )}
    </Shown>
  );
}

const ATTEMPTS: Column<PushAttempt>[] = [
  timed("When", (row) => row.time),
  column("Answer", answerOf, { by: (row) => row.status ?? 0 }),
  column("Took", (row) => `${number(row.milliseconds)} ms`, { by: (row) => row.milliseconds, right: true }),
  valued("Messages", (row) => row.messages, { right: true, wide: true }),
  column("Size", (row) => bytes(row.bytes), { by: (row) => row.bytes, right: true, wide: true }),
];

function answerOf({ status, error }: PushAttempt) {
  return (
    <>
      <Badge tone={error ? "bad" : "good"}>{status ?? "none"}</Badge> {visible(error ?? "")}
    </>
  );
}

function Verify(props: SubscriptionProps) {
  const { pushConfig } = props.subscription;
  const { pushEndpoint = "", verificationHash = "" } = pushConfig;
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
        act={async () => {
          await call(`${props.base}:verifyPushEndpoint`, { method: "POST" });
          props.reload();
        }}
      />
    </Card>
  );
}

/** What a configuration says besides what the form changes: it is replaced whole. */
function kept(config: PushConfig): Partial<PushConfig> {
  const { verificationHash: _, verified: __, authorizationHeader, ...rest } = config;
  const type = authorizationHeader?.type;
  return { ...rest, ...(type === "disabled" ? { authorizationHeader: { type } } : {}) };
}

const KINDS: Choice[] = [
  ["http_endpoint", "HTTPS endpoint"],
  ["mattermost", "Mattermost hook"],
];
const POLICIES: Choice[] = [
  ["linear", "linear"],
  ["slowstart", "slow start"],
  ["exponential", "exponential"],
];

function Endpoint({ base, subscription, reload }: SubscriptionProps) {
  const config = subscription.pushConfig;
  const parallel = subscription.type === "parallel";
  const save = async ({ type = "", url, most, policy, decode, dead, attempts }: Values) => {
    const { deadLetterTopic: _, maxDeliveryAttempts: __, ...rest } = kept(config);
    const pushConfig = {
      ...rest,
      type,
      ...(type === "mattermost" ? { mattermostUrl: url } : { pushEndpoint: url, maxMessages: Number(most) }),
      retryPolicy: { ...(policy === config.retryPolicy?.type ? config.retryPolicy : {}), type: policy },
      base64Decode: decode === "on",
      ...(dead ? { deadLetterTopic: dead, maxDeliveryAttempts: Number(attempts) } : {}),
    };
    await call(`${base}:modifyPushConfig`, { method: "POST", body: { pushConfig } });
    reload();
    return "It holds from the next delivery on.";
  };
  return (
    <Card title="Endpoint">
      <Form button={config.type ? "Change" : "Deliver there"} onSubmit={save}>
        <Field name="type" label="Kind" value={config.type} options={KINDS} />
        <Field
          name="url"
          label="Address"
          type="url"
          value={config.pushEndpoint || config.mattermostUrl}
          required
          placeholder="https://"
        />
        <Field
          name="most"
          label="Messages in a delivery, at most"
          type="number"
          min={1}
          value={String(config.maxMessages || 1)}
        />
        <Field name="policy" label="Wait after a failure" value={config.retryPolicy?.type} options={POLICIES} />
        <Check name="decode" label="Deliver the data decoded from base64" checked={config.base64Decode} />
        {!parallel && (
          <>
            <Field
              name="dead"
              label="Dead letter topic"
              value={shortName(config.deadLetterTopic)}
              hint="Where messages go that are refused too often; empty: they are tried without limit"
            />
            <Field
              name="attempts"
              label="Refused so often"
              type="number"
              min={1}
              value={String(config.maxDeliveryAttempts ?? 5)}
            />
          </>
        )}
      </Form>
    </Card>
  );
}

function Secret(props: SubscriptionProps) {
  const [secret, setSecret] = useState("");
  return (
    <Card title="Signing secret">
      <p>Deliveries are signed with it. The one before stays valid for a day.</p>
      {secret ? (
        <Note tone="warn">
          <p>It is shown this once. Keep it where the receiver finds it:</p>
          <code class="secret">{secret}</code> <Copy text={secret} />
        </Note>
      ) : (
        <Act
          label="Make a new one"
          act={async () =>
            setSecret(
              (await call<{ secret: string }>(`${props.base}:rotatePushSecret`, { method: "POST", body: {} })).secret,
            )
          }
        />
      )}
    </Card>
  );
}

function Stop({ base, name, reload }: SubscriptionProps) {
  const stop = async () => {
    await call(`${base}:modifyPushConfig`, { method: "POST", body: { pushConfig: {} } });
    reload();
  };
  return (
    <Card title="Stop delivering">
      <p>It becomes a subscription that is pulled from; its position stays.</p>
      <Destroys
        label="Stop delivering"
        name={name}
        consequence="Endpoint, hash and secrets of the delivery are forgotten."
        act={stop}
      />
    </Card>
  );
}

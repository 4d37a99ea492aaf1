/** Moving a subscription: by clicking on a time line, by time or by id, with what will come of it said before. */
import { useState } from "preact/hooks";
import { call } from "../api";
import { localTime, number, plural, rate, shortName, utcTime } from "../format";
import { useGet } from "../load";
import { Button, Card, ErrorNote, Shown } from "../parts/basics";
import { Confirmed, Dialog } from "../parts/dialog";
import { Field, Form } from "../parts/form";
import { Plots, rateLine } from "../parts/history";
import type { Offsets } from "../types";
import type { SubscriptionProps } from "./subscription";

interface Target {
  offset: number;
  time?: Date;
}

export function Seek(props: SubscriptionProps) {
  const { base, project, name, admin } = props;
  const topic = shortName(props.subscription.topic);
  const offsets = useGet<Offsets>(`${base}:offsets`, 5);
  const [target, setTarget] = useState<Target | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const toTime = async (time: Date) => {
    const query = { time: time.toISOString() };
    const { offset } = await call<{ offset: number }>(`${base}:timeToOffset`, { query });
    setTarget({ offset, time });
  };
  const picked = (time: Date) => {
    setFailure(null);
    toTime(time).catch(setFailure);
  };
  return (
    <Shown of={offsets}>
      {(now) => (
        <>
          <p>
            It stands at <strong>{number(now.current)}</strong>, {plural(now.max - now.current, "message")} before the
            end of {topic}, which has the ids {number(now.min)} to {number(now.max - 1)}.
          </p>
          <Plots
            project={project}
            topics={admin ? [topic] : []}
            subscriptions={[name]}
            onPick={picked}
            plots={(history) => {
              const counts = history.topics[topic]?.published ?? history.subscriptions[name]?.delivered ?? [];
              const line = rateLine(admin ? "published" : "delivered", counts, history);
              return [{ title: "Click where it is to begin", format: rate, lines: [line] }];
            }}
          />
          {failure && <ErrorNote error={failure} />}
          <div class="grid">
            <Card title="To a time">
              <Form button="Look" onSubmit={({ time = "" }) => toTime(new Date(time))}>
                <Field name="time" label="Time (local)" type="datetime-local" required />
              </Form>
            </Card>
            <Card title="To an id">
              <Form button="Look" onSubmit={async ({ id }) => setTarget({ offset: Number(id) })}>
                <Field name="id" label="The next message to deliver" type="number" min={0} required />
              </Form>
              <div class="actions">
                <Button label="To the oldest kept" quiet onClick={() => setTarget({ offset: now.min })} />
                <Button label="To the end" quiet onClick={() => setTarget({ offset: now.max })} />
              </div>
            </Card>
          </div>
          {target && (
            <Move {...props} now={now} target={target} close={() => setTarget(null)} onMoved={offsets.reload} />
          )}
        </>
      )}
    </Shown>
  );
}

/** Says what the move means; where messages would be passed over, the name has to be typed. */
function Move(props: SubscriptionProps & { now: Offsets; target: Target; close: () => void; onMoved: () => void }) {
  const { target, name } = props;
  const distance = target.offset - props.now.current;
  const move = async () => {
    await call(`${props.base}:seek`, { method: "POST", body: { offset: target.offset } });
    props.onMoved();
  };
  return (
    <Dialog title={`Move ${name}`} onClose={props.close}>
      <Confirmed name={distance > 0 ? name : null} button="Move" act={move} close={props.close}>
        <p>
          The next message will be <strong>{number(target.offset)}</strong>
          {target.time && `, the first published at ${localTime(target.time)} (${utcTime(target.time)}) or later`}.
        </p>
        <p>
          {distance < 0 && `${plural(-distance, "message")} will be delivered again.`}
          {distance === 0 && "It stands there already."}
          {distance > 0 && `${plural(distance, "message")} will be passed over, and not be delivered.`}
        </p>
      </Confirmed>
    </Dialog>
  );
}

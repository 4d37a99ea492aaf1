/** Moving a subscription: by clicking on a time line, by time or by id, with what will come of it said before. */
import { useState } from "preact/hooks";
import { call, post } from "../api";
import { localTime, number, plural, rate, shortName, utcTime } from "../format";
import { useGet } from "../load";
import { Dialog } from "../parts/actions";
import { Button, Card, ErrorNote, shown } from "../parts/basics";
import { Form, field } from "../parts/form";
import { Plots, rateLine } from "../parts/history";
import type { Offsets } from "../wire";
import type { SubscriptionProps } from "./subscriptions";

interface Target {
  offset: number;
  time?: Date;
}

export function Seek({ base, project, name, admin, subscription }: SubscriptionProps) {
  const topic = shortName(subscription.topic);
  const offsets = useGet<Offsets>(`${base}:offsets`, 5);
  const [target, setTarget] = useState<Target | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const toTime = async (time: Date) => {
    const query = { time: time.toISOString() };
    setTarget({ time, ...(await call<{ offset: number }>(`${base}:timeToOffset`, { query })) });
  };
  const picked = (seconds: number) => {
    setFailure(null);
    toTime(new Date(seconds * 1000)).catch(setFailure);
  };
  const close = () => setTarget(null);
  const move = async ({ offset }: Target) => {
    await post(`${base}:seek`, { offset });
    offsets.reload();
    close();
  };
  return shown(offsets, (now) => (
    <>
      <p>
        It stands at <strong>{number(now.current)}</strong>, {plural(now.max - now.current, "message")} before the end
        of {topic}, which {now.max > now.min ? `has the ids ${number(now.min)} to ${number(now.max - 1)}` : "is empty"}.
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
          <Form
            button="Look"
            onSubmit={({ time = "" }) => toTime(new Date(time))}
            fields={[field("time", "Time (local)", { type: "datetime-local", required: true })]}
          />
        </Card>
        <Card title="To an id">
          <Form
            button="Look"
            onSubmit={async ({ id }) => setTarget({ offset: Number(id) })}
            fields={[field("id", "The next message to deliver", { type: "number", min: 0, required: true })]}
          />
          <div class="actions">
            <Button label="To the oldest kept" quiet onClick={() => setTarget({ offset: now.min })} />
            <Button label="To the end" quiet onClick={() => setTarget({ offset: now.max })} />
          </div>
        </Card>
      </div>
      {target && (
        <Dialog title={`Move ${name}`} onClose={close}>
          <Form
            button="Move"
            typed={target.offset > now.current ? name : undefined}
            onSubmit={() => move(target)}
            onCancel={close}>
            <Consequence target={target} distance={target.offset - now.current} />
          </Form>
        </Dialog>
      )}
    </>
  ));
}

/** What a move means; where messages would be passed over, the name has to be typed, too. */
function Consequence({ target: { offset, time }, distance }: { target: Target; distance: number }) {
  return (
    <>
      <p>
        The next message will be <strong>{number(offset)}</strong>
        {time && `, the first published at ${localTime(time)} (${utcTime(time)}) or later`}.
      </p>
      <p>
        {distance < 0 && `${plural(-distance, "message")} will be delivered again.`}
        {distance === 0 && "It stands there already."}
        {distance > 0 && `${plural(distance, "message")} will be passed over, and not be delivered.`}
      </p>
    </>
  );
}

/** Moving a subscription: by clicking on a time line, by time or by id, with what will come of it said before. */
import { useState } from "preact/hooks";
import { post } from "../api";
import { localTime, number, plural, rate, shortName, utcTime } from "../format";
import { useGet } from "../load";
import { Dialog } from "../parts/actions";
import { Button, Card, ErrorNote, shown } from "../parts/basics";
import { Form, field } from "../parts/form";
import { Plots, rateLine } from "../parts/plot";
import { offsetAt } from "../reading";
import type { History, Offsets } from "../wire";
import type { SubscriptionProps } from "./subscriptions";

type Target = { offset: number; time?: Date };

const TIME = field("time", "Time (local)", { type: "datetime-local", required: true });
const ID = field("id", "The next message to deliver", { type: "number", min: 0, required: true });

export function Seek({ base, project, name, admin, subscription }: SubscriptionProps) {
  const topic = shortName(subscription.topic);
  const offsets = useGet<Offsets>(`${base}:offsets`, 5);
  const [target, setTarget] = useState<Target | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const toTime = async (time: Date) => {
    setTarget({ time, offset: await offsetAt(base, time) });
  };
  const picked = (seconds: number) => {
    setFailure(null);
    toTime(new Date(seconds * 1000)).catch(setFailure);
  };
  const close = () => setTarget(null);
  const move = async () => {
    await post(`${base}:seek`, { offset: target?.offset });
    offsets.reload();
    close();
  };
  const plots = (history: History) => {
    const counts = history.topics[topic]?.published ?? history.subscriptions[name]?.delivered ?? [];
    const line = rateLine(admin ? "published" : "delivered", counts, history);
    return [{ title: "Click where it is to begin", format: rate, lines: [line] }];
  };
  return shown(offsets, (now) => (
    <>
      <p>
        It stands at <strong>{number(now.current)}</strong>, {plural(now.max - now.current, "message")} before the end
        of {topic}, which {now.max > now.min ? `has the ids ${number(now.min)} to ${number(now.max - 1)}` : "is empty"}.
      </p>
      <Plots project={project} topics={admin ? [topic] : []} subscriptions={[name]} onPick={picked} plots={plots} />
      {failure && <ErrorNote error={failure} />}
      <div class="grid">
        <Card title="To a time">
          <Form button="Look" fields={[TIME]} onSubmit={({ time = "" }) => toTime(new Date(time))} />
        </Card>
        <Card title="To an id">
          <Form button="Look" fields={[ID]} onSubmit={async ({ id }) => setTarget({ offset: Number(id) })} />
          <div class="actions">
            <Button label="To the oldest kept" quiet onClick={() => setTarget({ offset: now.min })} />
            <Button label="To the end" quiet onClick={() => setTarget({ offset: now.max })} />
          </div>
        </Card>
      </div>
      {target && (
        <Dialog title={`Move ${name}`} onClose={close}>
          <Form button="Move" typed={target.offset > now.current ? name : undefined} onSubmit={move} onCancel={close}>
            <p>{consequence(target, target.offset - now.current)}</p>
          </Form>
        </Dialog>
      )}
    </>
  ));
}

/** What a move means; where messages would be passed over, the name has to be typed, too. */
function consequence({ offset, time }: Target, distance: number): string {
  const since = time ? `, the first published at ${localTime(time)} (${utcTime(time)}) or later` : "";
  const next = `The next message will be ${number(offset)}${since}.`;
  if (distance === 0) return `${next} It stands there already.`;
  if (distance < 0) return `${next} ${plural(-distance, "message")} will be delivered again.`;
  return `${next} ${plural(distance, "message")} will be passed over, and not be delivered.`;
}

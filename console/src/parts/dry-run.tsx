/** Asks what a schema would have refused of messages that a topic has. */
import { useState } from "preact/hooks";
import { call } from "../api";
import { number, plural } from "../format";
import { offsetAt } from "../reading";
import { visible } from "../text";
import type { DryRun, Offsets } from "../wire";
import { Card, Note } from "./basics";
import { type FieldProps, Form, field, type Values } from "./form";

const DAY = 86_400_000;
const FEW = 1000;
const MOST = 10_000;
const WHICH = {
  day: `of the last day, at most ${number(MOST)}`,
  few: `the newest ${number(FEW)}`,
  many: `the newest ${number(MOST)}`,
};

interface Props {
  /** Chooses the topic or the schema. */
  choice: FieldProps;
  /** `projects/P/topics/T`, unless it is what is chosen. */
  topic?: string;
  ask: (values: Values, messages: number) => Promise<DryRun>;
}

export function DryRunCard(props: Props) {
  const [tried, setTried] = useState<DryRun | null>(null);
  const run = async (values: Values) => {
    setTried(null);
    const newest = values.which === "few" ? FEW : MOST;
    const messages = values.which === "day" ? await ofLastDay(`/${props.topic ?? values.topic}`) : newest;
    setTried(messages > 0 ? await props.ask(values, messages) : { checked: 0, refused: 0, reasons: [] });
  };
  const which = field("which", "Messages", { options: WHICH, hint: "Nothing is changed" });
  return (
    <Card title="On messages that are there">
      <Form button="Dry run" onSubmit={run} fields={[props.choice, which]} />
      {tried && (
        <Note tone={tried.refused > 0 ? "warn" : "good"}>
          <p>{`Of ${plural(tried.checked, "message")} it would refuse ${number(tried.refused)}.`}</p>
          {tried.reasons.map((each) => (
            <p key={each.messageId}>{visible(each.reason.slice(0, 500))}</p>
          ))}
        </Note>
      )}
    </Card>
  );
}

async function ofLastDay(path: string): Promise<number> {
  const offset = await offsetAt(path, new Date(Date.now() - DAY));
  return Math.min(MOST, (await call<Offsets>(`${path}:offsets`)).max - offset);
}

/** Asks what a schema would have refused of the newest messages of a topic. */
import { useState } from "preact/hooks";
import { number, plural } from "../format";
import { visible } from "../text";
import type { DryRun } from "../wire";
import { Card, Note } from "./basics";
import { type FieldProps, Form, type Values } from "./form";

const HINT = "At most 10,000; nothing is changed";

/** `field` chooses the topic or the schema. */
export function DryRunCard(props: { field: FieldProps; ask: (values: Values, messages: number) => Promise<DryRun> }) {
  const [tried, setTried] = useState<DryRun | null>(null);
  const run = async (values: Values) => {
    setTried(null);
    setTried(await props.ask(values, Number(values.messages)));
  };
  return (
    <Card title="On messages that are there">
      <Form
        button="Dry run"
        onSubmit={run}
        fields={[
          props.field,
          { name: "messages", label: "How many of the newest", type: "number", min: 1, value: "1000", hint: HINT },
        ]}
      />
      {tried && (
        <Note tone={tried.refused > 0 ? "warn" : "good"}>
          <p>
            Of {plural(tried.checked, "message")} it would refuse {number(tried.refused)}.
          </p>
          {tried.reasons.map((each) => (
            <p key={each.messageId}>{visible(each.reason.slice(0, 500))}</p>
          ))}
        </Note>
      )}
    </Card>
  );
}

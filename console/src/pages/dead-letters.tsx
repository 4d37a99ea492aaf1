/** Messages of a subscription that were put aside, why, and publishing them again. */
import { call } from "../api";
import { plural, shortName } from "../format";
import { useLoad } from "../load";
import { Badge, Card, Empty, shown } from "../parts/basics";
import { Act } from "../parts/form";
import { MessageCard } from "../parts/message";
import { find, redrive, type Wanted } from "../reading";
import { visible } from "../text";
import type { Offsets, ReadMessage } from "../wire";
import type { SubscriptionProps } from "./subscriptions";

const AT_ONCE = 25;

/** `source` is the topic they are in. */
export function DeadLetters({ project, name, subscription, source }: SubscriptionProps & { source: string }) {
  const target = shortName(subscription.topic);
  const base = `/projects/${project}/topics/${source}`;
  const ours: Wanted = ({ attributes }) =>
    attributes?.deadLetterSubscription === `projects/${project}/subscriptions/${name}`;
  const loaded = useLoad(`dead letters of ${base}`, async (signal) => {
    const bounds = await call<Offsets>(`${base}:offsets`, { signal });
    return find(base, bounds, bounds.max, true, AT_ONCE, ours, signal);
  });
  const again = async (letters: ReadMessage[]) => {
    // The oldest first, one after the other, as they were published.
    for (const letter of letters) await redrive(project, source, target, letter);
    return `Published to ${target}.`;
  };
  return shown(loaded, ({ messages }) => (
    <>
      {messages.length === 0 && (
        <Empty command={`ams dead list ${name} --project ${project}`}>
          Nothing of this subscription is in {source}. In a terminal:
        </Empty>
      )}
      {messages.length > 0 && (
        <Card wide>
          <p>
            The newest {plural(messages.length, "dead letter")} of {source}. What is published again goes to {target} as
            it was; asked twice, it is still published once. The dead letter stays where it is.
          </p>
          <Act label="Publish all of these again" act={() => again(messages)} />
        </Card>
      )}
      {messages.toReversed().map((letter) => (
        <MessageCard key={letter.offset} message={letter} view="auto">
          <Badge tone="bad">
            {letter.attributes?.deadLetterStatus} after {letter.attributes?.deadLetterAttempts}
          </Badge>
          <span>{visible((letter.attributes?.deadLetterReason ?? "").slice(0, 200))}</span>
          <Act label="Publish again" act={() => again([letter])} />
        </MessageCard>
      ))}
    </>
  ));
}

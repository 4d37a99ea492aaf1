/** Messages of a subscription that were put aside, why, and publishing them again. */
import { useState } from "preact/hooks";
import { call } from "../api";
import { number, plural, shortName } from "../format";
import { useLoad } from "../load";
import { Badge, Button, Card, Empty, Note, shown } from "../parts/basics";
import { Act } from "../parts/form";
import { MessageCard } from "../parts/message";
import { find, isGenuine, isRedriven, publishRefusal, redrive, type Wanted } from "../reading";
import { setQuery, useQuery } from "../router";
import { visible } from "../text";
import type { Offsets, ReadMessage } from "../wire";
import type { SubscriptionProps } from "./subscriptions";

const AT_ONCE = 25;
const FORGED = "Not what was published: whoever may publish to the dead letter topic can write this";
const GONE = "The message it was is gone, so nobody can say whether it was this";

type Letter = { letter: ReadMessage; genuine: boolean | null; redriven: boolean | null };

/** `source` is the topic they are in. */
export function DeadLetters({ project, name, subscription, source }: SubscriptionProps & { source: string }) {
  const target = shortName(subscription.topic);
  const base = `/projects/${project}/topics/${source}`;
  const topic = `/projects/${project}/topics/${target}`;
  const [before] = useQuery("before");
  // Here, as the button for all goes once nothing is left to publish.
  const [said, setSaid] = useState("");
  const ours: Wanted = ({ attributes }) =>
    attributes?.deadLetterSubscription === `projects/${project}/subscriptions/${name}`;
  const loaded = useLoad(`dead letters of ${base} before ${before}`, async (signal) => {
    const bounds = await call<Offsets>(`${base}:offsets`, { signal });
    const found = await find(base, bounds, Number(before || bounds.max), true, AT_ONCE, ours, signal);
    // Asked once, and not of each letter.
    const refusal = found.messages.length > 0 ? await publishRefusal(topic, signal) : null;
    const looked = async (letter: ReadMessage): Promise<Letter> => ({
      letter,
      genuine: await isGenuine(letter, topic, signal),
      redriven: refusal ? null : await isRedriven(topic, source, letter, signal),
    });
    return { ...found, letters: await Promise.all(found.messages.map(looked)), bounds, refusal };
  });
  const again = async (letters: ReadMessage[]) => {
    // The oldest first, one after the other, as they were published.
    let before = 0;
    for (const letter of letters) {
      if (await isRedriven(topic, source, letter)) before++;
      await redrive(topic, source, letter); // is refused where somebody took its key for another message
    }
    loaded.reload();
    return before === 0
      ? `Published to ${target}.`
      : `${before} of ${letters.length} were published to ${target} before.`;
  };
  const to = (place: number | null) => setQuery({ before: place === null ? null : String(place) });
  return shown(loaded, ({ letters, first, next, bounds, refusal }) => {
    const fresh = refusal
      ? []
      : letters.filter(({ genuine, redriven }) => genuine && !redriven).map(({ letter }) => letter);
    return (
      <>
        <nav class="pager" aria-label="Dead letters">
          <Button label="Newest" disabled={before === ""} onClick={() => to(null)} />
          <Button label="Older" disabled={first <= bounds.min} onClick={() => to(first)} />
          <span class="quiet">
            {plural(letters.length, "dead letter")} in the ids {number(first)} to {number(Math.max(first, next - 1))} of{" "}
            {source}, which begins with {number(bounds.min)}
          </span>
        </nav>
        {letters.length === 0 && first <= bounds.min && (
          <Empty command={`ams dead list ${name} --project ${project}`}>
            Nothing of this subscription is in {source}. In a terminal:
          </Empty>
        )}
        {said && <Note tone="good">{said}</Note>}
        {refusal && (
          <Note tone="warn">
            You cannot publish them again to {target}: {visible(refusal.message)}
          </Note>
        )}
        {fresh.length > 0 && (
          <Card wide>
            <p>
              What is published again goes to {target} as it was; asked twice, it is still published once. The dead
              letter stays where it is.
            </p>
            <Act label={`Publish ${fresh.length} of these again`} act={async () => setSaid(await again(fresh))} />
          </Card>
        )}
        {letters.toReversed().map(({ letter, genuine, redriven }) => (
          <MessageCard key={letter.offset} message={letter} view="auto">
            {redriven && <Badge tone="good">published again</Badge>}
            <Badge tone="bad">
              {visible(`${letter.attributes?.deadLetterStatus} after ${letter.attributes?.deadLetterAttempts}`)}
            </Badge>
            <span>{visible((letter.attributes?.deadLetterReason ?? "").slice(0, 200))}</span>
            {genuine !== true && (
              <Note tone={genuine === null ? "warn" : "bad"}>{genuine === null ? GONE : FORGED}</Note>
            )}
            {genuine !== false && !refusal && <Act label="Publish again" act={() => again([letter])} />}
          </MessageCard>
        ))}
      </>
    );
  });
}

/** The subscriptions of a project, and how far each of those in sight is behind. */
import { useState } from "preact/hooks";
import { put } from "../api";
import { number, shortName, span } from "../format";
import { MOST_WATCHED, useCounts } from "../live";
import { type Action, asking } from "../parts/actions";
import { Badge, linked } from "../parts/basics";
import { field, NAME, tick } from "../parts/form";
import { Resources } from "../parts/resources";
import { type Column, column, timed } from "../parts/table";
import { administers, useUser } from "../rights";
import { go, type PageProps } from "../router";
import type { Counts, Subscription } from "../wire";

/** What the parts of a subscription's page are given. */
export interface SubscriptionProps {
  project: string;
  name: string;
  base: string;
  subscription: Subscription;
  reload: () => void;
  admin: boolean;
}

export function Subscriptions({ params: { project = "" } }: PageProps) {
  const user = useUser();
  const admin = administers(user, project);
  const [sight, setSight] = useState<string[]>([]);
  const { sample } = useCounts(project, [], sight);
  const nobody = `No subscription lists ${user.name}. Ask an administrator of ${project} to put you on its access list.`;
  return (
    <Resources<Subscription>
      title="Subscriptions"
      kind={project}
      path={`/projects/${project}/subscriptions`}
      columns={subscriptionColumns(project, sample?.counts)}
      onSight={(rows) => setSight(rows.slice(0, MOST_WATCHED).map((row) => shortName(row.name)))}
      empty={admin ? "There are no subscriptions yet. Make one here, or in a terminal:" : nobody}
      command={admin ? `ams subs create watering --topic readings --project ${project}` : undefined}
      make={admin && newSubscription(project)}
    />
  );
}

export function subscriptionColumns(project: string, counts: Counts | undefined): Column<Subscription>[] {
  const of = (row: Subscription) => counts?.subscriptions[shortName(row.name)];
  const topic = (row: Subscription) => shortName(row.topic);
  return [
    column("Subscription", (row) => linked(project, "subscriptions", row.name), { by: (row) => shortName(row.name) }),
    column("Topic", (row) => linked(project, "topics", row.topic), { by: topic, wide: true }),
    column("Behind by", (row) => number(of(row)?.lag), { right: true }),
    column("Oldest waits", (row) => span(of(row)?.oldestUnackedSeconds), { right: true }),
    column("Delivery", (row) => delivery(row).map((each) => <Badge key={each}>{each}</Badge>), {
      by: (row) => delivery(row).join(" "),
    }),
    timed("Created", (row) => row.createdOn, { wide: true }),
  ];
}

function delivery({ pushConfig: push, type, detached }: Subscription): string[] {
  const unverified = push.type === "http_endpoint" && !push.verified;
  const all = [push.type ? "push" : "pull", type, detached && "detached", unverified && "not verified"];
  return all.filter((each): each is string => Boolean(each));
}

const SECONDS = field("seconds", "Seconds to acknowledge in", { type: "number", value: "10", min: 0 });
const HINT = "Of a parallel one; empty: all messages";
const FILTER = field("filter", "Filter", { placeholder: 'attributes.lang = "en"', hint: HINT });
const PARALLEL = tick("parallel", "Parallel: each message is acknowledged by itself");

/** Makes a subscription of a topic, or of one that is chosen. */
export function newSubscription(project: string, of?: string): Action {
  const from = `/projects/${project}/topics`;
  const chosen = field("topic", "Topic", { required: true, options: [["", "Choose a topic"]], from });
  const fields = [NAME, ...(of ? [] : [chosen]), SECONDS, FILTER, PARALLEL];
  return asking("New subscription", fields, async ({ name = "", topic, seconds, filter, parallel }) => {
    await put(`/projects/${project}/subscriptions/${encodeURIComponent(name)}`, {
      topic: topic ?? `projects/${project}/topics/${of}`,
      ackDeadlineSeconds: Number(seconds),
      filter: filter || undefined,
      type: parallel ? "parallel" : undefined,
    });
    go(["p", project, "subscriptions", name]);
  });
}

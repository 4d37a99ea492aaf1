/** The subscriptions of a project, and how far each of those in sight is behind. */
import { useState } from "preact/hooks";
import { call } from "../api";
import { number, shortName, span } from "../format";
import { useCounts } from "../live";
import { useGet } from "../load";
import { Badge, Empty, Page, Shown } from "../parts/basics";
import { Opens } from "../parts/dialog";
import { Check, type Choice, Field, Form, type Values } from "../parts/form";
import { type Column, column, Table, timed } from "../parts/table";
import { administers, useUser } from "../rights";
import { go } from "../router";
import type { Counts, Subscription, Topic } from "../types";
import type { Params } from ".";
import { linked, MOST_WATCHED, namesOf } from "./topics";

export function Subscriptions(props: { params: Params }) {
  const project = props.params.project ?? "";
  const user = useUser();
  const loaded = useGet<{ subscriptions: Subscription[] }>(`/projects/${project}/subscriptions`);
  const [sight, setSight] = useState<string[]>([]);
  const { sample } = useCounts(project, [], sight);
  const admin = administers(user, project);
  return (
    <Page
      title="Subscriptions"
      kind={project}
      actions={
        admin && (
          <Opens label="New subscription" primary>
            {() => <NewSubscription project={project} />}
          </Opens>
        )
      }>
      <Shown of={loaded}>
        {({ subscriptions }) => (
          <Table
            label={`Subscriptions of ${project}`}
            rows={subscriptions}
            columns={subscriptionColumns(project, sample?.counts)}
            rowKey={(row) => row.name}
            text={(row) => `${shortName(row.name)} ${shortName(row.topic)}`}
            onSight={(rows) => setSight(rows.slice(0, MOST_WATCHED).map((row) => shortName(row.name)))}
            empty={
              admin ? (
                <Empty command={`ams subs create watering --topic readings --project ${project}`}>
                  There are no subscriptions yet. Make one here, or in a terminal:
                </Empty>
              ) : (
                <Empty>
                  No subscription lists {user.name}. Ask an administrator of {project} to put you on its access list.
                </Empty>
              )
            }
          />
        )}
      </Shown>
    </Page>
  );
}

export function subscriptionColumns(project: string, counts: Counts | undefined): Column<Subscription>[] {
  const of = (row: Subscription) => counts?.subscriptions[shortName(row.name)];
  return [
    column("Subscription", (row) => linked(project, "subscriptions", row.name), { by: (row) => row.name }),
    column("Topic", (row) => linked(project, "topics", row.topic), { by: (row) => row.topic, wide: true }),
    column("Behind by", (row) => number(of(row)?.lag), { right: true }),
    column("Oldest waits", (row) => span(of(row)?.oldestUnackedSeconds), { right: true }),
    column("Delivery", (row) => <Delivery of={row} />, { by: delivery }),
    timed("Created", (row) => row.createdOn, { wide: true }),
  ];
}

function delivery(row: Subscription): string {
  return `${row.pushConfig.type ? "push" : "pull"} ${row.type ?? "ordered"}`;
}

function Delivery(props: { of: Subscription }) {
  const { pushConfig, type, detached } = props.of;
  return (
    <>
      <Badge>{pushConfig.type ? "push" : "pull"}</Badge>
      {type && <Badge>{type}</Badge>}
      {detached && <Badge tone="warn">detached</Badge>}
      {pushConfig.type === "http_endpoint" && !pushConfig.verified && <Badge tone="warn">not verified</Badge>}
    </>
  );
}

export function NewSubscription({ project, topic }: { project: string; topic?: string }) {
  const topics = useGet<{ topics: Topic[] }>(topic ? null : `/projects/${project}/topics`);
  const make = async ({ name = "", of, seconds, parallel }: Values) => {
    const body = {
      topic: topic ? `projects/${project}/topics/${topic}` : of,
      ackDeadlineSeconds: Number(seconds),
      ...(parallel ? { type: "parallel" } : {}),
    };
    await call(`/projects/${project}/subscriptions/${encodeURIComponent(name)}`, { method: "PUT", body });
    go(["p", project, "subscriptions", name]);
  };
  const choices = namesOf(topics.data?.topics).map(([long, short]): Choice => [long.slice(1), short]);
  return (
    <Form button="Make it" onSubmit={make}>
      <Field name="name" label="Name" required autofocus hint="Letters, digits, - and _" />
      {!topic && <Field name="of" label="Topic" required options={[["", "Choose a topic"], ...choices]} />}
      <Field name="seconds" label="Seconds to acknowledge in" type="number" value="10" min={0} />
      <Check name="parallel" label="Parallel: each message is acknowledged by itself" />
    </Form>
  );
}

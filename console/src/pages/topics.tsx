/** The topics of a project, with what comes in to those in sight. */
import { useState } from "preact/hooks";
import { call } from "../api";
import { number, rate, shortName, span } from "../format";
import { useCounts } from "../live";
import { useGet } from "../load";
import { Empty, Link, Page, Shown } from "../parts/basics";
import { Opens } from "../parts/dialog";
import { type Choice, Field, Form, type Values } from "../parts/form";
import { type Column, column, Table, timed, valued } from "../parts/table";
import { administers, useUser } from "../rights";
import { go } from "../router";
import type { Schema, Topic } from "../types";
import type { Params } from ".";

export const MOST_WATCHED = 100;

export function Topics(props: { params: Params }) {
  const project = props.params.project ?? "";
  const user = useUser();
  const loaded = useGet<{ topics: Topic[] }>(`/projects/${project}/topics`);
  const [sight, setSight] = useState<string[]>([]);
  const { sample } = useCounts(project, sight, []);
  const counted = (row: Topic) => sample?.counts.topics[shortName(row.name)];
  const columns: Column<Topic>[] = [
    column("Topic", (row) => linked(project, "topics", row.name), { by: (row) => row.name }),
    column("Messages ever", (row) => number(counted(row)?.messages), { right: true }),
    column("Now", (row) => rate(sample?.rates[shortName(row.name)]), { right: true }),
    valued("Schema", (row) => shortName(row.schema), { wide: true }),
    column("Kept for", (row) => (row.retentionSeconds ? span(row.retentionSeconds) : "as the project"), {
      by: (row) => row.retentionSeconds ?? 0,
      wide: true,
    }),
    timed("Created", (row) => row.created_on, { wide: true }),
  ];
  const admin = administers(user, project);
  return (
    <Page
      title="Topics"
      kind={project}
      actions={
        admin && (
          <Opens label="New topic" primary>
            {() => <NewTopic project={project} />}
          </Opens>
        )
      }>
      <Shown of={loaded}>
        {({ topics }) => (
          <Table
            label={`Topics of ${project}`}
            rows={topics}
            columns={columns}
            rowKey={(row) => row.name}
            text={(row) => `${shortName(row.name)} ${shortName(row.schema)}`}
            onSight={(rows) => setSight(rows.slice(0, MOST_WATCHED).map((row) => shortName(row.name)))}
            empty={
              admin ? (
                <Empty command={`ams topics create readings --project ${project}`}>
                  There are no topics yet. Make one here, or in a terminal:
                </Empty>
              ) : (
                <Empty>
                  No topic lists {user.name}. Ask an administrator of {project} to put you on its access list.
                </Empty>
              )
            }
          />
        )}
      </Shown>
    </Page>
  );
}

function NewTopic({ project }: { project: string }) {
  const schemas = useGet<{ schemas: Schema[] }>(`/projects/${project}/schemas`);
  const make = async ({ name = "", schema }: Values) => {
    const body = schema ? { schema } : {};
    await call(`/projects/${project}/topics/${encodeURIComponent(name)}`, { method: "PUT", body });
    go(["p", project, "topics", name]);
  };
  return (
    <Form button="Make it" onSubmit={make}>
      <Field name="name" label="Name" required autofocus hint="Letters, digits, - and _" />
      <Field
        name="schema"
        label="Schema"
        options={[["", "none: it takes any message"], ...namesOf(schemas.data?.schemas)]}
      />
    </Form>
  );
}

/** Things with a long name as choices of a form. */
export function namesOf(all: { name: string }[] | undefined): Choice[] {
  return (all ?? []).map((each) => [each.name, shortName(each.name)]);
}

/** Something of a project by its short name, as a link to its page. */
export function linked(project: string, kind: string, reference: string) {
  const name = shortName(reference);
  return <Link to={["p", project, kind, name]}>{name}</Link>;
}

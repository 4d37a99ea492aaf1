/** The topics of a project, with what comes in to those in sight. */
import { useState } from "preact/hooks";
import { put } from "../api";
import { number, rate, shortName, span } from "../format";
import { MOST_WATCHED, useCounts } from "../live";
import { asking } from "../parts/actions";
import { linked } from "../parts/basics";
import { type Choice, field, NAME, type Values } from "../parts/form";
import { Resources } from "../parts/resources";
import { type Column, column, timed, valued } from "../parts/table";
import { administers, useUser } from "../rights";
import { go, type PageProps } from "../router";
import type { Topic } from "../wire";

export function Topics({ params: { project = "" } }: PageProps) {
  const user = useUser();
  const admin = administers(user, project);
  const [sight, setSight] = useState<string[]>([]);
  const { sample } = useCounts(project, sight, []);
  const kept = (row: Topic) => row.retentionSeconds ?? 0;
  const columns: Column<Topic>[] = [
    column("Topic", (row) => linked(project, "topics", row.name), { by: (row) => shortName(row.name) }),
    column("Messages ever", (row) => number(sample?.counts.topics[shortName(row.name)]?.messages), { right: true }),
    column("Now", (row) => rate(sample?.rates[shortName(row.name)]), { right: true }),
    valued("Schema", (row) => shortName(row.schema), { wide: true }),
    column("Kept for", (row) => (kept(row) ? span(kept(row)) : "as the project"), { by: kept, wide: true }),
    timed("Created", (row) => row.created_on, { wide: true }),
  ];
  const make = async ({ name = "", schema }: Values) => {
    await put(`/projects/${project}/topics/${encodeURIComponent(name)}`, schema ? { schema } : {});
    go(["p", project, "topics", name]);
  };
  const any: Choice[] = [["", "none: it takes any message"]];
  const schema = field("schema", "Schema", { options: any, from: `/projects/${project}/schemas` });
  const nobody = `No topic lists ${user.name}. Ask an administrator of ${project} to put you on its access list.`;
  return (
    <Resources<Topic>
      title="Topics"
      kind={project}
      path={`/projects/${project}/topics`}
      columns={columns}
      onSight={(rows) => setSight(rows.slice(0, MOST_WATCHED).map((row) => shortName(row.name)))}
      empty={admin ? "There are no topics yet. Make one here, or in a terminal:" : nobody}
      command={admin ? `ams topics create readings --project ${project}` : undefined}
      make={admin && asking("New topic", [NAME, schema], make)}
    />
  );
}

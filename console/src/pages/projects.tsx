/** All projects a user has to do with. */
import { asShown, named, post, put } from "../api";
import { span } from "../format";
import { type Action, asking } from "../parts/actions";
import { Badge, Link, Page } from "../parts/basics";
import { field, NAME, type Values } from "../parts/form";
import { Resources } from "../parts/resources";
import { type Column, column, nameOf, Table, timed, valued } from "../parts/table";
import { isServiceAdmin, useUser } from "../rights";
import { go } from "../router";
import type { Membership, Project } from "../wire";

export function Projects() {
  const user = useUser();
  if (isServiceAdmin(user)) return <AllProjects />;
  return (
    <Page title="Projects">
      <Table
        label="Projects"
        rows={user.projects ?? []}
        columns={OWN}
        rowKey={(row) => row.project}
        empty={`${user.name} has no role in any project. Ask an administrator of a project for one.`}
      />
    </Page>
  );
}

const link = (project: string) => <Link to={["p", project]}>{project}</Link>;
const OWN: Column<Membership>[] = [
  column("Project", (row) => link(row.project), { by: (row) => row.project }),
  column("Your roles", (row) => row.roles.map((role) => <Badge key={role}>{role}</Badge>)),
];
const kept = (row: Project) => row.retentionSeconds ?? 0;
const ALL: Column<Project>[] = [
  column<Project>("Project", (row) => link(row.name), { by: nameOf }),
  valued("What it is for", (row) => row.description?.slice(0, 200), { wide: true }),
  column("Messages kept for", (row) => (kept(row) ? span(kept(row)) : "as the service"), { by: kept, wide: true }),
  timed("Created", (row) => row.created_on, { wide: true }),
];
const PURPOSE = field("description", "What it is for");
const HINT = "0: as the service says";
const KEPT = field("seconds", "Seconds that messages are kept", { type: "number", min: 0, hint: HINT });

async function make({ name = "", description }: Values) {
  await post(named("/projects", name), { description });
  go(["p", name]);
}

function change(row: Project): Action {
  const value = String(kept(row));
  const fields = [
    { ...NAME, value: row.name },
    { ...PURPOSE, value: row.description ?? "" },
    { ...KEPT, value },
  ];
  return asking("Change", fields, async ({ name = "", description, seconds }) => {
    const path = `/projects/${row.name}`;
    const isSame = (now: Project) => now.description === row.description && kept(now) === kept(row);
    await put(path, { name, description }, await asShown(path, isSame));
    if (seconds === value) return;
    const renamed = named("/projects", name);
    const read = await asShown<Project>(renamed, (now) => kept(now) === kept(row));
    await post(`${renamed}:modifyRetention`, { retentionSeconds: Number(seconds) }, read);
  });
}

function AllProjects() {
  return (
    <Resources<Project>
      title="Projects"
      path="/projects"
      columns={ALL}
      empty="There are no projects yet. Make one here, or in a terminal:"
      command="ams projects create garden"
      make={asking("New project", [NAME, PURPOSE], make)}
      actions={(row) => [change(row)]}
      removed={["Delete", "All its topics, messages, subscriptions and schemas are lost for good."]}
    />
  );
}

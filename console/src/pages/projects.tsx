/** All projects a user has to do with. */
import { call } from "../api";
import { span } from "../format";
import { Badge, Link, Page } from "../parts/basics";
import { type Asked, Resources } from "../parts/resources";
import { type Column, column, Table, timed } from "../parts/table";
import { isServiceAdmin, rolesIn, useUser } from "../rights";
import { go } from "../router";
import { visible } from "../text";
import type { Membership, Project } from "../types";

export function Projects() {
  const user = useUser();
  return isServiceAdmin(user) ? <AllProjects /> : <OwnProjects memberships={user.projects ?? []} />;
}

function OwnProjects({ memberships }: { memberships: Membership[] }) {
  const user = useUser();
  return (
    <Page title="Projects">
      <Table
        label="Projects"
        rows={memberships}
        columns={[
          column<Membership>("Project", (row) => <Link to={["p", row.project]}>{row.project}</Link>, {
            by: (row) => row.project,
          }),
          column<Membership>("Your roles", (row) =>
            rolesIn(user, row.project).map((role) => <Badge key={role}>{role}</Badge>),
          ),
        ]}
        rowKey={(row) => row.project}
        text={(row) => row.project}
        empty={<p>{user.name} has no role in any project. Ask an administrator of a project for one.</p>}
      />
    </Page>
  );
}

const COLUMNS: Column<Project>[] = [
  column("Project", (row) => <Link to={["p", row.name]}>{row.name}</Link>, { by: (row) => row.name }),
  column("What it is for", (row) => visible((row.description ?? "").slice(0, 200)), { wide: true }),
  column("Messages kept for", (row) => (row.retentionSeconds ? span(row.retentionSeconds) : "as the service"), {
    wide: true,
  }),
  timed("Created", (row) => row.created_on, { wide: true }),
];

function AllProjects() {
  const purpose: Asked = { name: "description", label: "What it is for" };
  return (
    <Resources<Project>
      title="Projects"
      path="/projects"
      rows={({ projects }: { projects: Project[] }) => projects}
      columns={COLUMNS}
      rowKey={(row) => row.name}
      text={(row) => `${row.name} ${row.description ?? ""}`}
      empty="There are no projects yet. Make one here, or in a terminal:"
      command="ams projects create garden"
      make={{
        label: "New project",
        fields: [
          { name: "name", label: "Name", required: true, autofocus: true, hint: "Letters, digits, - and _" },
          purpose,
        ],
        run: async ({ name = "", description }) => {
          await call(`/projects/${name}`, { method: "POST", body: { description } });
          go(["p", name]);
        },
      }}
      actions={(row) => [
        {
          label: "Change",
          fields: [
            { name: "name", label: "Name", value: row.name, required: true },
            { ...purpose, value: row.description ?? "" },
            {
              name: "seconds",
              label: "Seconds that messages are kept",
              type: "number",
              min: 0,
              value: String(row.retentionSeconds ?? 0),
              hint: "0: as the service says",
            },
          ],
          run: async ({ name = "", description, seconds }) => {
            await call(`/projects/${row.name}`, { method: "PUT", body: { name, description } });
            if (Number(seconds) !== (row.retentionSeconds ?? 0))
              await call(`/projects/${name}:modifyRetention`, {
                method: "POST",
                body: { retentionSeconds: Number(seconds) },
              });
          },
        },
        {
          label: "Delete",
          typed: [row.name, "All its topics, messages, subscriptions and schemas are lost for good."],
          run: () => call(`/projects/${row.name}`, { method: "DELETE" }),
        },
      ]}
    />
  );
}

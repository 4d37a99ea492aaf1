/** All projects a user has to do with. */
import { call } from "../api";
import { useLoad } from "../load";
import { Badge, Empty, Link, Page, Shown, Time } from "../parts/basics";
import { Opens } from "../parts/dialog";
import { Field, Form, type Values } from "../parts/form";
import { type Column, Table } from "../parts/table";
import { isServiceAdmin, rolesIn, useUser } from "../rights";
import { go } from "../router";
import { visible } from "../text";
import type { Project } from "../types";

export function Projects() {
  const user = useUser();
  const all = isServiceAdmin(user);
  const loaded = useLoad<{ projects: Partial<Project>[] }>("projects", (signal) =>
    all
      ? call("/projects", { signal })
      : Promise.resolve({ projects: (user.projects ?? []).map((each) => ({ name: each.project })) }),
  );
  const columns: Column<Partial<Project>>[] = [
    {
      id: "name",
      title: "Project",
      by: (row) => row.name ?? "",
      cell: (row) => <Link to={["p", row.name ?? ""]}>{row.name}</Link>,
    },
    all
      ? {
          id: "description",
          title: "What it is for",
          wide: true,
          cell: (row) => visible((row.description ?? "").slice(0, 200)),
        }
      : {
          id: "roles",
          title: "Your roles",
          cell: (row) => rolesIn(user, row.name ?? "").map((role) => <Badge key={role}>{role}</Badge>),
        },
    ...(all
      ? [
          {
            id: "created",
            title: "Created",
            wide: true,
            by: (row: Partial<Project>) => row.created_on ?? "",
            cell: (row: Partial<Project>) => <Time at={row.created_on} />,
          },
        ]
      : []),
  ];
  return (
    <Page
      title="Projects"
      actions={
        all && (
          <Opens label="New project" primary>
            {() => <NewProject />}
          </Opens>
        )
      }>
      <Shown of={loaded}>
        {({ projects }) => (
          <Table
            label="Projects"
            rows={projects}
            columns={columns}
            rowKey={(row) => row.name ?? ""}
            text={(row) => `${row.name} ${row.description ?? ""}`}
            empty={
              all ? (
                <Empty command="ams projects create garden">
                  There are no projects yet. Make one here, or in a terminal:
                </Empty>
              ) : (
                <Empty>{user.name} has no role in any project. Ask an administrator of a project for one.</Empty>
              )
            }
          />
        )}
      </Shown>
    </Page>
  );
}

async function makeProject({ name = "", description }: Values): Promise<void> {
  await call(`/projects/${encodeURIComponent(name)}`, { method: "POST", body: { description } });
  go(["p", name]);
}

function NewProject() {
  return (
    <Form button="Make it" onSubmit={makeProject}>
      <Field name="name" label="Name" required autofocus hint="Letters, digits, - and _" />
      <Field name="description" label="What it is for" />
    </Form>
  );
}

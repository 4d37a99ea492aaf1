/** Who uses the service: members of a project, users with their tokens and identities, and who asks to become one. */
import { post, put } from "../api";
import { type Action, ticked, ticks } from "../parts/actions";
import { Badge, type Fact, Facts, Link, Page, Time } from "../parts/basics";
import { type Asked, type Choice, type FieldProps, NAME, type Values } from "../parts/form";
import { Resource, Resources, removal } from "../parts/resources";
import { column, nameOf, timed, valued } from "../parts/table";
import { isServiceAdmin, rolesIn, useUser } from "../rights";
import type { PageProps } from "../router";
import { visible } from "../text";
import type { Binding, Registration, Right, Token, User } from "../wire";

const ROLES = ["project_admin", "publisher", "consumer"];
const SERVICE_ROLES = ["service_admin", "admin_viewer", "metrics_viewer", "push_worker"];
const EMAIL: FieldProps = { name: "email", label: "Mail address", type: "email" };

function badges(names: string[]) {
  return names.map((name) => <Badge key={name}>{name}</Badge>);
}

function projectsOf(user: User): string[] {
  return (user.projects ?? []).map((each) => each.project);
}

function badged(title: string, of: (row: User) => string[], look = {}) {
  return column<User>(title, (row) => badges(of(row)), { by: (row) => of(row).join(), ...look });
}

const LINKED = column<User>("User", (row) => <Link to={["users", row.name]}>{row.name}</Link>, { by: nameOf });
const MAIL = valued<User>("Mail", (row) => row.email, { wide: true });
const MADE = timed<User>("Created", (row) => row.created_on, { wide: true });

export function Members({ params: { project = "" } }: PageProps) {
  const path = `/projects/${project}/members`;
  const memberships = (values: Values) => ({ projects: [{ project, roles: ticked(values, ROLES) }] });
  const all = isServiceAdmin(useUser());
  return (
    <Resources<User>
      title="Members"
      kind={project}
      path={`${path}?details=true`}
      of="users"
      columns={[
        all ? LINKED : valued("User", nameOf),
        badged("Roles here", (row) => rolesIn(row, project)),
        MAIL,
        MADE,
      ]}
      empty="The project has no members yet. Add one here, or in a terminal:"
      command={`ams members create sensor --role publisher --project ${project}`}
      make={[
        {
          label: "New user",
          fields: [NAME, EMAIL, ...ticks(ROLES, ["publisher"])],
          run: ({ name = "", email, ...rest }) => post(`${path}/${name}`, { email, ...memberships(rest) }),
          gives: "token",
        },
        {
          label: "Add a user there is",
          fields: [NAME, ...ticks(ROLES, ["publisher"])],
          run: ({ name = "", ...rest }) => post(`${path}/${name}:add`, { roles: ticked(rest, ROLES) }),
        },
      ]}
      actions={(row) => [
        {
          label: "Roles",
          fields: ticks(ROLES, rolesIn(row, project)),
          run: (values) => put(`${path}/${row.name}`, memberships(values)),
        },
        {
          label: "Remove",
          typed: [row.name, `${row.name} can do nothing in ${project} any more; the user stays.`],
          run: () => post(`${path}/${row.name}:remove`),
        },
      ]}
    />
  );
}

export function Users() {
  return (
    <Resources<User>
      title="Users"
      path="/users?details=true"
      of="users"
      columns={[
        LINKED,
        badged("Roles of the service", (row) => row.service_roles),
        badged("Projects", projectsOf, { wide: true }),
        MAIL,
        MADE,
      ]}
      empty="There are no users yet. Make one here, or in a terminal:"
      command="ams users create sensor"
      make={{
        label: "New user",
        fields: [NAME, EMAIL, ...ticks(SERVICE_ROLES)],
        run: ({ name = "", email, ...rest }) =>
          post(`/users/${name}`, { email, service_roles: ticked(rest, SERVICE_ROLES) }),
        gives: "token",
      }}
    />
  );
}

export function UserPage({ params: { user = "" } }: PageProps) {
  const path = `/users/${user}`;
  const actions = (row: User): Action[] => [
    {
      label: "Change",
      fields: [
        { ...EMAIL, value: row.email },
        { name: "description", label: "What it is for", value: row.description },
        ...ticks(SERVICE_ROLES, row.service_roles),
      ],
      run: ({ email, description, ...rest }) =>
        put(path, { email, description, service_roles: ticked(rest, SERVICE_ROLES) }),
    },
    {
      label: "New token",
      typed: [user, "The token of this user is dead at once; named tokens live on."],
      run: () => post(`${path}:refreshToken`),
      gives: "token",
    },
  ];
  const facts = (row: User): Fact[] => [
    ["Roles of the service", badges(row.service_roles)],
    ["Projects", (row.projects ?? []).map(({ project, roles }) => `${project}: ${roles.join(", ")}`).join("; ")],
    ["Mail", row.email],
    ["What it is for", row.description],
    ["UUID", row.uuid],
    ["Created", <Time key="c" at={row.created_on} />],
  ];
  return (
    <Resource<User>
      title={user}
      kind="User"
      path={path}
      tabs={(row) => [
        ["about", "About", <Facts key="a" rows={facts(row)} />],
        ["tokens", "Named tokens", <Tokens key="t" user={user} />],
        ["bindings", "Identities", <Bindings key="b" user={user} />],
      ]}
      actions={actions}
      deleted={["The user goes with its tokens, and from all projects and access lists.", ["users"]]}
    />
  );
}

export function OwnTokens() {
  return (
    <Page title="Your tokens">
      <Tokens user={useUser().name} />
    </Page>
  );
}

/** Days that a token lives. */
const LIVES: Choice[] = [
  ["1", "a day"],
  ["30", "30 days"],
  ["365", "a year"],
  ["", "until it is revoked"],
];
const NEW_TOKEN: Asked[] = [
  NAME,
  { name: "days", label: "Good for", options: LIVES },
  {
    name: "rights",
    label: "Rights",
    rows: 3,
    placeholder: "topics:publish projects/P/topics/T",
    hint: "An action and a resource a line; none: all that the user may",
  },
];

function Tokens({ user }: { user: string }) {
  const path = `/users/${user}/tokens`;
  const make = async ({ name, days, rights = "" }: Values) => {
    const wanted = rightsOf(rights);
    const expires_in = days ? Number(days) * 86_400 : undefined;
    return post(`${path}/${name}`, { expires_in, rights: wanted.length > 0 ? wanted : undefined });
  };
  const shown = (row: Token) =>
    row.rights?.map(({ action, resource }) => `${action} on ${resource}`).join(", ") ?? "all of the user's";
  return (
    <Resources<Token>
      inside
      title="Named tokens"
      path={path}
      of="tokens"
      columns={[
        valued("Token", nameOf),
        valued("Good for", shown),
        column("Last used", (row) => <Time at={row.last_used} age />, { wide: true }),
        timed("Ends", (row) => row.expires_on),
      ]}
      empty="There are no named tokens: one for each program can be revoked without the others. In a terminal:"
      command="ams token create sensor --expires-in 365d"
      make={{ label: "New token", fields: NEW_TOKEN, run: make, gives: "token" }}
      removed={["Revoke", "Programs with this token are refused from now on."]}
    />
  );
}

/** `ACTION RESOURCE` lines; raises an `Error` for a line that is neither empty nor such. */
export function rightsOf(text: string): Right[] {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  return lines.map((line) => {
    const [action, resource, more] = line.trim().split(/\s+/);
    if (!action || !resource || more) throw new Error(`A right is an action and a resource; this is not: ${line}`);
    return { action, resource };
  });
}

function Bindings({ user }: { user: string }) {
  const path = `/users/${user}/bindings`;
  return (
    <Resources<Binding>
      inside
      title="Identities"
      path={path}
      of="bindings"
      columns={[
        valued("Name", nameOf),
        valued("Issuer", (row) => row.issuer, { wide: true }),
        valued("Subject", (row) => row.subject),
        timed("Created", (row) => row.created_on, { wide: true }),
      ]}
      empty="This user logs in by tokens of this service alone."
      make={
        isServiceAdmin(useUser()) && {
          label: "New identity",
          fields: [
            NAME,
            { name: "issuer", label: "Issuer", type: "url", required: true, hint: "As its tokens say it in iss" },
            { name: "subject", label: "Subject", required: true, hint: "As its tokens say it in sub" },
          ],
          run: ({ name = "", ...identity }) => post(`${path}/${name}`, identity),
        }
      }
      removed={["Remove", "Who this is cannot log in as this user any more."]}
    />
  );
}

export function Registrations() {
  const who = (row: Registration) =>
    [row.first_name, row.last_name, row.organization, row.email].filter(Boolean).join(", ");
  const standing = ({ status, decline_comment: why }: Registration) => (
    <>
      <Badge tone={status === "pending" ? "warn" : "calm"}>{status}</Badge> {visible(why ?? "")}
    </>
  );
  const decide = (row: Registration): Action[] => {
    const path = `/registrations/${row.uuid}`;
    const kept = "The request is forgotten; a user it was accepted for stays.";
    const forget = removal("Delete", row.name, kept, path);
    if (row.status !== "pending") return [forget];
    const why = { name: "comment", label: "Why", rows: 3 };
    return [
      { label: "Accept", run: () => post(`${path}:accept`), gives: "token" },
      { label: "Decline", fields: [why], run: (values) => post(`${path}:decline`, values) },
      forget,
    ];
  };
  return (
    <Resources<Registration>
      title="Registrations"
      path="/registrations"
      of="user_registrations"
      sort="-asked"
      rowKey={(row) => row.uuid}
      columns={[
        valued("Name", nameOf),
        valued("Who", who, { wide: true }),
        valued("For", (row) => row.description, { wide: true }),
        column("Status", standing, { by: (row) => row.status ?? "" }),
        timed("Asked", (row) => row.registered_at, { wide: true }),
      ]}
      empty="Nobody asks to become a user."
      actions={decide}
    />
  );
}

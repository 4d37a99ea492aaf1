/** Who uses the service: members of a project, users with their tokens and identities, and who asks to become one. */
import { asShown, named, post, put } from "../api";
import { type Action, asking, confirmed, removal, ticked, ticks } from "../parts/actions";
import { Badge, type Fact, Facts, Link, Page, Time } from "../parts/basics";
import { field, NAME, type Values } from "../parts/form";
import { Resource, Resources } from "../parts/resources";
import { column, nameOf, timed, valued } from "../parts/table";
import { isServiceAdmin, rolesIn, useUser } from "../rights";
import type { PageProps } from "../router";
import { visible } from "../text";
import type { Binding, Registration, Right, Token, User } from "../wire";

const ROLES = ["project_admin", "publisher", "consumer"];
const SERVICE_ROLES = ["service_admin", "admin_viewer", "metrics_viewer", "push_worker"];
const EMAIL = field("email", "Mail address", { type: "email" });

function badges(names: string[]) {
  return names.map((name) => <Badge key={name}>{name}</Badge>);
}

function badged(title: string, of: (row: User) => string[], look = {}) {
  return column<User>(title, (row) => badges(of(row)), { by: (row) => of(row).join(), ...look });
}

const LINKED = column<User>("User", (row) => <Link to={["users", row.name]}>{row.name}</Link>, { by: nameOf });
const MAIL = valued<User>("Mail", (row) => row.email, { wide: true });
const MADE = timed<User>("Created", (row) => row.created_on, { wide: true });

const DEAD = "The token of this user is dead at once; named tokens live on.";

export function Members({ params: { project = "" } }: PageProps) {
  const path = `/projects/${project}/members`;
  const roles = ticks(ROLES, ["publisher"]);
  const memberships = (values: Values) => ({ projects: [{ project, roles: ticked(values, ROLES) }] });
  const make = ({ name, email, ...rest }: Values) => post(named(path, name), { email, ...memberships(rest) });
  const add = ({ name, ...rest }: Values) => post(`${named(path, name)}:add`, { roles: ticked(rest, ROLES) });
  const actions = (row: User) => {
    const own = `${path}/${row.name}`;
    const shown = (row: User) =>
      asShown<User>(own, (now) => rolesIn(now, project).join() === rolesIn(row, project).join());
    const lost = `${row.name} can do nothing in ${project} any more; the user stays.`;
    return [
      asking("Roles", ticks(ROLES, rolesIn(row, project)), async (to) => put(own, memberships(to), await shown(row))),
      confirmed("New token", row.name, DEAD, () => post(`${own}:refreshToken`), "token"),
      confirmed("Remove", row.name, lost, () => post(`${own}:remove`)),
    ];
  };
  const who = isServiceAdmin(useUser()) ? LINKED : valued<User>("User", nameOf);
  return (
    <Resources<User>
      title="Members"
      kind={project}
      path={`${path}?details=true`}
      of="users"
      columns={[who, badged("Roles here", (row) => rolesIn(row, project)), MAIL, MADE]}
      empty="The project has no members yet. Add one here, or in a terminal:"
      command={`ams members create sensor --role publisher --project ${project}`}
      make={[
        asking("New user", [NAME, EMAIL, ...roles], make, "token"),
        asking("Add a user there is", [NAME, ...roles], add),
      ]}
      actions={actions}
    />
  );
}

export function Users() {
  const make = ({ name, email, ...rest }: Values) =>
    post(named("/users", name), { email, service_roles: ticked(rest, SERVICE_ROLES) });
  return (
    <Resources<User>
      title="Users"
      path="/users?details=true"
      columns={[
        LINKED,
        badged("Roles of the service", (row) => row.service_roles),
        badged("Projects", (row) => (row.projects ?? []).map(({ project }) => project), { wide: true }),
        MAIL,
        MADE,
      ]}
      empty="There are no users yet. Make one here, or in a terminal:"
      command="ams users create sensor"
      make={asking("New user", [NAME, EMAIL, ...ticks(SERVICE_ROLES)], make, "token")}
    />
  );
}

export function UserPage({ params: { user = "" } }: PageProps) {
  const path = `/users/${user}`;
  const change =
    (row: User) =>
    ({ email, description, ...rest }: Values) =>
      put(path, { email, description, service_roles: ticked(rest, SERVICE_ROLES) }, row);
  const fields = (row: User) => [
    { ...EMAIL, value: row.email },
    field("description", "What it is for", { value: row.description }),
    ...ticks(SERVICE_ROLES, row.service_roles),
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
      actions={(row) => [
        asking("Change", fields(row), change(row)),
        confirmed("New token", user, DEAD, () => post(`${path}:refreshToken`), "token"),
      ]}
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

const DAYS = { 1: "a day", 30: "30 days", 365: "a year", "": "until it is revoked" };
const RIGHTS = "An action and a resource a line; none: all that the user may";
const NEW_TOKEN = [
  NAME,
  field("days", "Good for", { options: DAYS }),
  field("rights", "Rights", { rows: 3, placeholder: "topics:publish projects/P/topics/T", hint: RIGHTS }),
];

function Tokens({ user }: { user: string }) {
  const path = `/users/${user}/tokens`;
  const make = async ({ name, days, rights = "" }: Values) => {
    const wanted = rightsOf(rights);
    const expires_in = days ? Number(days) * 86_400 : undefined;
    return post(named(path, name), { expires_in, rights: wanted.length > 0 ? wanted : undefined });
  };
  const goodFor = ({ rights }: Token) =>
    rights?.map(({ action, resource }) => `${action} on ${resource}`).join(", ") ?? "all of the user's";
  return (
    <Resources<Token>
      inside
      title="Named tokens"
      path={path}
      columns={[
        valued("Token", nameOf),
        valued("Good for", goodFor),
        column("Last used", (row) => <Time at={row.last_used} age />, { wide: true }),
        timed("Ends", (row) => row.expires_on),
      ]}
      empty="There are no named tokens: one for each program can be revoked without the others. In a terminal:"
      command="ams token create sensor --expires-in 365d"
      make={asking("New token", NEW_TOKEN, make, "token")}
      removed={["Revoke", "Programs with this token are refused from now on."]}
    />
  );
}

/** `ACTION RESOURCE` lines; raises an `Error` for a line that is neither empty nor such. */
export function rightsOf(text: string): Right[] {
  return (text.match(/.*\S.*/g) ?? []).map((line) => {
    const [action, resource, more] = line.trim().split(/\s+/);
    if (!action || !resource || more) throw new Error(`A right is an action and a resource; this is not: ${line}`);
    return { action, resource };
  });
}

const NEW_IDENTITY = [
  NAME,
  field("issuer", "Issuer", { type: "url", required: true, hint: "As its tokens say it in iss" }),
  field("subject", "Subject", { required: true, hint: "As its tokens say it in sub" }),
];

function Bindings({ user }: { user: string }) {
  const path = `/users/${user}/bindings`;
  return (
    <Resources<Binding>
      inside
      title="Identities"
      path={path}
      columns={[
        valued("Name", nameOf),
        valued("Issuer", (row) => row.issuer, { wide: true }),
        valued("Subject", (row) => row.subject),
        timed("Created", (row) => row.created_on, { wide: true }),
      ]}
      empty="This user logs in by tokens of this service alone."
      make={asking("New identity", NEW_IDENTITY, ({ name, ...identity }) => post(named(path, name), identity))}
      removed={["Remove", "Who this is cannot log in as this user any more."]}
    />
  );
}

function decisions({ uuid, name, status }: Registration): Action[] {
  const path = `/registrations/${uuid}`;
  const forget = removal("Delete", name, "The request is forgotten; a user it was accepted for stays.", path);
  if (status !== "pending") return [forget];
  return [
    { label: "Accept", run: () => post(`${path}:accept`), gives: "token" },
    asking("Decline", [field("comment", "Why", { rows: 3 })], (values) => post(`${path}:decline`, values)),
    forget,
  ];
}

export function Registrations() {
  const who = ({ first_name, last_name, organization, email }: Registration) =>
    [first_name, last_name, organization, email].filter(Boolean).join(", ");
  const standing = ({ status, decline_comment: why }: Registration) => (
    <>
      <Badge tone={status === "pending" ? "warn" : "calm"}>{status}</Badge> {visible(why ?? "")}
    </>
  );
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
      actions={decisions}
    />
  );
}

/** The access list of a topic or subscription: who of the publishers or consumers may use it. */
import { post } from "../api";
import { useGet } from "../load";
import type { User } from "../wire";
import { Card, Empty, shown } from "./basics";
import { Act, Form, field } from "./form";

type Props = { project: string; path: string; of: "publisher" | "consumer" };

export function AccessList({ project, path, of: role }: Props) {
  const list = useGet<{ authorized_users: string[] }>(`${path}:acl`);
  const members = useGet<{ users: User[] }>(`/projects/${project}/members?details=true`);
  const change = async (users: { add?: string[]; remove?: string[] }) => {
    await post(`${path}:changeAcl`, users);
    list.reload();
  };
  const suited = (members.data?.users ?? [])
    .filter((user) => user.projects?.some((each) => each.project === project && each.roles.includes(role)))
    .map((user) => user.name);
  const first = suited.length > 0 ? "Choose a member" : `No member has the role ${role}`;
  const choice = (users: string[]) => {
    const names = suited.filter((name) => !users.includes(name)).map((name) => [name, name]);
    return field("name", `Add a ${role}`, { required: true, options: { "": first, ...Object.fromEntries(names) } });
  };
  return (
    <Card title={role === "publisher" ? "Who may publish" : "Who may consume"}>
      {shown(list, ({ authorized_users: users }) => (
        <>
          {users.length === 0 && <Empty>No {role} is on the list: only administrators may use it.</Empty>}
          <ul class="names">
            {users.map((user) => (
              <li key={user}>
                {user}
                <Act label={`Remove ${user}`} act={() => change({ remove: [user] })} />
              </li>
            ))}
          </ul>
          <Form inline button="Add" onSubmit={({ name = "" }) => change({ add: [name] })} fields={[choice(users)]} />
        </>
      ))}
    </Card>
  );
}

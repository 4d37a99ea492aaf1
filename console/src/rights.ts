/** Which pages a user has: the service decides each request anyway, this only leaves out what it would refuse. */
import { session } from "./api";
import type { User } from "./wire";

export function isServiceAdmin(user: User): boolean {
  return user.service_roles.includes("service_admin");
}

export function rolesIn(user: User, project: string): string[] {
  return user.projects?.find((each) => each.project === project)?.roles ?? [];
}

/** Whether one may do all of a project, or what one of these roles is for. */
function has(...roles: string[]) {
  const wanted = ["project_admin", ...roles];
  return (user: User, project: string) =>
    isServiceAdmin(user) || rolesIn(user, project).some((role) => wanted.includes(role));
}

export const administers = has();
export const publishes = has("publisher");
export const consumes = has("consumer");
export const belongs = has("publisher", "consumer");

export function mayLook(user: User): boolean {
  return isServiceAdmin(user) || user.service_roles.includes("admin_viewer");
}

export function administersAny(user: User): boolean {
  return isServiceAdmin(user) || (user.projects ?? []).some((each) => administers(user, each.project));
}

/** Who is logged in; for pages, which are shown to nobody else. */
export function useUser(): User {
  return session.value?.user as User;
}

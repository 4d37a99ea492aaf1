/** Which pages a user has: the service decides each request anyway, this only leaves out what it would refuse. */
import { session } from "./api";
import type { User } from "./wire";

export function isServiceAdmin(user: User): boolean {
  return user.service_roles.includes("service_admin");
}

export function rolesIn(user: User, project: string): string[] {
  return user.projects?.find((each) => each.project === project)?.roles ?? [];
}

export function administers(user: User, project: string): boolean {
  return isServiceAdmin(user) || rolesIn(user, project).includes("project_admin");
}

/** Whether one sees how the service is. */
export function mayLook(user: User): boolean {
  return isServiceAdmin(user) || user.service_roles.includes("admin_viewer");
}

/** Whether one administers any project. */
export function administersAny(user: User): boolean {
  return isServiceAdmin(user) || (user.projects ?? []).some((each) => each.roles.includes("project_admin"));
}

export function publishes(user: User, project: string): boolean {
  return administers(user, project) || rolesIn(user, project).includes("publisher");
}

export function consumes(user: User, project: string): boolean {
  return administers(user, project) || rolesIn(user, project).includes("consumer");
}

/** Who is logged in; for pages, which are shown to nobody else. */
export function useUser(): User {
  return session.value?.user as User;
}

/**
 * All pages: where they are, what they are called in the navigation, and who has them. A new page is a row here.
 * `:name` in a path stands for a part of the address, and is given to the page.
 */
import type { ComponentType } from "preact";
import { administers, administersAny, belongs, consumes, isServiceAdmin, mayLook, publishes } from "../rights";
import type { PageProps } from "../router";
import type { User } from "../wire";
import { Overview } from "./overview";
import { Members, OwnTokens, Registrations, UserPage, Users } from "./people";
import { Projects } from "./projects";
import { SchemaPage, Schemas } from "./schemas";
import { Audit, Issuers, Service, Usage } from "./service";
import { SubscriptionPage, Subscriptions } from "./subscriptions";
import { TopicPage, Topics } from "./topics";

export interface PageEntry {
  path: string;
  /** What it is called in the navigation; without it, it is reached from another page. */
  label?: string;
  /** Whether this user has the page; `project` is empty for pages of no project. */
  may: (user: User, project: string) => boolean;
  page: ComponentType<PageProps>;
}

const everybody = () => true;

export const PAGES: PageEntry[] = [
  { path: "", label: "Projects", may: everybody, page: Projects },
  { path: "p/:project", label: "Overview", may: belongs, page: Overview },
  { path: "p/:project/topics", label: "Topics", may: publishes, page: Topics },
  { path: "p/:project/topics/:topic", may: publishes, page: TopicPage },
  { path: "p/:project/subscriptions", label: "Subscriptions", may: consumes, page: Subscriptions },
  { path: "p/:project/subscriptions/:subscription", may: consumes, page: SubscriptionPage },
  { path: "p/:project/schemas", label: "Schemas", may: administers, page: Schemas },
  { path: "p/:project/schemas/:schema", may: administers, page: SchemaPage },
  { path: "p/:project/members", label: "Members", may: administers, page: Members },
  { path: "tokens", label: "Your tokens", may: everybody, page: OwnTokens },
  { path: "users", label: "Users", may: isServiceAdmin, page: Users },
  { path: "users/:user", may: isServiceAdmin, page: UserPage },
  { path: "registrations", label: "Registrations", may: isServiceAdmin, page: Registrations },
  { path: "issuers", label: "Issuers", may: isServiceAdmin, page: Issuers },
  { path: "audit", label: "Audit log", may: isServiceAdmin, page: Audit },
  { path: "service", label: "Service", may: mayLook, page: Service },
  { path: "usage", label: "Usage", may: administersAny, page: Usage },
];

/** The page of an address, and what its path says; what is no name is none: with a slash, a request would go elsewhere. */
export function pageAt(path: string[]): { entry: PageEntry; params: PageProps["params"] } | null {
  for (const entry of PAGES) {
    const named = new RegExp(`^${entry.path.replace(/:(\w+)/g, "(?<$1>[\\w-][\\w.~+%-]*)")}$`).exec(path.join("/"));
    if (named) return { entry, params: { ...named.groups } };
  }
  return null;
}

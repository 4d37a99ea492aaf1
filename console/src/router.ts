/** The address says which page is shown and how: `#/p/PROJECT/topics/TOPIC?tab=messages&from=3`. */
import { signal } from "@preact/signals";

type Route = { path: string[]; query: URLSearchParams };

/** What a page is given: the parts of its address that have a name, as the project. */
export type PageProps = { params: Record<string, string> };

function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

/** An address somebody typed may have half an escape in it. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function href(path: string[], query: Record<string, string> = {}): string {
  const text = new URLSearchParams(query).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** What is in the address now; a component that asks for its value is shown again when it changes. */
export const route = signal<Route>(parse(location.hash));

/** What logs in is no place: it is taken out of the address before anything else looks at it. */
export const bringsToken = () => location.hash.startsWith("#token=");

addEventListener("hashchange", () => {
  if (!bringsToken()) route.value = parse(location.hash);
});

export function go(path: string[]): void {
  location.hash = href(path);
}

/** Put another address in the place of this one, so that "back" does not come to it. */
export function replace(address: string): void {
  history.replaceState(null, "", address);
  route.value = parse(location.hash);
}

/** Change parts of the query in place: what a table shows is in the address, and "back" leaves the page. */
export function setQuery(change: Record<string, string | null>): void {
  const { path, query } = parse(location.hash);
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(change)) {
    if (value === null || value === "") next.delete(name);
    else next.set(name, value);
  }
  replace(href(path, Object.fromEntries(next)));
}

/** A part of the query with a default that is not written out. */
export function useQuery(name: string, otherwise = ""): [string, (value: string) => void] {
  const value = route.value.query.get(name) ?? otherwise;
  return [value, (next) => setQuery({ [name]: next === otherwise ? null : next })];
}

/** A page for tests of components: import it before what is tested. */
import { Window } from "happy-dom";
import { type ComponentChild, render } from "preact";

const page = new Window({ url: "http://console.test/console/" });
const names = [
  "window",
  "document",
  "location",
  "history",
  "sessionStorage",
  "localStorage",
  "HTMLElement",
  "FormData",
  "Event",
  "matchMedia",
] as const;
for (const name of names)
  Object.defineProperty(globalThis, name, { value: page[name], configurable: true, writable: true });
globalThis.addEventListener = page.addEventListener.bind(page) as unknown as typeof addEventListener;

/** Show something on an empty page, and return the place where it is. */
export async function shown(what: ComponentChild): Promise<HTMLElement> {
  document.body.replaceChildren();
  const place = document.body.appendChild(document.createElement("div"));
  render(what, place);
  await settled();
  return place;
}

export function settled(): Promise<void> {
  return new Promise((done) => setTimeout(done, 20));
}

/** Where the console begins: log in by what the address or an earlier visit brings, else ask. */
import { render } from "preact";
import { session, tokenWanted } from "./api";
import { App } from "./app";
import { loadConfig, resume } from "./login";
import { bringsToken, replace } from "./router";
import "./style.css";

async function start(): Promise<void> {
  const place = document.getElementById("app");
  if (!place) return;
  // The token is taken out of the address before anything is waited for.
  const early = bringsToken() ? location.hash : "";
  if (early) {
    replace(location.pathname + location.search);
    tokenWanted.peek()?.answer(null);
    session.value = null;
  }
  const config = await loadConfig();
  const problem = await resume(config, early).then(
    () => null,
    (error: Error) => error,
  );
  render(null, place);
  place.replaceChildren(); // what was shown meanwhile
  render(<App config={config} problem={problem} />, place);
}

// An address that logs in may be pasted where the console is open.
addEventListener("hashchange", () => {
  if (bringsToken()) void start();
});
void start();

/** Where the console begins: log in by what the address or an earlier visit brings, else ask. */
import { render } from "preact";
import { session, tokenWanted } from "./api";
import { App } from "./app";
import { isLoggedIn, loadConfig, resume } from "./login";
import { bringsToken, replace } from "./router";
import "./style.css";

const REPLACED = "This link logs you in with another token, in the place of the one you are logged in with. Go on?";

async function start(): Promise<void> {
  const place = document.getElementById("app");
  if (!place) return;
  // The token is taken out of the address before anything is waited for.
  const given = bringsToken() ? location.hash : "";
  if (given) replace(location.pathname + location.search);
  // Any page may lead here with a token of its own.
  const early = given && (!isLoggedIn() || confirm(REPLACED)) ? given : "";
  if (given && !early && session.peek()) return;
  if (early) {
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

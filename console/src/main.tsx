/** Where the console begins: log in by what the address or an earlier visit brings, else ask. */
import { render } from "preact";
import { App } from "./app";
import { loadConfig, resume } from "./login";
import { replace } from "./router";
import "./style.css";

async function start(): Promise<void> {
  const place = document.getElementById("app");
  if (!place) return;
  // The token is taken out of the address before anything is waited for.
  const early = location.hash.startsWith("#token=") ? location.hash : "";
  if (early) replace(location.pathname + location.search);
  const config = await loadConfig();
  const problem = await resume(config, early).then(
    () => null,
    (error: Error) => error,
  );
  place.replaceChildren(); // what was shown meanwhile
  render(<App config={config} problem={problem} />, place);
}

void start();

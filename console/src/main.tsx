/** Where the console begins: log in by what the address or an earlier visit brings, else ask. */
import { render } from "preact";
import { App } from "./app";
import { keepRenewed, loadConfig, resume } from "./login";
import { startRouter } from "./router";
import "./style.css";

async function start(): Promise<void> {
  const place = document.getElementById("app");
  if (!place) return;
  // The token is taken out of the address before anything is waited for.
  const early = location.hash.startsWith("#token=") ? location.hash : "";
  if (early) history.replaceState(null, "", location.pathname + location.search);
  const config = await loadConfig();
  let problem: Error | null = null;
  try {
    await resume(config, early);
  } catch (error) {
    problem = error as Error;
  }
  startRouter();
  keepRenewed();
  place.replaceChildren(); // what was shown meanwhile
  render(<App config={config} problem={problem} />, place);
}

void start();

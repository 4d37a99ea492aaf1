/** The frame of all pages: who is logged in, which project, where to go, and what is being waited for. */
import { useEffect, useRef } from "preact/hooks";
import { awaySince, clockSkew, session, tokenWanted, waiting } from "./api";
import { localTime, span } from "./format";
import { useGet } from "./load";
import { type Config, logOut } from "./login";
import { PAGES, type PageEntry, pageAt } from "./pages";
import { Login, Logo } from "./pages/login";
import { Dialog } from "./parts/actions";
import { Button, Guarded, Link, Note, Page } from "./parts/basics";
import { Form, TOKEN } from "./parts/form";
import { href, route } from "./router";
import { visible } from "./text";
import type { User } from "./wire";

const SKEW_TO_NAME = 60_000;
/** Seconds after which the service is asked whether it is there, on pages that ask for nothing else. */
const HEARTBEAT = 10;

export function App(props: { config: Config; problem: Error | null }) {
  const now = session.value;
  if (!now) return <Login {...props} />;
  return (
    <>
      <button type="button" class="skip" onClick={() => document.querySelector<HTMLElement>("main")?.focus()}>
        Skip to the page
      </button>
      <Frame user={now.user} version={props.config.version} />
      <TokenDialog user={now.user} />
    </>
  );
}

function Frame(props: { user: User; version: string | undefined }) {
  const { path } = route.value;
  const found = pageAt(path);
  const project = found?.params.project ?? "";
  const main = useRef<HTMLElement>(null);
  const place = path.join("/");
  const shown = useRef(place);
  useEffect(() => {
    document.title = `${found ? (path.at(-1) ?? "Projects") : "No such page"} – AMS console`;
    // A new page is read from its heading on; the first one is where the browser puts the focus.
    if (shown.current !== place) main.current?.querySelector("h1")?.focus();
    shown.current = place;
    // On a narrow page the navigation is one line that scrolls.
    document.querySelector(".side [aria-current]")?.scrollIntoView?.({ block: "nearest", inline: "center" });
  }, [place]);
  const Shown = found?.entry.may(props.user, project) && found.entry.page;
  return (
    <div class="frame">
      <header class="top">
        <a class="brand" href={href([])}>
          <Logo /> AMS
        </a>
        {project && <Link to={["p", project]}>{visible(project)}</Link>}
        <span class="fill" />
        <span class="quiet">{visible(props.user.name)}</span>
        <Button label="Log out" onClick={logOut} />
      </header>
      <Navigation user={props.user} project={project} place={found?.entry.path ?? ""} />
      <main id="main" ref={main} tabIndex={-1} class={awaySince.value ? "stale" : ""}>
        <Notices />
        {Shown ? (
          <Guarded key={place}>
            <Shown params={found?.params ?? {}} />
          </Guarded>
        ) : (
          <Page title={found ? "Not for you" : "No such page"}>
            <p>{found ? `${props.user.name} has no role for this page.` : "There is nothing at this address."}</p>
            <Link to={[]}>Go to the projects</Link>
          </Page>
        )}
      </main>
      <footer class="quiet">ARGO Messaging Service {props.version}</footer>
    </div>
  );
}

function Navigation(props: { user: User; project: string; place: string }) {
  const list = (label: string, entries: PageEntry[]) => (
    <ul aria-label={label}>
      {entries.map(({ path, label }) => {
        const to = path.replace(":project", props.project).split("/").filter(Boolean);
        const here = path === props.place || (to.length !== 2 && props.place.startsWith(`${path}/`));
        return (
          <li key={path}>
            <a href={href(to)} aria-current={here ? "page" : undefined}>
              {label}
            </a>
          </li>
        );
      })}
    </ul>
  );
  const ofProject = ({ path }: PageEntry) => path.startsWith("p/");
  const ofService = (entry: PageEntry) => !ofProject(entry);
  const shown = PAGES.filter((entry) => entry.label && entry.may(props.user, props.project));
  return (
    <nav class="side" aria-label="Pages">
      {props.project && list(`Project ${props.project}`, shown.filter(ofProject))}
      {list("Service", shown.filter(ofService))}
    </nav>
  );
}

function Notices() {
  useGet("/version", HEARTBEAT);
  const away = awaySince.value;
  const wait = waiting.value;
  const skew = clockSkew.value;
  return (
    <>
      {away > 0 && (
        <Note tone="bad">
          The service does not answer since {localTime(new Date(away))}: what is shown is what it said before.
        </Note>
      )}
      {wait && <Note tone="warn">{wait}</Note>}
      {Math.abs(skew) > SKEW_TO_NAME && (
        <Note tone="warn">
          This computer's clock is {span(Math.abs(skew) / 1000)} {skew > 0 ? "behind" : "ahead of"} the service's: ages
          are shown by the service's.
        </Note>
      )}
    </>
  );
}

/** Asks for a new token over the page, which stays as it is with all that was typed. */
function TokenDialog(props: { user: User }) {
  const wanted = tokenWanted.value;
  if (!wanted) return null;
  return (
    <Dialog title="Please log in again" onClose={() => wanted.answer(null)}>
      <Note tone="warn">{visible(wanted.reason)}</Note>
      <p>
        What you typed is kept. Give a token of {visible(props.user.name)}, for instance one that{" "}
        <code>ams open --print</code> shows, to go on where you were.
      </p>
      <Form
        button="Go on"
        onSubmit={async ({ token = "" }) => wanted.answer(token.trim())}
        onCancel={() => wanted.answer(null)}
        fields={[TOKEN]}
      />
    </Dialog>
  );
}

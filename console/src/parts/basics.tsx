/** Small parts of every page: headings, cards, notes, figures, times, and what is said where there is nothing. */
import type { ComponentChildren } from "preact";
import { useErrorBoundary, useState } from "preact/hooks";
import { ApiError, serviceNow } from "../api";
import { localTime, shortName, span, utcTime } from "../format";
import type { Loaded } from "../load";
import { href, useQuery } from "../router";
import { visible } from "../text";
import type { Finding } from "../wire";

type Children = { children?: ComponentChildren };

type Framed = Children & { title?: string; actions?: ComponentChildren };

export function Page(props: Framed & { title: string; kind?: string }) {
  return (
    <>
      <header class="page-head">
        <div>
          {props.kind && <p class="kind">{props.kind}</p>}
          <h1 tabIndex={-1}>{visible(props.title)}</h1>
        </div>
        <div class="actions">{props.actions}</div>
      </header>
      {props.children}
    </>
  );
}

export function Card(props: Framed & { wide?: boolean }) {
  return (
    <section class={props.wide ? "card wide" : "card"} aria-label={props.title}>
      {(props.title || props.actions) && (
        <div class="card-head">
          <h2>{props.title}</h2>
          <div class="actions">{props.actions}</div>
        </div>
      )}
      {props.children}
    </section>
  );
}

export function Stat(props: { label: string; value: ComponentChildren; note?: ComponentChildren; wrong?: boolean }) {
  return (
    <div class={props.wrong ? "stat wrong" : "stat"}>
      <dt>{props.label}</dt>
      <dd>
        {props.value}
        {props.note && <small>{props.note}</small>}
      </dd>
    </div>
  );
}

export type Fact = [name: string, value: ComponentChildren];

/** Facts by their names; those that nothing is known of are left out. */
export function Facts(props: { rows: Fact[] }) {
  const known = props.rows.filter(([, value]) => value && !(Array.isArray(value) && value.length === 0));
  return (
    <dl class="facts">
      {known.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Findings(props: { of: Finding[] }) {
  return (
    <ul class="findings">
      {props.of.map(({ text, wrong }) => (
        <li key={text} class={wrong ? "wrong" : ""}>
          {visible(text)}
        </li>
      ))}
    </ul>
  );
}

export type Tone = "good" | "bad" | "warn" | "calm";

export function Badge(props: Children & { tone?: Tone }) {
  return <span class={`badge ${props.tone ?? "calm"}`}>{props.children}</span>;
}

export function Note(props: Children & { tone?: Tone; urgent?: boolean }) {
  return (
    <div class={`note ${props.tone ?? "calm"}`} role={props.urgent ? "alert" : "status"}>
      {props.children}
    </div>
  );
}

/** An error in the API's own words, with the id that the service's log has for the request. */
export function ErrorNote(props: { error: Error; again?: (() => void) | undefined }) {
  const { message, code, requestId } =
    props.error instanceof ApiError ? props.error : new ApiError(0, props.error.message);
  return (
    <Note tone="bad" urgent>
      <p>
        {code > 0 && <strong>{code} </strong>}
        {visible(message)}
      </p>
      {requestId && (
        <p class="quiet">
          Request <code>{requestId}</code>
        </p>
      )}
      {props.again && <Button label="Try again" onClick={props.again} />}
    </Note>
  );
}

/** A page that cannot be shown leaves what is around it, and can be tried again. */
export function Guarded(props: Children) {
  const [error, again] = useErrorBoundary();
  return error ? <ErrorNote error={error} again={again} /> : props.children;
}

interface ButtonProps {
  label: string;
  /** For who does not see it, where the label is a sign. */
  name?: string;
  onClick: () => void;
  /** It looks as text does. */
  quiet?: boolean;
  disabled?: boolean;
  pressed?: boolean;
}

export function Button({ label, name, quiet, pressed, ...rest }: ButtonProps) {
  return (
    <button type="button" class={quiet ? "quiet" : ""} aria-label={name} aria-pressed={pressed} {...rest}>
      {label}
    </button>
  );
}

/** What was loaded as `show` shows it, that it is loading, or why it could not be; what is there stays meanwhile. */
export function shown<T>({ data, error, reload }: Loaded<T>, show: (data: T) => ComponentChildren) {
  return (
    <>
      {error && <ErrorNote error={error} again={reload} />}
      {data && show(data)}
      {!data && !error && (
        <p class="quiet" role="status">
          Loading…
        </p>
      )}
    </>
  );
}

/** What stands where nothing is: what to do about it, with the command to copy. */
export function Empty(props: Children & { command?: string | undefined }) {
  return (
    <div class="empty">
      <p>{props.children}</p>
      {props.command && <Command text={props.command} />}
    </div>
  );
}

export function Command(props: { text: string }) {
  return (
    <div class="command">
      <code>{props.text}</code>
      <Copy text={props.text} />
    </div>
  );
}

export function Copy(props: { text: string }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(props.text);
      setSaid("Copied");
    } catch {
      setSaid("Select it and copy it by hand");
    }
    setTimeout(() => setSaid(""), 2000);
  };
  return <Button label={said || "Copy"} name={`${said || "Copy"}: ${props.text.slice(0, 80)}`} quiet onClick={copy} />;
}

/** A time in this computer's zone, with UTC beside it. */
export function Time(props: { at: string | undefined; age?: boolean }) {
  const time = new Date(props.at ?? "");
  if (Number.isNaN(time.getTime())) return <>–</>;
  const seconds = (serviceNow() - time.getTime()) / 1000;
  return (
    <time dateTime={time.toISOString()} title={utcTime(time)}>
      {localTime(time)}
      <small>
        {props.age && seconds >= 0 ? `${span(seconds)} ago · ` : ""}
        {utcTime(time)}
      </small>
    </time>
  );
}

export function Link(props: Children & { to: string[] }) {
  return <a href={href(props.to)}>{props.children}</a>;
}

/** Something of a project by its name, short or long, as a link to its page. */
export function linked(project: string, kind: string, reference: string) {
  const name = shortName(reference);
  return <Link to={["p", project, kind, name]}>{name}</Link>;
}

export type Tab = [id: string, label: string, shown: ComponentChildren];

/** Tabs whose choice is in the address; what is false is left out. */
export function Tabs(props: { tabs: (Tab | false)[] }) {
  const tabs = props.tabs.filter((each): each is Tab => each !== false);
  const [asked, choose] = useQuery("tab", tabs[0]?.[0]);
  const found = tabs.findIndex(([id]) => id === asked);
  const at = Math.max(0, found);
  const [chosen, , shown] = tabs[at] ?? ["", "", null];
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const [next] = (step && tabs.at((at + step) % tabs.length)) || [];
    if (!next) return;
    choose(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <>
      <div class="tabs" role="tablist" onKeyDown={move}>
        {tabs.map(([id, label]) => (
          <button
            type="button"
            key={id}
            id={`tab-${id}`}
            role="tab"
            aria-selected={id === chosen}
            aria-controls="tab-panel"
            tabIndex={id === chosen ? 0 : -1}
            onClick={() => choose(id)}>
            {label}
          </button>
        ))}
      </div>
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${chosen}`} key={chosen}>
        {shown}
      </div>
    </>
  );
}

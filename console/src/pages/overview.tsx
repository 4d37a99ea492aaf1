/** A project at a glance: what is wrong first, then what comes in and goes out, then what there is. */
import { call } from "../api";
import { bytes, number, plural, rate, short, shortName, span } from "../format";
import { type Sample, useCounts } from "../live";
import { useGet, useLoad } from "../load";
import { Badge, Card, Empty, ErrorNote, Link, linked, Page, Stat } from "../parts/basics";
import { Plots, rateLine } from "../parts/plot";
import { administers, consumes, publishes, useUser } from "../rights";
import type { PageProps } from "../router";
import { visible } from "../text";
import type { Counts, Diagnosis, History, ProjectQuotas, Subscription, Topic } from "../wire";

/** How long the oldest message may wait before a subscription is looked at. */
const LONG_WAIT = 600;
const MOST_DOCTORED = 5;
/** Of topics, and of subscriptions; of more, the newest. */
const MOST_COUNTED = 1000;
const MOST_WRONG = 20;
const MOST_BUSY = 8;
/** States of delivery that say nothing bad; it has none where messages are pulled. */
const FINE = ["active", "unknown", undefined];

const sum = (all: number[]) => all.reduce((one, other) => one + other, 0);

export function Overview({ params: { project = "" } }: PageProps) {
  const user = useUser();
  const base = `/projects/${project}`;
  const topics = useGet<{ topics: Topic[] }>(publishes(user, project) ? `${base}/topics` : null);
  const readers = useGet<{ subscriptions: Subscription[] }>(consumes(user, project) ? `${base}/subscriptions` : null);
  const failed = topics.error ?? readers.error;
  // One stream for both, when both are known.
  const known = !topics.loading && !readers.loading;
  const watched = (all: { name: string }[] = []) =>
    known ? all.slice(0, MOST_COUNTED).map((each) => shortName(each.name)) : [];
  const { sample, state } = useCounts(project, watched(topics.data?.topics), watched(readers.data?.subscriptions));
  const lag = sample && sum(Object.values(sample.counts.subscriptions).map((each) => each.lag));
  const count = (label: string, kind: string, all: unknown[] | undefined) =>
    all && <Stat label={label} value={<Link to={["p", project, kind]}>{number(all.length)}</Link>} />;
  const said = { live: "live", off: "not live", connecting: "" }[state];
  const total = (rates: Record<string, number> = {}) =>
    rate(state === "live" && Object.keys(rates).length > 0 ? sum(Object.values(rates)) : undefined);
  const most = Math.max(topics.data?.topics.length ?? 0, readers.data?.subscriptions.length ?? 0);
  return (
    <Page title={project} kind="Project">
      {failed && <ErrorNote error={failed} />}
      {most > MOST_COUNTED && (
        <p class="quiet">Figures here are of the newest {number(MOST_COUNTED)} topics and subscriptions.</p>
      )}
      {sample && <Wrong project={project} counts={sample.counts} />}
      <dl class="stats">
        <Stat label="Published now" value={total(sample?.rates)} note={said} />
        <Stat label="Delivered now" value={total(sample?.taken)} />
        <Stat label="Waiting to be taken" value={short(lag)} />
        {count("Topics", "topics", topics.data?.topics)}
        {count("Subscriptions", "subscriptions", readers.data?.subscriptions)}
      </dl>
      {administers(user, project) && <Plots project={project} plots={plotsOf} />}
      {administers(user, project) && <Quotas project={project} />}
      {sample && <Busiest project={project} sample={sample} />}
      {topics.data?.topics.length === 0 && (
        <Empty command={`ams topics create readings --project ${project}`}>
          There are no topics yet. Make one on the page of topics, or in a terminal:
        </Empty>
      )}
    </Page>
  );
}

/** What the project uses of its quotas, by the names that answers say. */
function Quotas({ project }: { project: string }) {
  const found = useGet<ProjectQuotas>(`/projects/${project}:quotas`);
  const used = found.data?.quotas.filter((each) => each.used !== undefined) ?? [];
  if (used.length === 0) return null;
  const shown = (name: string) => (name.endsWith("Bytes") ? bytes : short);
  return (
    <Card title="Quotas" wide>
      <ol class="bars">
        {used.map(({ name, limit, share, used: taken }) => (
          <li key={name}>
            {name}
            <span>{shown(name)(taken)}</span>
            <span class="quiet">
              {limit
                ? `of ${shown(name)(limit)}`
                : share !== undefined
                  ? `of ${shown(name)(share)} (fair share)`
                  : "no limit"}
            </span>
          </li>
        ))}
      </ol>
    </Card>
  );
}

function plotsOf(history: History) {
  const all = history.project;
  if (!all) return [];
  const lines = [rateLine("published", all.published, history), rateLine("delivered", all.delivered, history, 2)];
  return [
    { title: "Messages a second", lines, format: rate },
    { title: "Waiting to be taken", lines: [{ label: "messages", values: all.lag, colour: 3 as const }] },
  ];
}

/** Subscriptions that are worth a look by what the stream says of them, with what the doctor finds. */
function Wrong({ project, counts }: { project: string; counts: Counts }) {
  const wrong = Object.entries(counts.subscriptions)
    .map(([name, each]) => ({ name, ...each, age: each.oldestUnackedSeconds ?? 0 }))
    .filter(({ age, push }) => age > LONG_WAIT || !FINE.includes(push))
    .sort((one, other) => other.age - one.age);
  const asked = wrong.slice(0, MOST_DOCTORED).map(({ name }) => name);
  const doctors = useLoad(asked.length > 0 ? asked.join(" ") : null, (signal) =>
    Promise.all(asked.map((name) => call<Diagnosis>(`/projects/${project}/subscriptions/${name}:doctor`, { signal }))),
  );
  if (wrong.length === 0) return null;
  return (
    <Card title="Worth a look" wide>
      <ul class="findings">
        {wrong.slice(0, MOST_WRONG).map(({ name, lag, oldestUnackedSeconds: age }, at) => (
          <li key={name}>
            {linked(project, "subscriptions", name)}{" "}
            {lag > 0 && <Badge tone="warn">{plural(lag, "message")} behind</Badge>}{" "}
            {lag > 0 && `oldest waits ${span(age)}`}
            {(doctors.data?.[at]?.findings ?? []).slice(0, 2).map(({ text, wrong: bad }) => (
              <p key={text} class={bad ? "wrong" : "quiet"}>
                {visible(text)}
              </p>
            ))}
          </li>
        ))}
      </ul>
      {wrong.length > MOST_WRONG && <p class="quiet">And {plural(wrong.length - MOST_WRONG, "other")}.</p>}
    </Card>
  );
}

function Busiest({ project, sample }: { project: string; sample: Sample }) {
  const rows = Object.entries(sample.counts.topics)
    .map(([name, { messages }]) => ({ name, messages, rate: sample.rates[name] ?? 0 }))
    .sort((a, b) => b.rate - a.rate || b.messages - a.messages)
    .slice(0, MOST_BUSY);
  if (rows.length === 0) return null;
  return (
    <Card title="Busiest topics" wide>
      <ol class="bars">
        {rows.map((row) => (
          <li key={row.name}>
            {linked(project, "topics", row.name)}
            <span>{rate(row.rate)}</span>
            <span class="quiet if-wide">{plural(row.messages, "message")} ever</span>
          </li>
        ))}
      </ol>
    </Card>
  );
}

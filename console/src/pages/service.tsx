/** What administrators of the service look at: issuers, who did what, whether all is well, and who uses how much. */
import { asShown, call, named, post, put } from "../api";
import { number } from "../format";
import { useGet, useLoad } from "../load";
import { asking, removal } from "../parts/actions";
import { Badge, Button, Card, type Fact, Facts, Findings, Link, Note, Page, shown, Time } from "../parts/basics";
import { Form, field, NAME, type Values } from "../parts/form";
import { download } from "../parts/message";
import { Resources } from "../parts/resources";
import { asCsv, type Column, column, Table, valued } from "../parts/table";
import { isServiceAdmin, useUser } from "../rights";
import { route, setQuery } from "../router";
import { visible } from "../text";
import type { Issuer, Line, ProjectUsage, ServiceDiagnosis, Status, UsageReport, VaMetrics, Version } from "../wire";

const NEW_ISSUER = '{\n  "url": "https://aai.example/auth",\n  "audiences": ["ams"]\n}';

const HINT = "JSON, as the documentation of issuers has it; *** keeps a secret";
const issuerAs = (value: string) => field("fields", "Fields", { rows: 12, value, hint: HINT });

/** What an issuer says of itself, as it can be written: not where it comes from, nor its keys, which come and go. */
const written = ({ name, source, keys, ...fields }: Issuer) => JSON.stringify(fields, null, 2);

export function Issuers() {
  const make = async ({ name, fields = "" }: Values) => post(named("/issuers", name), JSON.parse(fields));
  const change = (row: Issuer) => {
    const path = named("/issuers", row.name);
    return asking("Change", [issuerAs(written(row))], async ({ fields = "" }) => {
      const changed = JSON.parse(fields);
      await put(path, changed, await asShown<Issuer>(path, (now) => written(now) === written(row)));
    });
  };
  const actions = (row: Issuer) => [
    change(row),
    removal("Delete", row.name, "Its tokens are refused at once.", `/issuers/${row.name}`),
  ];
  return (
    <Resources<Issuer>
      title="Issuers"
      path="/issuers"
      columns={[
        valued("Name", (row) => row.name),
        valued("Address", (row) => row.url),
        valued("Set by", (row) => row.source, { wide: true }),
        column("Keys", ({ keys }) =>
          keys?.failure ? <Badge tone="bad">{visible(keys.failure)}</Badge> : number(keys?.ids?.length ?? 0),
        ),
      ]}
      empty="No OpenID Connect issuer is believed. Add one here, or in a terminal:"
      command="ams issuers set checkin --url https://aai.example/auth --audience ams"
      make={asking("New issuer", [NAME, issuerAs(NEW_ISSUER)], make)}
      actions={(row) => (row.source === "settings" ? [] : actions(row))}
    />
  );
}

const RESULTS = { "": "all", done: "done", refused: "refused", failed: "failed" };
const FILTERS = [
  field("since", "Since", { placeholder: "2026-01-31, UTC" }),
  field("until", "Before", { placeholder: "2026-01-31T12:00:00Z" }),
  field("actor", "Who"),
  field("action", "Action begins with"),
  field("address", "Address"),
  field("result", "Result", { options: RESULTS }),
];
const EVENTS: Column<Line>[] = [
  column("When", (row) => <Time at={row.time} age />),
  column("Who", (row) => visible(row.actor || "unknown"), { by: (row) => row.actor }),
  valued("Did", (row) => row.action),
  valued("To", (row) => row.resource),
  column("Result", ({ result, code, reason }) => (
    <>
      <Badge tone={result === "done" ? "good" : result === "failed" ? "bad" : "warn"}>
        {result} {code}
      </Badge>{" "}
      {visible(reason ?? "")}
    </>
  )),
  valued("From", (row) => row.address, { wide: true }),
  column("Request", (row) => <code>{row.request}</code>, { by: (row) => row.request, wide: true }),
];

export function Audit() {
  const { query } = route.value;
  const names = [...FILTERS.map(({ name }) => name), "pageToken"];
  const asked = new URLSearchParams(names.map((name) => [name, query.get(name) ?? ""]).filter(([, value]) => value));
  const loaded = useGet<{ events: Line[]; nextPageToken?: string }>(`/audit?${asked}`);
  const fields = FILTERS.map((field) => ({ ...field, value: query.get(field.name) ?? "" }));
  const show = async (values: Values) => setQuery({ ...values, pageToken: null });
  const page = (pageToken: string | null) => setQuery({ pageToken });
  return (
    <Page title="Audit log">
      <p class="quiet">Changes, and logins that failed. Who published or consumed messages is not recorded.</p>
      <Form inline button="Show" onSubmit={show} fields={fields} />
      {shown(loaded, ({ events, nextPageToken: older = null }) => (
        <>
          <Table label="Events" rows={events} columns={EVENTS} rowKey={(row) => row.id} empty="No such event." />
          <nav class="pager" aria-label="Events">
            <Button label="Newest" disabled={!query.has("pageToken")} onClick={() => page(null)} />
            <Button label="Older" disabled={!older} onClick={() => page(older)} />
          </nav>
        </>
      ))}
    </Page>
  );
}

const EVERY = 10;
/** Of the version, whose fields are those of the original. */
const NAMES: Record<string, string> = { build_time: "built", golang: "language" };

export function Service() {
  const status = useGet<Status>("/status?details=true", EVERY);
  const found = useGet<ServiceDiagnosis>("/doctor", EVERY);
  const version = useGet<Version>("/version");
  return (
    <Page title="Service">
      {shown(found, ({ findings, nodes = [] }) => (
        <>
          <Card title="What is wrong" wide>
            <Findings of={findings} />
            {findings.length === 0 && <Note tone="good">Nothing.</Note>}
          </Card>
          {nodes.length > 0 && (
            <Card title="Nodes that live" wide>
              <ul class="names">
                {nodes.map(({ url, here }) => (
                  <li key={url}>
                    {url ?? "a node that does not say where it is"} {here && <Badge tone="good">answered</Badge>}
                  </li>
                ))}
              </ul>
            </Card>
          )}
        </>
      ))}
      <div class="grid">
        {shown(status, ({ status: all, push_functionality: push, push_servers: servers = [] }) => (
          <Card title="Status">
            <Badge tone={all === "ok" ? "good" : "bad"}>{all}</Badge>
            <Facts
              rows={[["Push", push], ...servers.map((one): Fact => [`Push server ${one.endpoint}`, one.status])]}
            />
          </Card>
        ))}
        {shown(version, (data) => (
          <Card title="Node that answered">
            <Facts rows={Object.entries(data).map(([name, value]) => [NAMES[name] ?? name, visible(value)])} />
          </Card>
        ))}
      </div>
    </Page>
  );
}

const MOST_MONTHS = 36;
type Used = ProjectUsage & { months: number[] };

/** The last months, oldest first: `2026-11` with its first and last day. */
export function monthsUntil(now: Date, count: number): { name: string; from: string; to: string }[] {
  return Array.from({ length: count }, (_, at) => {
    const first = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - count + 1 + at, 1));
    const last = new Date(Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + 1, 0));
    const day = (date: Date) => date.toISOString().slice(0, 10);
    return { name: day(first).slice(0, 7), from: day(first), to: day(last) };
  });
}

export function Usage() {
  const all = isServiceAdmin(useUser());
  const count = Math.min(MOST_MONTHS, Math.max(1, Math.round(Number(route.value.query.get("months"))) || 6));
  const months = monthsUntil(new Date(), count);
  const ask = async (signal: AbortSignal, window: Record<string, string> = {}) => {
    const path = all ? "/metrics/va_metrics" : "/users/usageReport";
    const answer = await call<VaMetrics | UsageReport>(path, { query: window, signal });
    return ("va_metrics" in answer ? answer.va_metrics : answer).projects_metrics.projects;
  };
  const loaded = useLoad<Used[]>(`usage ${count}`, async (signal) => {
    const parts = await Promise.all(months.map(({ from, to }) => ask(signal, { start_date: from, end_date: to })));
    const counts = parts.map((each) => new Map(each.map((one) => [one.project, one.message_count])));
    return (await ask(signal)).map((each) => ({ ...each, months: counts.map((of) => of.get(each.project) ?? 0) }));
  });
  const choice = field("months", "Months", { type: "number", min: 1, max: MOST_MONTHS, value: String(count) });
  const figure = { right: true, wide: true };
  const columns: Column<Used>[] = [
    column("Project", (row) => <Link to={["p", row.project]}>{row.project}</Link>, { by: (row) => row.project }),
    ...months.map(({ name }, at) => valued<Used>(name, (row) => row.months[at], { right: true, wide: at < count - 2 })),
    valued("Ever", (row) => row.message_count, { right: true, id: "messages" }),
    valued("Topics", (row) => row.topics_count, figure),
    valued("Subscriptions", (row) => row.subscriptions_count, figure),
    valued("Users", (row) => row.users_count, figure),
  ];
  const save = () => download(asCsv(loaded.data ?? [], columns), `usage-${months.at(-1)?.name}.csv`);
  return (
    <Page title="Usage" actions={loaded.data && <Button label="Download CSV" onClick={save} />}>
      <Form inline button="Show" onSubmit={async (values) => setQuery(values)} fields={[choice]} />
      <p class="quiet">Messages that were published, by month (UTC).</p>
      {shown(loaded, (rows) => (
        <Table label="Usage by project" rows={rows} columns={columns} rowKey={(row) => row.project} />
      ))}
    </Page>
  );
}

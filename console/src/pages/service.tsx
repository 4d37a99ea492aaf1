/** What administrators of the service look at: issuers, who did what, whether all is well, and who uses how much. */
import { call, post, put, remove } from "../api";
import { number } from "../format";
import { useGet, useLoad } from "../load";
import { Badge, Button, Card, type Fact, Facts, Link, Note, Page, Shown, Time } from "../parts/basics";
import { type Asked, type Choice, type FieldProps, Form, NAME, type Values } from "../parts/form";
import { download } from "../parts/message";
import { Resources } from "../parts/resources";
import { type Column, column, Table, valued } from "../parts/table";
import { isServiceAdmin, useUser } from "../rights";
import { route, setQuery } from "../router";
import { visible } from "../text";
import type { Issuer, Line, ProjectUsage, ServiceDiagnosis, Status, UsageReport, VaMetrics, Version } from "../wire";

const NEW_ISSUER = '{\n  "url": "https://aai.example/auth",\n  "audiences": ["ams"]\n}';

export function Issuers() {
  const hint = "JSON, as the documentation of issuers has it; *** keeps a secret";
  const body = (value: string): Asked => ({ name: "fields", label: "Fields", rows: 12, value, hint });
  const shown = ({ name: _, source, keys, ...rest }: Issuer) => JSON.stringify(rest, null, 2);
  return (
    <Resources<Issuer>
      title="Issuers"
      path="/issuers"
      of="issuers"
      columns={[
        valued("Name", (row) => row.name),
        valued("Address", (row) => row.url),
        valued("Set by", (row) => row.source, { wide: true }),
        column("Keys", ({ keys }) =>
          keys?.failure ? <Badge tone="bad">{visible(keys.failure)}</Badge> : number(keys?.ids?.length ?? 0),
        ),
      ]}
      empty="No OpenID Connect issuer is believed. Add one here, or in a terminal:"
      command="ams issuers create checkin --url https://aai.example/auth"
      make={{
        label: "New issuer",
        fields: [NAME, body(NEW_ISSUER)],
        run: async ({ name, fields = "" }) => post(`/issuers/${name}`, JSON.parse(fields) as object),
      }}
      actions={({ name, source, ...row }) => {
        if (source === "settings") return [];
        const change = async ({ fields = "" }: Values) => put(`/issuers/${name}`, JSON.parse(fields) as object);
        return [
          { label: "Change", fields: [body(shown({ name, source, ...row }))], run: change },
          { label: "Delete", typed: [name, "Its tokens are refused at once."], run: () => remove(`/issuers/${name}`) },
        ];
      }}
    />
  );
}

const RESULTS: Choice[] = [
  ["", "all"],
  ["done", "done"],
  ["refused", "refused"],
  ["failed", "failed"],
];
const FILTERS: FieldProps[] = [
  { name: "since", label: "Since", placeholder: "2026-01-31, UTC" },
  { name: "until", label: "Before", placeholder: "2026-01-31T12:00:00Z" },
  { name: "actor", label: "Who" },
  { name: "action", label: "Action begins with" },
  { name: "address", label: "Address" },
  { name: "result", label: "Result", options: RESULTS },
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
  const show = async (values: Values) => setQuery({ ...values, pageToken: null });
  return (
    <Page title="Audit log">
      <Form
        inline
        button="Show"
        onSubmit={show}
        fields={FILTERS.map((field) => ({ ...field, value: query.get(field.name) ?? "" }))}
      />
      <Shown of={loaded}>
        {({ events, nextPageToken: older }) => (
          <>
            <Table label="Events" rows={events} columns={EVENTS} rowKey={(row) => row.id} empty="No such event." />
            <nav class="pager" aria-label="Events">
              <Button label="Newest" disabled={!query.has("pageToken")} onClick={() => setQuery({ pageToken: null })} />
              <Button label="Older" disabled={!older} onClick={() => setQuery({ pageToken: older ?? null })} />
            </nav>
          </>
        )}
      </Shown>
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
      <Shown of={found}>
        {({ findings, nodes = [] }) => (
          <>
            <Card title="What is wrong" wide>
              {findings.map((each) => (
                <Note key={each.text} tone={each.wrong ? "bad" : "calm"}>
                  {visible(each.text)}
                </Note>
              ))}
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
        )}
      </Shown>
      <div class="grid">
        <Shown of={status}>
          {({ status: all, push_functionality: push, push_servers: servers = [] }) => (
            <Card title="Status">
              <Badge tone={all === "ok" ? "good" : "bad"}>{all}</Badge>
              <Facts
                rows={[
                  ["Push", push],
                  ...servers.map(({ endpoint, status }): Fact => [`Push server ${endpoint}`, status]),
                ]}
              />
            </Card>
          )}
        </Shown>
        <Shown of={version}>
          {(data) => (
            <Card title="Node that answered">
              <Facts rows={Object.entries(data).map(([name, value]) => [NAMES[name] ?? name, visible(value)])} />
            </Card>
          )}
        </Shown>
      </div>
    </Page>
  );
}

interface Used extends ProjectUsage {
  months: number[];
}

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
  const { query } = route.value;
  const count = Number(query.get("months") || 6);
  const months = monthsUntil(new Date(), count);
  const ask = async (signal: AbortSignal, window: Record<string, string>) => {
    if (all) return call<VaMetrics>("/metrics/va_metrics", { query: window, signal });
    return (await call<UsageReport>("/users/usageReport", { query: window, signal })).va_metrics;
  };
  const loaded = useLoad<Used[]>(`usage ${count}`, async (signal) => {
    const ever = (await ask(signal, {})).projects_metrics.projects;
    const parts = await Promise.all(months.map(({ from, to }) => ask(signal, { start_date: from, end_date: to })));
    const counts = parts.map((each) =>
      Object.fromEntries(each.projects_metrics.projects.map((one) => [one.project, one.message_count])),
    );
    return ever.map((each) => ({ ...each, months: counts.map((of) => of[each.project] ?? 0) }));
  });
  const figure = { right: true, wide: true };
  const columns: Column<Used>[] = [
    column("Project", (row) => <Link to={["p", row.project]}>{row.project}</Link>, { by: (row) => row.project }),
    ...months.map(({ name }, at) =>
      valued<Used>(name, (row) => row.months[at] ?? 0, { right: true, wide: at < count - 2 }),
    ),
    valued("Ever", (row) => row.message_count, { right: true }),
    valued("Topics", (row) => row.topics_count, figure),
    valued("Subscriptions", (row) => row.subscriptions_count, figure),
    valued("Users", (row) => row.users_count, figure),
  ];
  const csv = (rows: Used[]) => {
    const head = ["project", ...months.map(({ name }) => name), "messages", "topics", "subscriptions", "users"];
    const lines = rows.map(({ months: each, ...row }) =>
      [row.project, ...each, row.message_count, row.topics_count, row.subscriptions_count, row.users_count].join(","),
    );
    return [head.join(","), ...lines, ""].join("\r\n");
  };
  return (
    <Page
      title="Usage"
      actions={
        loaded.data && (
          <Button
            label="Download CSV"
            onClick={() => download(csv(loaded.data ?? []), `usage-${months.at(-1)?.name}.csv`)}
          />
        )
      }>
      <Form
        inline
        button="Show"
        onSubmit={async (values) => setQuery(values)}
        fields={[{ name: "months", label: "Months", type: "number", min: 1, value: String(count) }]}
      />
      <p class="quiet">Messages that were published, by month (UTC).</p>
      <Shown of={loaded}>
        {(rows) => (
          <Table
            label="Usage by project"
            rows={rows}
            columns={columns}
            rowKey={(row) => row.project}
            empty="There are no projects yet."
          />
        )}
      </Shown>
    </Page>
  );
}

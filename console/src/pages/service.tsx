/** What administrators of the service look at: issuers, who did what, whether all is well, and who uses how much. */
import { call } from "../api";
import { number } from "../format";
import { useGet, useLoad } from "../load";
import { Badge, Button, Card, Facts, Link, Note, Page, Shown, Time } from "../parts/basics";
import { Field, Form } from "../parts/form";
import { download } from "../parts/message";
import { type Asked, Resources } from "../parts/resources";
import { type Column, column, Table, valued } from "../parts/table";
import { isServiceAdmin, useUser } from "../rights";
import { setQuery, useRoute } from "../router";
import { visible } from "../text";
import type { Issuer, Line, ProjectUsage, ServiceDiagnosis, Status, UsageReport, VaMetrics } from "../types";

export function Issuers() {
  const body = (value: string): Asked => ({
    name: "fields",
    label: "Fields",
    rows: 12,
    value,
    hint: "JSON, as the documentation of issuers has it; *** keeps a secret",
  });
  const put = (name: string, method: string, fields = "") =>
    call(`/issuers/${name}`, { method, body: JSON.parse(fields) as object });
  const shown = ({ name: _, source, keys, ...rest }: Issuer) => JSON.stringify(rest, null, 2);
  return (
    <Resources<Issuer>
      title="Issuers"
      path="/issuers"
      rows={({ issuers }: { issuers: Issuer[] }) => issuers}
      rowKey={(row) => row.name}
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
        fields: [
          { name: "name", label: "Name", required: true, autofocus: true },
          body('{\n  "url": "https://aai.example/auth",\n  "audiences": ["ams"]\n}'),
        ],
        run: ({ name = "", fields }) => put(name, "POST", fields),
      }}
      actions={(row) =>
        row.source === "settings"
          ? []
          : [
              { label: "Change", fields: [body(shown(row))], run: ({ fields }) => put(row.name, "PUT", fields) },
              {
                label: "Delete",
                typed: [row.name, "Its tokens are refused at once."],
                run: () => call(`/issuers/${row.name}`, { method: "DELETE" }),
              },
            ]
      }
    />
  );
}

const FILTERS: [string, string][] = [
  ["since", "Since"],
  ["until", "Before"],
  ["actor", "Who"],
  ["action", "Action begins with"],
  ["address", "Address"],
];
const RESULTS: [string, string][] = [
  ["", "all"],
  ["done", "done"],
  ["refused", "refused"],
  ["failed", "failed"],
];
const EVENTS: Column<Line>[] = [
  column("When", (row) => <Time at={row.time} age />),
  column("Who", (row) => visible(row.actor || "unknown")),
  column("Did", (row) => row.action),
  column("To", (row) => visible(row.resource)),
  column("Result", ({ result, code, reason }) => (
    <>
      <Badge tone={result === "done" ? "good" : result === "failed" ? "bad" : "warn"}>
        {result} {code}
      </Badge>{" "}
      {visible(reason ?? "")}
    </>
  )),
  column("From", (row) => row.address, { wide: true }),
  column("Request", (row) => <code>{row.request}</code>, { wide: true }),
];

export function Audit() {
  const { query } = useRoute();
  const names = [...FILTERS.map(([name]) => name), "result", "pageToken"];
  const asked = new URLSearchParams(names.map((name) => [name, query.get(name) ?? ""]).filter(([, value]) => value));
  const loaded = useGet<{ events: Line[]; nextPageToken?: string }>(`/audit?${asked}`);
  const show = async (values: Record<string, string>) => setQuery({ ...values, pageToken: null });
  return (
    <Page title="Audit log">
      <Form inline button="Show" onSubmit={show}>
        {FILTERS.map(([name, label]) => (
          <Field key={name} name={name} label={label} value={query.get(name) ?? ""} />
        ))}
        <Field name="result" label="Result" options={RESULTS} value={query.get("result") ?? ""} />
      </Form>
      <Shown of={loaded}>
        {({ events, nextPageToken: older }) => (
          <>
            <Table
              label="Events"
              rows={events}
              columns={EVENTS}
              rowKey={(row) => row.id}
              empty={<p>No such event.</p>}
            />
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

export function Service() {
  const status = useGet<Status>("/status?details=true", EVERY);
  const found = useGet<ServiceDiagnosis>("/doctor", EVERY);
  const version = useGet<Record<string, string>>("/version");
  return (
    <Page title="Service">
      <Shown of={found}>
        {({ findings }) => (
          <Card title="What is wrong" wide>
            {findings.map((each) => (
              <Note key={each.text} tone={each.wrong ? "bad" : "calm"}>
                {visible(each.text)}
              </Note>
            ))}
            {findings.length === 0 && <Note tone="good">Nothing.</Note>}
          </Card>
        )}
      </Shown>
      <div class="grid">
        <Shown of={status}>
          {(data) => (
            <Card title="Status">
              <Badge tone={data.status === "ok" ? "good" : "bad"}>{data.status}</Badge>
              <Facts
                rows={[
                  ["Push", data.push_functionality ?? ""],
                  ...(data.push_servers ?? []).map((each): [string, string] => [each.endpoint, each.status]),
                ]}
              />
            </Card>
          )}
        </Shown>
        <Shown of={version}>
          {(data) => (
            <Card title="Node that answered">
              <Facts rows={Object.entries(data).map(([name, value]) => [name, visible(String(value))])} />
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
  const { query } = useRoute();
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
      <Form inline button="Show" onSubmit={async (values) => setQuery(values)}>
        <Field name="months" label="Months" type="number" min={1} value={String(count)} />
      </Form>
      <p class="quiet">Messages that were published, by month (UTC).</p>
      <Shown of={loaded}>
        {(rows) => (
          <Table
            label="Usage by project"
            rows={rows}
            columns={columns}
            rowKey={(row) => row.project}
            text={(row) => row.project}
            empty={<p>There are no projects yet.</p>}
          />
        )}
      </Shown>
    </Page>
  );
}

import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../api";
import { settled, shown } from "../testing";
import { Acts } from "./actions";
import { ErrorNote, Guarded } from "./basics";
import { Field, Form, type Values } from "./form";
import { MessageCard } from "./message";
import { arranged, type Column, Table } from "./table";

interface Row {
  name: string;
  size: number;
}
const COLUMNS: Column<Row>[] = [
  { id: "name", title: "Name", by: (row) => row.name, cell: (row) => row.name },
  { id: "size", title: "Size", by: (row) => row.size, cell: (row) => row.size },
];
const rows = (count: number) =>
  Array.from({ length: count }, (_, at) => ({ name: `site-${at}`, size: (at * 7) % count }));

test("of ten thousand rows only those in sight are in the page", async () => {
  const place = await shown(<Table label="Sites" rows={rows(10_000)} columns={COLUMNS} rowKey={(row) => row.name} />);
  assert.ok(place.querySelectorAll("tbody tr").length < 100);
  assert.equal(place.querySelector("table")?.getAttribute("aria-rowcount"), "10001");
});

test("a search finds rows that have all its words, and sorting goes by what the column says", () => {
  const all = rows(20);
  assert.deepEqual(
    arranged(all, COLUMNS, "SITE -19", "").map((row) => row.name),
    ["site-19"],
  );
  assert.deepEqual(
    arranged(all, COLUMNS, "", "-size").map((row) => row.size),
    Array.from({ length: 20 }, (_, at) => 19 - at),
  );
  assert.equal(arranged(all, COLUMNS, "", "nothing"), all);
});

test("what was typed stays when the service refuses it, and the refusal is said", async () => {
  const given: Values[] = [];
  const refuse = async (values: Values) => {
    given.push(values);
    throw new ApiError(400, "Invalid topic name", "r-2");
  };
  const place = await shown(
    <Form button="Make it" onSubmit={refuse}>
      <Field name="name" label="Name" />
    </Form>,
  );
  const field = place.querySelector("input") as HTMLInputElement;
  field.value = "bad name";
  place.querySelector("form")?.dispatchEvent(new Event("submit", { cancelable: true }));
  await settled();
  assert.deepEqual(given, [{ name: "bad name" }]);
  assert.equal(field.value, "bad name");
  assert.match(place.querySelector('[role="alert"]')?.textContent ?? "", /400 Invalid topic name.*r-2/);
});

test("every field has a label", async () => {
  const place = await shown(<Field name="token" label="Token" hint="64 digits" />);
  const field = place.querySelector("input");
  assert.equal(place.querySelector("label")?.getAttribute("for"), field?.id);
  assert.equal(place.querySelector(".hint")?.id, field?.getAttribute("aria-describedby"));
});

test("what cannot be undone waits for its name", async () => {
  let done = 0;
  const act = async () => void done++;
  const place = await shown(<Acts action={{ label: "Delete", typed: ["readings", "All is lost."], run: act }} />);
  (place.querySelector("button") as HTMLButtonElement).click();
  await settled();
  const go = () => place.querySelector('button[type="submit"]') as HTMLButtonElement;
  const type = async (text: string) => {
    const field = place.querySelector("dialog input") as HTMLInputElement;
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    await settled();
  };
  assert.equal(go().disabled, true);
  await type("reading");
  assert.equal(go().disabled, true);
  await type("readings");
  assert.equal(go().disabled, false);
  assert.equal(done, 0);
});

test("a message's markup is text, and a long body is cut with a way to more", async () => {
  const markup = "<img src=x onerror=alert(1)>";
  const message = {
    messageId: "1",
    publishTime: "2026-01-01T00:00:00Z",
    data: btoa(markup + "x".repeat(5000)),
    attributes: { [markup]: markup },
  };
  const place = await shown(<MessageCard message={message} view="auto" />);
  assert.equal(place.querySelector("img"), null);
  assert.equal(place.querySelector("pre")?.textContent?.length, 2000);
  assert.ok(place.textContent?.includes(markup));
  assert.ok([...place.querySelectorAll("button")].some((button) => button.textContent?.startsWith("Show more")));
});

test("an error without an answer has neither a code nor an id", async () => {
  const place = await shown(<ErrorNote error={new ApiError(0, "The service cannot be reached")} />);
  assert.equal(place.textContent, "The service cannot be reached");
});

test("a page that cannot be shown leaves what is around it, and is shown when tried again", async () => {
  let broken = true;
  const Broken = () => {
    if (broken) throw new RangeError("Invalid array length");
    return <p>whole</p>;
  };
  const page = (
    <main>
      <h1>Around</h1>
      <Guarded>
        <Broken />
      </Guarded>
    </main>
  );
  const place = await shown(page);
  assert.match(place.textContent ?? "", /^AroundInvalid array length/);
  broken = false;
  (place.querySelector("button") as HTMLButtonElement).click();
  await settled();
  assert.equal(place.textContent, "Aroundwhole");
});

/** The message browser of a topic: by id, by time, by attribute, or as they come. */
import { call } from "../api";
import { number, plural } from "../format";
import { useTail } from "../live";
import { useGet, useLoad } from "../load";
import { Button, Empty, ErrorNote, Note, shown } from "../parts/basics";
import { Form, field, type Values } from "../parts/form";
import { MessageCard, VIEWS, type View } from "../parts/message";
import { attributeFilter, find, offsetAt } from "../reading";
import { setQuery, useQuery } from "../router";
import type { Offsets, Revision } from "../wire";
import type { TopicProps } from "./topics";

const AT_ONCE = 25;
const TAILED = 200;

/** Of an id and a time the one that is typed last is meant. */
function empties(other: string) {
  return ({ form }: HTMLInputElement) => {
    (form?.elements.namedItem(other) as HTMLInputElement).value = "";
  };
}

type Showing = TopicProps & { view: View; revisions: Revision[] | undefined };

export function Messages(props: TopicProps) {
  const [from] = useQuery("from");
  const [attr] = useQuery("attr");
  const [view, setView] = useQuery("view", "auto");
  const [tail] = useQuery("tail");
  const { schema } = props.topic;
  const { data } = useGet<{ revisions: Revision[] }>(schema ? `/${schema}:revisions` : null);
  const show = async ({ id = "", time, attr = "" }: Values) => {
    const at = time ? String(await offsetAt(props.base, new Date(time))) : id.trim();
    setQuery({ from: at, before: null, attr: attr.trim(), tail: null });
  };
  const follow = () => setQuery({ tail: tail ? null : "1", from: null, before: null });
  const Shows = tail ? Tail : Browse;
  return (
    <>
      <Form
        inline
        button="Show"
        onSubmit={show}
        fields={[
          field("id", "From id", {
            type: "number",
            min: 0,
            value: from,
            placeholder: "newest",
            onInput: empties("time"),
          }),
          field("time", "From a time", { type: "datetime-local", onInput: empties("id") }),
          field("attr", "Attributes", { value: attr, placeholder: "lang=en site" }),
          field("view", "Show bodies", { value: view, onInput: ({ value }) => setView(value), options: VIEWS }),
        ]}>
        <Button label={tail ? "Stop following" : "Follow live"} pressed={tail !== ""} onClick={follow} />
      </Form>
      <Shows {...props} view={view as View} revisions={data?.revisions} />
    </>
  );
}

function Browse({ project, name, base, view, revisions }: Showing) {
  const [from] = useQuery("from");
  const [before] = useQuery("before");
  const [attr] = useQuery("attr");
  const loaded = useLoad([base, from, before, attr].join(" "), async (signal) => {
    const bounds = await call<Offsets>(`${base}:offsets`, { signal });
    const at = Number(from || before || bounds.max);
    return { bounds, ...(await find(base, bounds, at, from === "", AT_ONCE, attributeFilter(attr), signal)) };
  });
  const none = (
    <Empty command={`ams publish ${name} --project ${project} --data "hello"`}>
      There are no messages in this topic now. Publish one on the tab beside, or in a terminal:
    </Empty>
  );
  const show = (which: "from" | "before", id: number | "") =>
    setQuery({ from: null, before: null, [which]: String(id) });
  return shown(loaded, ({ bounds: { min, max }, messages, first, next }) => (
    <>
      <nav class="pager" aria-label="Messages">
        <Button label="Oldest" disabled={min >= first} onClick={() => show("from", min)} />
        <Button label="Older" disabled={min >= first} onClick={() => show("before", first)} />
        <span class="quiet">
          {next > first ? `Ids ${number(first)} to ${number(next - 1)}` : "No ids"} of {number(min)} to{" "}
          {number(max - 1)}
          {attr && `, ${plural(messages.length, "message")} found`}
        </span>
        <Button label="Newer" disabled={next >= max} onClick={() => show("from", next)} />
        <Button label="Newest" onClick={() => (from || before ? show("from", "") : loaded.reload())} />
      </nav>
      {messages.toReversed().map((message) => (
        <MessageCard key={message.offset} message={message} view={view} revisions={revisions} />
      ))}
      {max === min && none}
      {messages.length === 0 && max > min && (
        <Empty>None of these messages is what is searched for. Go on with “Older” or “Newer”.</Empty>
      )}
    </>
  ));
}

function Tail({ project, name, view, revisions }: Showing) {
  const [attr] = useQuery("attr");
  const tail = useTail(project, name, TAILED);
  const wanted = attributeFilter(attr);
  const said = "Following: messages appear here as they are published, the newest first.";
  return (
    <>
      {tail.error && <ErrorNote error={tail.error} />}
      <p class="quiet" role="status">
        {tail.state === "connecting" ? "Connecting…" : said}
      </p>
      {tail.skipped > 0 && <Note tone="warn">{plural(tail.skipped, "message")} came too fast to be shown here.</Note>}
      {tail.messages
        .filter(({ message }) => wanted?.(message) ?? true)
        .map(({ offset, message }) => (
          <MessageCard key={offset} message={message} view={view} revisions={revisions} />
        ))}
    </>
  );
}

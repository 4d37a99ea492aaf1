/** The message browser of a topic: by id, by time, by attribute, or as they come. */
import { call } from "../api";
import { number, plural } from "../format";
import { useTail } from "../live";
import { useGet, useLoad } from "../load";
import { Button, Empty, ErrorNote, Note, shown } from "../parts/basics";
import { Form, field, type Values } from "../parts/form";
import { MessageCard, VIEWS, type View } from "../parts/message";
import { attributeFilter, find } from "../reading";
import { setQuery, useQuery } from "../router";
import type { Offsets, Revision, Topic } from "../wire";

const AT_ONCE = 25;
const TAILED = 200;

interface Props {
  project: string;
  name: string;
  base: string;
}
interface Showing extends Props {
  view: View;
  revisions: Revision[] | undefined;
}

export function Messages({ topic, ...props }: Props & { topic: Topic }) {
  const [from] = useQuery("from");
  const [attr] = useQuery("attr");
  const [view, setView] = useQuery("view", "auto");
  const [tail] = useQuery("tail");
  const { data } = useGet<{ revisions: Revision[] }>(topic.schema ? `/${topic.schema}:revisions` : null);
  const show = async ({ id = "", time, attr = "" }: Values) => {
    const at = time ? await offsetAt(props.base, new Date(time)) : id.trim();
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
          field("id", "From id", { type: "number", min: 0, value: from, placeholder: "newest" }),
          field("time", "From a time", { type: "datetime-local" }),
          field("attr", "Attributes", { value: attr, placeholder: "lang=en site" }),
          field("view", "Show bodies", { value: view, onInput: setView, options: VIEWS }),
        ]}>
        <Button label={tail ? "Stop following" : "Follow live"} pressed={tail !== ""} onClick={follow} />
      </Form>
      <Shows {...props} view={view as View} revisions={data?.revisions} />
    </>
  );
}

async function offsetAt(base: string, time: Date): Promise<string> {
  const found = await call<{ offset: number }>(`${base}:timeToOffset`, { query: { time: time.toISOString() } });
  return String(found.offset);
}

function Browse({ project, name, base, ...showing }: Showing) {
  const [from] = useQuery("from");
  const [before] = useQuery("before");
  const [attr] = useQuery("attr");
  const loaded = useLoad([base, from, before, attr].join(" "), async (signal) => {
    const bounds = await call<Offsets>(`${base}:offsets`, { signal });
    const at = from !== "" ? Number(from) : before !== "" ? Number(before) : bounds.max;
    return { bounds, ...(await find(base, bounds, at, from === "", AT_ONCE, attributeFilter(attr), signal)) };
  });
  return shown(loaded, ({ bounds, messages, first, next }) => (
    <>
      <nav class="pager" aria-label="Messages">
        <Button label="Oldest" disabled={bounds.min >= first} onClick={() => show({ from: bounds.min })} />
        <Button label="Older" disabled={bounds.min >= first} onClick={() => show({ before: first })} />
        <span class="quiet">
          {next > first ? `Ids ${number(first)} to ${number(next - 1)}` : "No ids"} of {number(bounds.min)} to{" "}
          {number(bounds.max - 1)}
          {attr && `, ${plural(messages.length, "message")} found`}
        </span>
        <Button label="Newer" disabled={next >= bounds.max} onClick={() => show({ from: next })} />
        <Button label="Newest" onClick={() => (from || before ? show({}) : loaded.reload())} />
      </nav>
      {messages.toReversed().map((message) => (
        <MessageCard key={message.offset} message={message} {...showing} />
      ))}
      {messages.length === 0 &&
        (bounds.max === bounds.min ? (
          <Empty command={`ams publish ${name} --project ${project} --data "hello"`}>
            There are no messages in this topic now. Publish one on the tab beside, or in a terminal:
          </Empty>
        ) : (
          <Empty>None of these messages is what is searched for. Go on with “Older” or “Newer”.</Empty>
        ))}
    </>
  ));
}

/** Show messages from an id on, or the last before one, or the newest. */
function show({ from, before }: { from?: number; before?: number }): void {
  setQuery({ from: from === undefined ? null : String(from), before: before === undefined ? null : String(before) });
}

function Tail({ project, name, view, revisions }: Showing) {
  const [attr] = useQuery("attr");
  const tail = useTail(project, name, TAILED);
  const wanted = attributeFilter(attr);
  const shown = wanted ? tail.messages.filter(({ message }) => wanted(message)) : tail.messages;
  const said = "Following: messages appear here as they are published, the newest first.";
  return (
    <>
      {tail.error && <ErrorNote error={tail.error} />}
      <p class="quiet" role="status">
        {tail.state === "connecting" ? "Connecting…" : said}
      </p>
      {tail.skipped > 0 && <Note tone="warn">{plural(tail.skipped, "message")} came too fast to be shown here.</Note>}
      {shown.map(({ offset, message }) => (
        <MessageCard key={offset} message={message} view={view} revisions={revisions} />
      ))}
    </>
  );
}

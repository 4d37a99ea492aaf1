/** The message browser of a topic: by id, by attribute, or as they come. */
import { call } from "../api";
import { number, plural } from "../format";
import { useTail } from "../live";
import { useGet, useLoad } from "../load";
import { Button, Empty, ErrorNote, Note, Shown } from "../parts/basics";
import { Field, Form, type Values } from "../parts/form";
import { MessageCard, VIEWS, type View } from "../parts/message";
import { attributeFilter, find } from "../reading";
import { setQuery, useQuery } from "../router";
import type { Offsets, Schema, Topic } from "../types";

const AT_ONCE = 25;
const TAILED = 200;

export function Messages(props: { project: string; topic: Topic; name: string }) {
  const base = `/projects/${props.project}/topics/${props.name}`;
  const [view] = useQuery("view", "auto");
  const [tail] = useQuery("tail");
  const schema = useGet<Schema>(props.topic.schema ? `/${props.topic.schema}` : null);
  const shown = { view: view as View, schema: schema.data };
  return (
    <>
      <Controls base={base} />
      {tail ? (
        <Tail {...props} {...shown} />
      ) : (
        <Browse base={base} project={props.project} name={props.name} {...shown} />
      )}
    </>
  );
}

function Controls({ base }: { base: string }) {
  const [from] = useQuery("from");
  const [attributes] = useQuery("attr");
  const [view, setView] = useQuery("view", "auto");
  const [tail] = useQuery("tail");
  const show = async ({ id = "", time, attr = "" }: Values) => {
    const at = time ? await offsetAt(base, new Date(time)) : id.trim();
    setQuery({ from: at, before: null, attr: attr.trim(), tail: null });
  };
  const follow = () => setQuery({ tail: tail ? null : "1", from: null, before: null });
  return (
    <Form inline button="Show" onSubmit={show}>
      <Field name="id" label="From id" type="number" min={0} value={from} placeholder="newest" />
      <Field name="time" label="From a time" type="datetime-local" />
      <Field name="attr" label="Attributes" value={attributes} placeholder="lang=en site" />
      <Field name="view" label="Show bodies" value={view} onInput={setView} options={VIEWS} />
      <Button label={tail ? "Stop following" : "Follow live"} pressed={tail !== ""} onClick={follow} />
    </Form>
  );
}

async function offsetAt(base: string, time: Date): Promise<string> {
  const found = await call<{ offset: number }>(`${base}:timeToOffset`, { query: { time: time.toISOString() } });
  return String(found.offset);
}

interface Showing {
  view: View;
  schema: Schema | null;
}

function Browse(props: Showing & { base: string; project: string; name: string }) {
  const { base } = props;
  const [from] = useQuery("from");
  const [before] = useQuery("before");
  const [attr] = useQuery("attr");
  const loaded = useLoad([base, from, before, attr].join(" "), async (signal) => {
    const bounds = await call<Offsets>(`${base}:offsets`, { signal });
    const backward = from === "";
    const at = backward ? (before === "" ? bounds.max : Number(before)) : Number(from);
    return { bounds, ...(await find(base, bounds, at, backward, AT_ONCE, attributeFilter(attr), signal)) };
  });
  return (
    <Shown of={loaded}>
      {({ bounds, messages, first, next }) => (
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
            <MessageCard key={message.offset} message={message} {...props} />
          ))}
          {messages.length === 0 &&
            (bounds.max === bounds.min ? (
              <Empty command={`ams publish ${props.name} --project ${props.project} --data "hello"`}>
                There are no messages in this topic now. Publish one on the tab beside, or in a terminal:
              </Empty>
            ) : (
              <Empty>None of these messages is what is searched for. Go on with “Older” or “Newer”.</Empty>
            ))}
        </>
      )}
    </Shown>
  );
}

/** Show messages from an id on, or the last before one, or the newest. */
function show({ from, before }: { from?: number; before?: number }): void {
  setQuery({ from: from === undefined ? null : String(from), before: before === undefined ? null : String(before) });
}

function Tail(props: Showing & { project: string; name: string }) {
  const [attr] = useQuery("attr");
  const tail = useTail(props.project, props.name, true, TAILED);
  const wanted = attributeFilter(attr);
  const shown = wanted ? tail.messages.filter(({ message }) => wanted(message)) : tail.messages;
  return (
    <>
      {tail.error && <ErrorNote error={tail.error} />}
      <p class="quiet" role="status">
        {tail.state === "connecting"
          ? "Connecting…"
          : "Following: messages appear here as they are published, the newest first."}
      </p>
      {tail.skipped > 0 && <Note tone="warn">{plural(tail.skipped, "message")} came too fast to be shown here.</Note>}
      {shown.map(({ offset, message }) => (
        <MessageCard key={offset} message={message} {...props} />
      ))}
    </>
  );
}

/** A message: where it is, its attributes, and its body as JSON, Avro, text or bytes; never as anything that could run. */
import { useMemo, useState } from "preact/hooks";
import { decodeAvro } from "../avro";
import { bytes as inBytes, plural } from "../format";
import { asHex, asJson, asText, fromBase64, visible } from "../text";
import type { Message, Schema } from "../types";
import { Badge, Button, Copy, Time } from "./basics";
import type { Choice } from "./form";

const CUT = 2000;
const LONG = 200_000;
const FEW_ATTRIBUTES = 12;
const MOST_ATTRIBUTES = 10_000;

export type View = "auto" | "json" | "text" | "hex" | "avro";
export const VIEWS: Choice[] = [
  ["auto", "as it is best read"],
  ["json", "JSON"],
  ["text", "text"],
  ["hex", "hex"],
];

/** The body as text, in the form asked for where it has it, and the name of that form. */
export function bodyOf(data: Uint8Array, view: View, schema: Schema | null, most: number): [string, string] {
  if (view === "hex") return [asHex(data, most), "hex"];
  if (schema?.type.toLowerCase() === "avro" && view === "auto") {
    try {
      return [JSON.stringify(decodeAvro(schema.schema, data), null, 2), "Avro"];
    } catch {
      // Older than its schema, or of an older revision.
    }
  }
  const text = asText(data);
  if (text === null) return [asHex(data, most), "hex"];
  const json = view === "text" ? null : asJson(text);
  return json === null ? [text, "text"] : [json, "JSON"];
}

export function MessageCard(props: {
  message: Message;
  orderingKey?: string | undefined;
  view: View;
  schema?: Schema | null;
  notes?: preact.ComponentChildren;
}) {
  const { message, view, schema = null } = props;
  const [whole, setWhole] = useState(false);
  const data = useMemo(() => fromBase64(message.data ?? ""), [message.data]);
  const [text, form] = useMemo(() => bodyOf(data, view, schema, whole ? LONG : CUT / 4), [data, view, schema, whole]);
  const shown = visible(text.slice(0, whole ? LONG : CUT));
  const cut = form === "hex" ? data.length > CUT / 4 : text.length > CUT;
  const key = props.orderingKey ?? message.orderingKey;
  return (
    <article class="message" aria-label={`Message ${message.messageId}`}>
      <header>
        <strong>{message.messageId}</strong>
        <Time at={message.publishTime} age />
        <Badge>
          {form}, {inBytes(data.length)}
        </Badge>
        {key && <Badge>key {visible(key.slice(0, 80))}</Badge>}
        <span class="actions">{props.notes}</span>
      </header>
      <Attributes all={message.attributes ?? {}} />
      {data.length > 0 ? <Body>{shown}</Body> : <p class="quiet">It has attributes only.</p>}
      {data.length > 0 && (
        <footer>
          {cut && !whole && (
            <Button label={`Show more of ${inBytes(data.length)}`} quiet onClick={() => setWhole(true)} />
          )}
          {cut && whole && text.length > LONG && <span class="quiet">The rest is in the download.</span>}
          {form !== "hex" && <Copy text={text} />}
          <Button label="Download" quiet onClick={() => download(data, `${message.messageId}.bin`)} />
        </footer>
      )}
    </article>
  );
}

function Body(props: { children: string }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
    <pre dir="ltr" tabIndex={0}>
      {props.children}
    </pre>
  );
}

function Attributes(props: { all: Record<string, string> }) {
  const [every, setEvery] = useState(false);
  const all = Object.entries(props.all);
  if (all.length === 0) return null;
  return (
    <>
      <dl class="attributes">
        {all.slice(0, every ? MOST_ATTRIBUTES : FEW_ATTRIBUTES).map(([name, value]) => (
          <Attribute key={name} name={name} value={value} />
        ))}
      </dl>
      {all.length > FEW_ATTRIBUTES && !every && (
        <Button label={`Show all ${plural(all.length, "attribute")}`} quiet onClick={() => setEvery(true)} />
      )}
    </>
  );
}

function Attribute(props: { name: string; value: string }) {
  const [whole, setWhole] = useState(false);
  const long = props.value.length > 200;
  return (
    <div>
      <dt>{visible(props.name.slice(0, whole ? undefined : 100))}</dt>
      <dd>
        {visible(whole ? props.value : props.value.slice(0, 200))}
        {long && !whole && (
          <Button
            label={`…show all of ${plural(props.value.length, "character")}`}
            quiet
            onClick={() => setWhole(true)}
          />
        )}
      </dd>
    </div>
  );
}

export function download(data: Uint8Array | string, name: string): void {
  const address = URL.createObjectURL(new Blob([data as BlobPart]));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}

/** A message: where it is, its attributes, and its body as JSON, Avro, Protocol Buffers, text or bytes; never as anything that could run. */
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { decodeAvro } from "../avro";
import { bytes as inBytes, plural } from "../format";
import { decodeProtobuf } from "../protobuf";
import { asHex, asJson, asText, fromBase64, visible } from "../text";
import type { PulledMessage, Revision } from "../wire";
import { Badge, Button, Copy, Time } from "./basics";

const CUT = 2000;
/** Characters that a byte takes in hex, about. */
const HEX = 5;
const LONG = 200_000;
const FEW_ATTRIBUTES = 12;
const LONG_NAME = 100;
const LONG_VALUE = 200;

export const VIEWS = { auto: "as it is best read", json: "JSON", text: "text", hex: "hex" };
export type View = keyof typeof VIEWS;

const DECODERS: Record<string, [(schema: unknown, data: Uint8Array) => unknown, string]> = {
  avro: [decodeAvro, "Avro"],
  protobuf: [decodeProtobuf, "Protocol Buffers"],
};

/** The body as text, in the form asked for where it has it, and the name of that form. */
function bodyOf(data: Uint8Array, view: View, revisions: Revision[], most: number): [string, string] {
  if (view === "hex") return [asHex(data, most / HEX), "hex"];
  for (const { type, schema } of view === "auto" ? revisions : []) {
    const [decode, form] = DECODERS[type.toLowerCase()] ?? [];
    if (!decode || !form) continue;
    try {
      return [JSON.stringify(decode(schema, data), null, 2), form];
    } catch {
      // Of an earlier revision, or older than its schema.
    }
  }
  const text = asText(data);
  if (text === null) return [asHex(data, most / HEX), "hex"];
  const json = view === "text" ? null : asJson(text);
  return json === null ? [text, "text"] : [json, "JSON"];
}

const NONE: Revision[] = [];

interface MessageProps {
  message: PulledMessage & { orderingKey?: string };
  orderingKey?: string | undefined;
  view: View;
  /** Of the schema that its topic has, the newest first. */
  revisions?: Revision[] | undefined;
  children?: ComponentChildren;
}

export function MessageCard(props: MessageProps) {
  const { message, view, revisions = NONE } = props;
  const [whole, setWhole] = useState(false);
  const data = useMemo(() => fromBase64(message.data ?? ""), [message.data]);
  const most = whole ? LONG : CUT;
  const [text, form] = useMemo(() => bodyOf(data, view, revisions, most), [data, view, revisions, most]);
  const shown = visible(text.slice(0, most));
  const cut = (form === "hex" ? data.length * HEX : text.length) > most;
  const size = inBytes(data.length);
  const key = props.orderingKey ?? message.orderingKey;
  return (
    <article class="message" aria-label={`Message ${message.messageId}`}>
      <header>
        <strong>{message.messageId}</strong>
        <Time at={message.publishTime} age />
        <Badge>{`${form}, ${size}`}</Badge>
        {key && <Badge>key {visible(key.slice(0, 80))}</Badge>}
        <span class="actions">{props.children}</span>
      </header>
      <Attributes all={message.attributes ?? {}} />
      {data.length === 0 && <p class="quiet">It has attributes only.</p>}
      {data.length > 0 && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
        <pre dir="ltr" tabIndex={0}>
          {shown}
        </pre>
      )}
      {data.length > 0 && (
        <footer>
          {cut && !whole && <Button label={`Show more of ${size}`} quiet onClick={() => setWhole(true)} />}
          {cut && whole && <span class="quiet">The rest is in the download.</span>}
          {form !== "hex" && <Copy text={text} />}
          <Button label="Download" quiet onClick={() => download(data, `${message.messageId}.bin`)} />
        </footer>
      )}
    </article>
  );
}

function Attributes(props: { all: Record<string, string> }) {
  const [every, setEvery] = useState(false);
  const all = Object.entries(props.all);
  if (all.length === 0) return null;
  const isLong = ([name, value]: [string, string]) => name.length > LONG_NAME || value.length > LONG_VALUE;
  const cut = !every && (all.length > FEW_ATTRIBUTES || all.some(isLong));
  return (
    <>
      <dl class="attributes">
        {all.slice(0, every ? undefined : FEW_ATTRIBUTES).map(([name, value]) => (
          <div key={name}>
            <dt>{visible(name.slice(0, every ? undefined : LONG_NAME))}</dt>
            <dd>{visible(value.slice(0, every ? undefined : LONG_VALUE))}</dd>
          </div>
        ))}
      </dl>
      {cut && (
        <Button label={`Show all ${plural(all.length, "attribute")} whole`} quiet onClick={() => setEvery(true)} />
      )}
    </>
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

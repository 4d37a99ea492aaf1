/** Forms: fields with labels, and a button that says how it went in the place where it was pressed. */
import type { ComponentChildren, InputHTMLAttributes } from "preact";
import { useId, useRef, useState } from "preact/hooks";
import { shortName } from "../format";
import { useGet } from "../load";
import { Button, ErrorNote, Note } from "./basics";

export type Values = Record<string, string>;

/** What the browser itself does with a field. */
type Own = "required" | "placeholder" | "min" | "max" | "pattern" | "title";

export interface FieldProps extends Partial<Pick<InputHTMLAttributes<HTMLInputElement>, Own>> {
  /** Under which the form gives what is in it. */
  name: string;
  label: string;
  value?: string | undefined;
  hint?: string;
  /** One that is ticked gives `on`, else nothing. */
  type?: "number" | "password" | "email" | "url" | "date" | "datetime-local" | "checkbox";
  checked?: boolean | undefined;
  rows?: number;
  /** What each value is called. */
  options?: Record<string, string>;
  /** A path whose last part is a kind of things, as `/projects/P/topics`: their names are options, too. */
  from?: string | null;
  autofocus?: boolean;
  onInput?: (input: HTMLInputElement) => void;
}

export function field(name: string, label: string, more: Omit<FieldProps, "name" | "label"> = {}): FieldProps {
  return { name, label, ...more };
}

export function tick(name: string, label: string, checked?: boolean): FieldProps {
  return field(name, label, { type: "checkbox", checked });
}

/** A line of text, several with `rows`, or a choice with `options`. What is typed stays until the page is left. */
export function Field(props: FieldProps) {
  const { label, value, checked, hint, rows, options, from = null, onInput, autofocus, type, ...rest } = props;
  const id = useId();
  const met = useRef(false);
  const found = useGet<Record<string, { name: string }[]>>(from).data?.[shortName(from ?? "")] ?? [];
  const named = found.map(({ name }) => [name.replace(/^\//, ""), shortName(name)] as const);
  const common = {
    ...rest,
    id,
    "aria-describedby": hint ? `${id}-hint` : undefined,
    onInput: (event: Event) => onInput?.(event.target as HTMLInputElement),
    // A dialog goes by the attribute when it opens, a page by the call.
    autofocus: autofocus ?? false,
    ref: (element: HTMLElement | null) => {
      if (autofocus && element && !met.current) element.focus();
      met.current = true;
    },
  };
  const chosen = [...Object.entries(options ?? {}), ...named].map(([each, name]) => (
    <option key={each} value={each} selected={each === value}>
      {name}
    </option>
  ));
  const typed = { defaultValue: value, spellcheck: false };
  const line = { type: (type ?? "text") as "text", autocomplete: "off", defaultChecked: checked };
  const isChoice = Boolean(options || from);
  return (
    <div class={type === "checkbox" ? "check" : "field"}>
      <label for={id}>{label}</label>
      {isChoice && <select {...common}>{chosen}</select>}
      {rows && <textarea rows={rows} {...typed} {...common} />}
      {!isChoice && !rows && <input {...line} {...typed} {...common} />}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

interface FormProps {
  children?: ComponentChildren;
  fields?: (FieldProps | false)[] | undefined;
  button: string;
  /** What the form does with what is in its fields; the text it returns is said when it went well. */
  onSubmit: (values: Values) => Promise<unknown>;
  /** Of what cannot be undone: a name that has to be typed before. */
  typed?: string | undefined;
  inline?: boolean;
  onCancel?: () => void;
}

export function Form({ fields = [], typed, ...props }: FormProps) {
  const { said, busy, run } = useAct();
  const [name, setName] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    void run(() => props.onSubmit(Object.fromEntries([...given].map(([name, value]) => [name, String(value)]))));
  };
  const refused = busy || (typed !== undefined && typed !== name);
  return (
    <form onSubmit={submit} class={props.inline ? "inline" : ""}>
      {fields.map((field) => field && <Field key={field.name} {...field} />)}
      {props.children}
      {typed && (
        <Field name="typed" label={`Type ${typed} to go on`} onInput={({ value }) => setName(value)} autofocus />
      )}
      <div class="actions">
        <button type="submit" class={typed ? "danger" : "primary"} disabled={refused}>
          {props.button}
        </button>
        {props.onCancel && <Button label="Cancel" onClick={props.onCancel} />}
      </div>
      {said}
    </form>
  );
}

/** A button that does one thing, and says beside it how that went. */
export function Act(props: { label: string; act: () => Promise<unknown>; primary?: boolean }) {
  const { said, busy, run } = useAct();
  return (
    <>
      <button type="button" class={props.primary ? "primary" : ""} onClick={() => run(props.act)} disabled={busy}>
        {props.label}
      </button>
      {said}
    </>
  );
}

/** Runs one thing at a time; `said` is the text it returned, or its error. */
function useAct() {
  const [outcome, setOutcome] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const run = async (act: () => Promise<unknown>) => {
    if (busy) return;
    setBusy(true);
    setOutcome(await act().catch((failure: Error) => failure));
    setBusy(false);
  };
  const failed = outcome instanceof Error && <ErrorNote error={outcome} />;
  return { said: failed || (typeof outcome === "string" && <Note tone="good">{outcome}</Note>), busy, run };
}

const RULE = "Letters, digits, - and _";
const NAMED = { pattern: "[\\w\\-]+", title: RULE, hint: RULE };
export const NAME = field("name", "Name", { required: true, autofocus: true, ...NAMED });

/** Attributes of a message, as `attributesOf` reads them. */
export const ATTRIBUTES = field("attributes", "Attributes", { rows: 3, hint: "One name=value a line" });
export const TOKEN = field("token", "Token", { type: "password", required: true, autofocus: true });

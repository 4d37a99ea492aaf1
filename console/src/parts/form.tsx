/** Forms: fields with labels, and a button that says how it went in the place where it was pressed. */
import type { ComponentChildren } from "preact";
import { useId, useRef, useState } from "preact/hooks";
import { shortName } from "../format";
import { useGet } from "../load";
import { Button, ErrorNote, Note } from "./basics";

export type Values = Record<string, string>;
export type Choice = [value: string, label: string];

export interface FieldProps {
  /** Under which the form gives what is in it. */
  name: string;
  label: string;
  /** What is in it at first. */
  value?: string | undefined;
  hint?: string;
  type?: "number" | "password" | "email" | "url" | "date" | "datetime-local";
  rows?: number;
  options?: Choice[];
  /** A path whose last part is a kind of things, as `/projects/P/topics`: their names are options, too. */
  from?: string | null;
  required?: boolean;
  placeholder?: string;
  autofocus?: boolean;
  min?: number;
  onInput?: (value: string) => void;
}

/** A line of text, several with `rows`, or a choice with `options`. What is typed stays until the page is left. */
export function Field({ label, value, hint, rows, options, from, onInput, autofocus, type, ...rest }: FieldProps) {
  const id = useId();
  const met = useRef(false);
  const found = useGet<Record<string, { name: string }[]>>(from ?? null).data?.[from?.split("/").at(-1) ?? ""] ?? [];
  const named = found.map(({ name }): Choice => [name.replace(/^\//, ""), shortName(name)]);
  const choices = options || from ? [...(options ?? []), ...named] : null;
  const common = {
    ...rest,
    id,
    "aria-describedby": hint ? `${id}-hint` : undefined,
    onInput: (event: Event) => onInput?.((event.target as HTMLInputElement).value),
    // A dialog goes by the attribute when it opens, a page by the call.
    autofocus: autofocus ?? false,
    ref: (element: HTMLElement | null) => {
      if (autofocus && element && !met.current) element.focus();
      met.current = true;
    },
  };
  const chosen = choices?.map(([each, name]) => (
    <option key={each} value={each} selected={each === value}>
      {name}
    </option>
  ));
  const line = { type: (type ?? "text") as "text", autocomplete: "off", spellcheck: false, defaultValue: value };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {chosen && <select {...common}>{chosen}</select>}
      {rows && <textarea rows={rows} spellcheck={false} defaultValue={value} {...common} />}
      {!chosen && !rows && <input {...line} {...common} />}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

/** The form gives `on` under its name when it is ticked. */
export function Check(props: { name: string; label: string; checked?: boolean | undefined }) {
  const id = useId();
  return (
    <div class="check">
      <input id={id} name={props.name} type="checkbox" defaultChecked={props.checked ?? false} />
      <label for={id}>{props.label}</label>
    </div>
  );
}

/** A field of a form, or something to tick. */
export type Asked = FieldProps | { name: string; tick: string; checked?: boolean | undefined };

interface FormProps {
  children?: ComponentChildren;
  fields?: (Asked | false)[] | undefined;
  button: string;
  /** What the form does with what is in its fields; the text it returns is said when it went well. */
  onSubmit: (values: Values) => Promise<unknown>;
  /** Of what cannot be undone: a name that has to be typed before. */
  typed?: string | undefined;
  inline?: boolean;
  /** Called for a second button, Cancel. */
  onCancel?: () => void;
}

export function Form({ fields = [], typed, ...props }: FormProps) {
  const { said, busy, run } = useAct();
  const [name, setName] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    const values = Object.fromEntries([...given].map(([name, value]) => [name, String(value)]));
    void run(() => props.onSubmit(values));
  };
  return (
    <form onSubmit={submit} class={props.inline ? "inline" : ""}>
      {fields.map(
        (field) =>
          field &&
          ("tick" in field ? (
            <Check key={field.name} {...field} label={field.tick} />
          ) : (
            <Field key={field.name} {...field} />
          )),
      )}
      {props.children}
      {typed && <Field name="typed" label={`Type ${typed} to go on`} onInput={setName} autofocus />}
      <div class="actions">
        <button
          type="submit"
          class={typed ? "danger" : "primary"}
          disabled={busy || (typed !== undefined && typed !== name)}>
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

/** The name of something new. */
export const NAME: FieldProps = {
  name: "name",
  label: "Name",
  required: true,
  autofocus: true,
  hint: "Letters, digits, - and _",
};

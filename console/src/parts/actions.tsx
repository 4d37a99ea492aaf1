/** What can be done with something: a button, which may ask by a form in a dialog before, and show a secret after. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { remove } from "../api";
import { go } from "../router";
import { Button, Command } from "./basics";
import { Act, type FieldProps, Form, tick, type Values } from "./form";

type Run = (values: Values) => Promise<unknown>;
type Gives = "token" | "secret" | undefined;

export interface Action {
  label: string;
  primary?: boolean;
  fields?: (FieldProps | false)[];
  /** Of what cannot be undone: the name that has to be typed, and what is lost. */
  typed?: [name: string, consequence: string];
  run: Run;
  /** What of its answer is shown, once. */
  gives?: Gives;
}

export function asking(label: string, fields: FieldProps[], run: Run, gives?: Gives): Action {
  return { label, fields, run, gives };
}

/** Cannot be undone: it is done once the name was typed, under what is lost. */
export function confirmed(label: string, name: string, lost: string, run: Run, gives?: Gives): Action {
  return { label, typed: [name, lost], run, gives };
}

/** Deletes what is at a path, and goes `back` to a page. */
export function removal(label: string, name: string, lost: string, path: string, back?: string[]): Action {
  return confirmed(label, name, lost, () => remove(path).then(() => back && go(back)));
}

/** Buttons of actions, after each of which `reload` is called; `once` is the place for what is shown once. */
export function useActions(reload: () => void) {
  const [given, setGiven] = useState<[kind: string, value: string] | null>(null);
  const done = ({ gives }: Action, answer: unknown) => {
    if (gives) setGiven([gives, (answer as Record<string, string>)[gives] ?? ""]);
    reload();
  };
  const buttons = (actions: Action[]) => actions.map((each) => <Acts key={each.label} action={each} done={done} />);
  const once = given && (
    <Dialog title={`The ${given[0]}`} onClose={() => setGiven(null)} stays="I have copied it">
      <p>It is shown this once: copy it to where it is needed. The service does not show it again.</p>
      <Command text={given[1]} />
    </Dialog>
  );
  return { buttons, once };
}

export function Acts({ action, done }: { action: Action; done?: (action: Action, answer: unknown) => void }) {
  const { label, primary = false, fields, typed } = action;
  const [shown, setShown] = useState(false);
  const close = () => setShown(false);
  const run = async (values: Values) => {
    const answer = await action.run(values);
    done?.(action, answer);
    close();
  };
  if (!fields && !typed) return <Act label={label} act={() => run({})} primary={primary} />;
  return (
    <>
      <button type="button" class={primary ? "primary" : typed ? "danger" : ""} onClick={() => setShown(true)}>
        {typed ? `${label}…` : label}
      </button>
      {shown && (
        <Dialog title={typed ? `${label} ${typed[0]}` : label} onClose={close}>
          <Form button={label} fields={fields} typed={typed?.[0]} onSubmit={run} onCancel={close}>
            {typed && <p>{typed[1]}</p>}
          </Form>
        </Dialog>
      )}
    </>
  );
}

/**
 * The browser's own dialog, which keeps the focus inside and closes on Escape; one that `stays` is closed by the button of
 * that label alone.
 */
export function Dialog(props: { title: string; onClose: () => void; stays?: string; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    if (!element.current?.open) element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const cancel = (event: Event) => {
    event.preventDefault();
    if (!props.stays) props.onClose();
  };
  // Chromium closes a dialog at the second Escape, whatever was said to the first.
  const stay = () => props.stays && element.current?.isConnected && element.current.showModal();
  return (
    <dialog ref={element} aria-labelledby={id} onCancel={cancel} onClose={stay}>
      <div class="card-head">
        <h2 id={id}>{props.title}</h2>
        {!props.stays && <Button label="✕" name="Close" quiet onClick={props.onClose} />}
      </div>
      {props.children}
      {props.stays && (
        <div class="actions">
          <Button label={props.stays} onClick={props.onClose} />
        </div>
      )}
    </dialog>
  );
}

export function ticked(values: Values, names: readonly string[]): string[] {
  return names.filter((name) => values[name] === "on");
}

export function ticks(names: readonly string[], chosen: string[] = []): FieldProps[] {
  return names.map((name) => tick(name, name, chosen.includes(name)));
}

/**
 * A page of things of one kind by a description: what is asked, what a row shows, what can be made, and what can be done
 * with each. Administration is such pages.
 */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { useGet } from "../load";
import { Card, Command, Empty, Page, Shown } from "./basics";
import { Destroys, Dialog, Opens } from "./dialog";
import { Act, Check, Field, type FieldProps, Form, type Values } from "./form";
import { type Column, column, Table } from "./table";

/** A field of a form, or something to tick. */
export type Asked = FieldProps | { name: string; tick: string; checked?: boolean };

/** Something that can be done. */
export interface Action {
  label: string;
  /** What is asked before, by a form. */
  fields?: Asked[];
  /** Of what cannot be undone: the name that has to be typed, and what is lost. */
  typed?: [name: string, consequence: string];
  run: (values: Values) => Promise<unknown>;
  /** The token in its answer is shown, once. */
  gives?: "token";
}

interface Props<T> {
  title: string;
  kind?: string;
  /** Of a GET. */
  path: string;
  rows: (answer: never) => T[];
  columns: Column<T>[];
  rowKey: (row: T) => string;
  text?: (row: T) => string;
  /** What is said where there is none, with the command to copy. */
  empty: string;
  command?: string;
  make?: Action | false;
  actions?: (row: T) => Action[];
  children?: ComponentChildren;
  /** It is a part of a page. */
  inside?: boolean;
}

export function Resources<T>(props: Props<T>) {
  const { actions, make } = props;
  const loaded = useGet<unknown>(props.path);
  const { buttons, token } = useActions(loaded.reload);
  const cell = (row: T) => <div class="row-actions">{buttons(actions?.(row) ?? [])}</div>;
  const columns = actions ? [...props.columns, column("Actions", cell)] : props.columns;
  const Frame = props.inside ? Card : Page;
  return (
    <Frame
      title={props.title}
      {...(props.inside ? { wide: true } : { kind: props.kind ?? "" })}
      actions={make && buttons([make], true)}>
      {props.children}
      <Shown of={loaded}>
        {(answer) => (
          <Table
            label={`Rows of ${props.title}`}
            rows={props.rows(answer as never)}
            columns={columns}
            rowKey={props.rowKey}
            {...(props.text ? { text: props.text } : {})}
            empty={<Empty {...(props.command ? { command: props.command } : {})}>{props.empty}</Empty>}
          />
        )}
      </Shown>
      {token}
    </Frame>
  );
}

/** Buttons of actions, after each of which `reload` is called, and a place for the token that one gives. */
export function useActions(reload: () => void) {
  const [token, setToken] = useState("");
  const done = (action: Action, answer: unknown) => {
    if (action.gives) setToken((answer as { token?: string }).token ?? "");
    reload();
  };
  const buttons = (actions: Action[], primary = false) =>
    actions.map((action) => <Acts key={action.label} action={action} done={done} primary={primary} />);
  return { buttons, token: token && <Once token={token} onClose={() => setToken("")} /> };
}

interface ActsProps {
  action: Action;
  done?: (action: Action, answer: unknown) => void;
  primary?: boolean;
}

/** The button of an action. */
export function Acts(props: ActsProps) {
  const { action, primary = false } = props;
  const run = async (values: Values) => {
    const answer = await action.run(values);
    props.done?.(action, answer);
  };
  if (action.typed) {
    const [name, consequence] = action.typed;
    return <Destroys label={action.label} name={name} consequence={consequence} act={() => run({})} />;
  }
  if (!action.fields) return <Act label={action.label} act={() => run({})} primary={primary} />;
  return (
    <Opens label={action.label} primary={primary}>
      {(close) => (
        <Form
          button={action.label}
          onCancel={close}
          onSubmit={async (values) => {
            await run(values);
            close();
          }}>
          {action.fields?.map((field) =>
            "tick" in field ? (
              <Check key={field.name} name={field.name} label={field.tick} checked={field.checked} />
            ) : (
              <Field key={field.name} {...field} />
            ),
          )}
        </Form>
      )}
    </Opens>
  );
}

/** A token as it is shown once. */
function Once(props: { token: string; onClose: () => void }) {
  return (
    <Dialog title="The token" onClose={props.onClose}>
      <p>It is shown this once: copy it to where it is needed. The service does not show it again.</p>
      <Command text={props.token} />
    </Dialog>
  );
}

/** Names of what was ticked. */
export function ticked(values: Values, names: readonly string[]): string[] {
  return names.filter((name) => values[name] === "on");
}

export function ticks(names: readonly string[], chosen: string[] = []): Asked[] {
  return names.map((name) => ({ name, tick: name, checked: chosen.includes(name) }));
}

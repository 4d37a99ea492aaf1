/** Dialogs: the browser's own, which keeps the focus inside and closes on Escape. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Field, Form } from "./form";

export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    if (!element.current?.open) element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}>
      <div class="card-head">
        <h2 id={id}>{props.title}</h2>
        <button type="button" class="quiet" onClick={props.onClose} aria-label="Close">
          ✕
        </button>
      </div>
      {props.children}
    </dialog>
  );
}

/** A button that opens a dialog; its content gets a function that closes it. */
export function Opens(props: {
  label: string;
  title?: string;
  primary?: boolean;
  danger?: boolean;
  children: (close: () => void) => ComponentChildren;
}) {
  const [shown, setShown] = useState(false);
  const close = () => setShown(false);
  return (
    <>
      <button
        type="button"
        class={props.primary ? "primary" : props.danger ? "danger" : ""}
        onClick={() => setShown(true)}>
        {props.label}
      </button>
      {shown && (
        <Dialog title={props.title ?? props.label} onClose={close}>
          {props.children(close)}
        </Dialog>
      )}
    </>
  );
}

interface ConfirmedProps {
  children?: ComponentChildren;
  /** What has to be typed; without it the button alone is enough. */
  name: string | null;
  button: string;
  act: () => Promise<unknown>;
  close: () => void;
}

/** What is asked before something that cannot be undone: its name has to be typed. */
export function Confirmed(props: ConfirmedProps) {
  const { name } = props;
  const [typed, setTyped] = useState("");
  const submit = async () => {
    await props.act();
    props.close();
  };
  return (
    <Form
      button={props.button}
      danger={name !== null}
      disabled={name !== null && typed !== name}
      onSubmit={submit}
      onCancel={props.close}>
      {props.children}
      {name !== null && <Field name="typed" label={`Type ${name} to go on`} onInput={setTyped} autofocus />}
    </Form>
  );
}

/** A button for what cannot be undone; `consequence` says what is lost by it. */
export function Destroys(props: { label: string; name: string; consequence: string; act: () => Promise<unknown> }) {
  return (
    <Opens label={`${props.label}…`} title={`${props.label} ${props.name}`} danger>
      {(close) => (
        <Confirmed name={props.name} button={props.label} act={props.act} close={close}>
          <p>{props.consequence}</p>
        </Confirmed>
      )}
    </Opens>
  );
}

/** A page of things of one kind by a description: what is asked, what a row shows, and what can be done. */
import { useGet } from "../load";
import { type Action, useActions } from "./actions";
import { Card, Page, Shown } from "./basics";
import { column, Table, type TableProps } from "./table";

interface Props<T> extends Omit<TableProps<T>, "label" | "rows"> {
  title: string;
  kind?: string;
  /** Of a GET, and where in its answer the rows are. */
  path: string;
  of: string;
  make?: Action | Action[] | false;
  actions?: (row: T) => Action[];
  /** It is a part of a page. */
  inside?: boolean;
}

export function Resources<T extends object>(props: Props<T>) {
  const { title, kind = "", path, of, make, actions, inside, ...table } = props;
  const loaded = useGet<Record<string, T[]>>(path);
  const { buttons, once } = useActions(loaded.reload);
  const cell = (row: T) => <div class="row-actions">{buttons(actions?.(row) ?? [])}</div>;
  const columns = actions ? [...props.columns, column("Actions", cell)] : props.columns;
  const made = make && buttons([make].flat().map((each, at) => ({ ...each, primary: at === 0 })));
  const shown = (
    <>
      <Shown of={loaded}>
        {(answer) => (
          <Table {...table} columns={columns} label={kind ? `${title} of ${kind}` : title} rows={answer[of] ?? []} />
        )}
      </Shown>
      {once}
    </>
  );
  if (inside) return <Card wide title={title} actions={made} children={shown} />;
  return <Page title={title} kind={kind} actions={made} children={shown} />;
}

/** Pages by a description: of things of one kind, and of one thing; what is asked, what is shown, and what can be done. */
import { shortName } from "../format";
import { useGet } from "../load";
import { type Action, removal, useActions } from "./actions";
import { Card, Page, shown, type Tab, Tabs } from "./basics";
import { column, nameOf, Table, type TableProps } from "./table";

interface Props<T> extends Omit<TableProps<T>, "label" | "rows"> {
  title: string;
  kind?: string;
  /** Of a GET, and where in its answer the rows are unless they have the name of its last part. */
  path: string;
  of?: string;
  make?: Action | Action[] | false;
  actions?: (row: T) => Action[];
  /** Of rows that are deleted by a DELETE of `path` and their name: what that is called, and what is lost. */
  removed?: [label: string, consequence: string];
  /** It is a part of a page. */
  inside?: boolean;
}

export function Resources<T extends object>(props: Props<T>) {
  const { title, kind = "", path, of, make, actions, removed, inside, ...table } = props;
  const loaded = useGet<Record<string, T[]>>(path);
  const { buttons, once } = useActions(loaded.reload);
  const cell = (row: T) => {
    const all = actions?.(row) ?? [];
    if (removed) all.push(removal(removed[0], nameOf(row), removed[1], `${path}/${nameOf(row)}`));
    return <div class="row-actions">{buttons(all)}</div>;
  };
  const columns = actions || removed ? [...props.columns, column("Actions", cell)] : props.columns;
  const made = make && buttons([make].flat().map((each, at) => ({ ...each, primary: at === 0 })));
  const label = kind ? `${title} of ${kind}` : title;
  const list = of ?? shortName(path.split("?")[0]);
  const Frame = inside ? Card : Page;
  return (
    <Frame title={title} kind={kind} wide actions={made}>
      {shown(loaded, (answer) => (
        <Table {...table} columns={columns} label={label} rows={answer[list] ?? []} />
      ))}
      {once}
    </Frame>
  );
}

/** What the tabs of one thing are given. */
export interface PartProps {
  project: string;
  name: string;
  /** The path of the thing. */
  base: string;
  reload: () => void;
  admin: boolean;
}

interface OneProps<T> {
  title: string;
  kind: string;
  path: string;
  tabs: (data: T, reload: () => void) => (Tab | false)[];
  /** What can be done with it besides deleting it. */
  actions?: (data: T) => Action[];
  /** What is lost with it, and the page that is shown after; false: it cannot be deleted. */
  deleted: [consequence: string, back: string[]] | false;
}

export function Resource<T>({ title, kind, path, tabs, actions, deleted }: OneProps<T>) {
  const loaded = useGet<T>(path);
  const { buttons, once } = useActions(loaded.reload);
  const all = loaded.data ? (actions?.(loaded.data) ?? []) : [];
  if (loaded.data && deleted) all.push(removal("Delete", title, deleted[0], path, deleted[1]));
  return (
    <Page title={title} kind={kind} actions={buttons(all)}>
      {shown(loaded, (data) => (
        <Tabs tabs={tabs(data, loaded.reload)} />
      ))}
      {once}
    </Page>
  );
}

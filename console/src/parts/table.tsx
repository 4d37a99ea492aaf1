/**
 * Tables that are searched and sorted, with their state in the address. Only the rows in sight are in the page, so 10,000
 * of them scroll as ten do.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { number, plural } from "../format";
import { setQuery, useQuery, useRoute } from "../router";
import { visible } from "../text";
import { Empty, Time } from "./basics";

export interface Column<T> {
  /** Its name in the address, and of the sorting. */
  id: string;
  title: string;
  cell: (row: T) => ComponentChildren;
  /** What it is sorted by; without it the column is not sorted. */
  by?: (row: T) => string | number;
  right?: boolean;
  /** Left out where the page is narrow. */
  wide?: boolean;
}

type Look<T> = Partial<Omit<Column<T>, "title" | "cell">>;

/** A column as it is shown; its name is the title's unless `look` says another. */
export function column<T>(title: string, cell: Column<T>["cell"], look: Look<T> = {}): Column<T> {
  return { id: title.toLowerCase().replaceAll(" ", "-"), title, cell, ...look };
}

/** A column of one text or number, by which it is sorted. */
export function valued<T>(
  title: string,
  value: (row: T) => string | number | undefined,
  look: Look<T> = {},
): Column<T> {
  const cell = (row: T) => {
    const found = value(row) ?? "";
    return typeof found === "number" ? number(found) : visible(found);
  };
  return column(title, cell, { by: (row) => value(row) ?? "", ...look });
}

/** A column of times, by which it is sorted. */
export function timed<T>(title: string, at: (row: T) => string | undefined, look: Look<T> = {}): Column<T> {
  return column(title, (row) => <Time at={at(row)} />, { by: (row) => at(row) ?? "", ...look });
}

interface TableProps<T> {
  /** What the rows are, for people who hear the page: "Topics of park". */
  label: string;
  rows: T[];
  columns: Column<T>[];
  rowKey: (row: T) => string;
  /** What is searched in; without it there is no search. */
  text?: (row: T) => string;
  empty?: ComponentChildren;
  /** Told which rows are in sight, a moment after they are. */
  onSight?: (rows: T[]) => void;
  /** Stands before names in the address, where a page has two tables. */
  id?: string;
}

const ROW = 44;
const AHEAD = 8;
const ALL_BELOW = 100;

export function Table<T>(props: TableProps<T>) {
  const { rows, columns, id = "" } = props;
  const [search] = useQuery(`${id}q`);
  const [sort] = useQuery(`${id}sort`);
  const shown = useMemo(() => arranged(props, search, sort), [rows, search, sort, columns]);
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const many = shown.length > ALL_BELOW;
  const height = scroller.current?.clientHeight || 600;
  const first = many ? Math.max(0, Math.floor(top / ROW) - AHEAD) : 0;
  const last = many ? Math.min(shown.length, Math.ceil((top + height) / ROW) + AHEAD) : shown.length;
  const sight = shown.slice(first, last);
  const names = sight.map(props.rowKey).join(" ");
  useEffect(() => {
    const timer = setTimeout(() => props.onSight?.(sight), 150);
    return () => clearTimeout(timer);
  }, [names]);

  if (rows.length === 0) return <>{props.empty ?? <Empty>There is nothing here.</Empty>}</>;
  return (
    <>
      {props.text && <Search id={id} label={`Search: ${props.label}`} found={shown.length} all={rows.length} />}
      <section
        class={many ? "scroller many" : "scroller"}
        ref={scroller}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
        tabIndex={0}
        aria-label={props.label}
        onScroll={many ? () => setTop(scroller.current?.scrollTop ?? 0) : undefined}>
        <table aria-rowcount={shown.length + 1}>
          <thead>
            <tr>
              {columns.map((column) => (
                <Heading key={column.id} column={column} sort={sort} id={id} />
              ))}
            </tr>
          </thead>
          <tbody>
            {first > 0 && <tr style={{ height: `${first * ROW}px` }} />}
            {sight.map((row, at) => (
              <tr key={props.rowKey(row)} aria-rowindex={first + at + 2}>
                {columns.map((column) => (
                  <td key={column.id} class={classOf(column)}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            ))}
            {last < shown.length && <tr style={{ height: `${(shown.length - last) * ROW}px` }} />}
          </tbody>
        </table>
      </section>
      {shown.length === 0 && <Empty>Nothing of this name.</Empty>}
    </>
  );
}

function classOf<T>(column: Column<T>): string {
  return `${column.right ? "right" : ""} ${column.wide ? "if-wide" : ""}`.trim();
}

/** The rows that are searched for, sorted as the address says: `name`, or `-name` from the end. */
export function arranged<T>(
  props: Pick<TableProps<T>, "rows" | "columns" | "text">,
  search: string,
  sort: string,
): T[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const { text } = props;
  const found =
    text && words.length > 0
      ? props.rows.filter((row) => {
          const all = text(row).toLowerCase();
          return words.every((word) => all.includes(word));
        })
      : props.rows;
  const by = props.columns.find((column) => column.id === sort.replace(/^-/, ""))?.by;
  if (!by) return found;
  const turn = sort.startsWith("-") ? -1 : 1;
  const keyed = found.map((row) => ({ row, key: by(row) }));
  keyed.sort((a, b) => turn * (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
  return keyed.map(({ row }) => row);
}

function Heading<T>(props: { column: Column<T>; sort: string; id: string }) {
  const { column, sort } = props;
  const way = sort === column.id ? "ascending" : sort === `-${column.id}` ? "descending" : "none";
  const next = way === "none" ? column.id : way === "ascending" ? `-${column.id}` : null;
  return (
    <th scope="col" class={classOf(column)} aria-sort={column.by ? way : undefined}>
      {column.by ? (
        <button type="button" class="sort" onClick={() => setQuery({ [`${props.id}sort`]: next })}>
          {column.title}
          <span aria-hidden="true">{{ ascending: " ↑", descending: " ↓", none: "" }[way]}</span>
        </button>
      ) : (
        column.title
      )}
    </th>
  );
}

function Search(props: { id: string; label: string; found: number; all: number }) {
  const { query } = useRoute();
  const said = query.get(`${props.id}q`);
  return (
    <div class="search">
      <input
        type="search"
        aria-label={props.label}
        placeholder="Search"
        value={said ?? ""}
        onInput={(event) => setQuery({ [`${props.id}q`]: (event.target as HTMLInputElement).value })}
      />
      <span class="quiet" role="status">
        {said ? `${props.found} of ${plural(props.all, "row")}` : plural(props.all, "row")}
      </span>
    </div>
  );
}

/**
 * Tables that are searched and sorted, with their state in the address. Only the rows in sight are in the page, so 10,000
 * of them scroll as ten do.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { number, plural } from "../format";
import { useQuery } from "../router";
import { visible } from "../text";
import { Empty, Time } from "./basics";

export interface Column<T> {
  /** Its name in the address, and of the sorting. */
  id: string;
  title: string;
  cell: (row: T) => ComponentChildren;
  /** What it is sorted by, and searched in; without it the column is neither. */
  by?: (row: T) => string | number | undefined;
  right?: boolean;
  /** Left out where the page is narrow. */
  wide?: boolean;
}

type Look<T> = Partial<Omit<Column<T>, "title" | "cell">>;

/** A column as it is shown; its name is the title's unless `look` says another. */
export function column<T>(title: string, cell: Column<T>["cell"], look: Look<T> = {}): Column<T> {
  return { id: title.toLowerCase().replaceAll(" ", "-"), title, cell, ...look };
}

export function valued<T>(title: string, by: (row: T) => string | number | undefined, look: Look<T> = {}): Column<T> {
  const cell = (row: T) => {
    const found = by(row) ?? "";
    return typeof found === "number" ? number(found) : visible(found);
  };
  return column(title, cell, { by, ...look });
}

export function timed<T>(title: string, at: (row: T) => string | undefined, look: Look<T> = {}): Column<T> {
  return column(title, (row) => <Time at={at(row)} />, { by: at, ...look });
}

export interface TableProps<T> {
  /** What the rows are, for people who hear the page: "Topics of park". */
  label: string;
  rows: T[];
  columns: Column<T>[];
  /** What tells rows apart; their name if left out. */
  rowKey?: (row: T) => string;
  /** What is said where there is none, with the command to copy. */
  empty?: ComponentChildren;
  command?: string | undefined;
  sort?: string;
  /** Told which rows are in sight, a moment after they are. */
  onSight?: (rows: T[]) => void;
  /** Stands before names in the address, where a page has two tables. */
  id?: string;
}

const ROW = 44;
const AHEAD = 8;
const ALL_BELOW = 100;
const FEW = 8;

export function nameOf(row: unknown): string {
  return (row as { name: string }).name;
}

export function Table<T>(props: TableProps<T>) {
  const { rows, columns, id = "", rowKey = nameOf } = props;
  const [search, setSearch] = useQuery(`${id}q`);
  const [sort, setSort] = useQuery(`${id}sort`, props.sort);
  const shown = useMemo(() => arranged(rows, columns, search, sort), [rows, search, sort, columns]);
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const many = shown.length > ALL_BELOW;
  const height = scroller.current?.clientHeight || 600;
  const first = many ? Math.max(0, Math.floor(top / ROW) - AHEAD) : 0;
  const last = many ? Math.min(shown.length, Math.ceil((top + height) / ROW) + AHEAD) : shown.length;
  const sight = shown.slice(first, last);
  const names = sight.map(rowKey).join(" ");
  useEffect(() => {
    const timer = setTimeout(() => props.onSight?.(sight), 150);
    return () => clearTimeout(timer);
  }, [names]);

  if (rows.length === 0) return <Empty command={props.command}>{props.empty ?? "There is nothing here."}</Empty>;
  return (
    <>
      {(rows.length > FEW || search) && (
        <div class="search">
          <input
            type="search"
            aria-label={`Search: ${props.label}`}
            placeholder="Search"
            value={search}
            onInput={(event) => setSearch((event.target as HTMLInputElement).value)}
          />
          <span class="quiet" role="status">
            {search && `${shown.length} of `}
            {plural(rows.length, "row")}
          </span>
        </div>
      )}
      <section
        class={many ? "scroller many" : "scroller"}
        ref={scroller}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
        tabIndex={0}
        aria-label={`Table: ${props.label}`}
        onScroll={many ? () => setTop(scroller.current?.scrollTop ?? 0) : undefined}>
        <table aria-rowcount={shown.length + 1}>
          <thead>
            <tr>
              {columns.map((column) => (
                <Heading key={column.id} column={column} sort={sort} choose={setSort} />
              ))}
            </tr>
          </thead>
          <tbody>
            {first > 0 && <tr style={{ height: `${first * ROW}px` }} />}
            {sight.map((row, at) => (
              <tr key={rowKey(row)} aria-rowindex={first + at + 2}>
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
      {shown.length === 0 && <Empty>No row has all of these words.</Empty>}
    </>
  );
}

/** What a table has for a spreadsheet: its columns by their names, and in them what they are sorted by. */
export function asCsv<T>(rows: T[], columns: Column<T>[]): string {
  const lines = [columns.map(({ id }) => id), ...rows.map((row) => columns.map(({ by }) => by?.(row)))];
  return lines.map((line) => `${line.join(",")}\r\n`).join("");
}

function classOf<T>(column: Column<T>): string {
  return `${column.right ? "right" : ""} ${column.wide ? "if-wide" : ""}`.trim();
}

/** The rows that have all words of a search, sorted as the address says: `name`, or `-name` from the end. */
export function arranged<T>(rows: T[], columns: Column<T>[], search: string, sort: string): T[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (row: T) => {
    const all = columns.map(({ by }) => by?.(row) ?? "").join("\n");
    return words.every((word) => all.toLowerCase().includes(word));
  };
  const found = words.length > 0 ? rows.filter(has) : rows;
  const by = columns.find((column) => column.id === sort.replace(/^-/, ""))?.by;
  if (!by) return found;
  const turn = sort.startsWith("-") ? -1 : 1;
  const keyed = found.map((row) => ({ row, key: by(row) ?? "" }));
  keyed.sort((a, b) => turn * (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
  return keyed.map(({ row }) => row);
}

function Heading<T>(props: { column: Column<T>; sort: string; choose: (sort: string) => void }) {
  const { id, title, by } = props.column;
  const way = props.sort === id ? "ascending" : props.sort === `-${id}` ? "descending" : "none";
  const button = (
    <button type="button" class="sort" onClick={() => props.choose(way === "ascending" ? `-${id}` : id)}>
      {title}
      <span aria-hidden="true">{{ ascending: " ↑", descending: " ↓", none: "" }[way]}</span>
    </button>
  );
  return (
    <th scope="col" class={classOf(props.column)} aria-sort={by ? way : undefined}>
      {by ? button : title}
    </th>
  );
}

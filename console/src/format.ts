/** Numbers, spans, times and bytes as people read them. */

const numbers = new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 });
const times = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 3 });

export function number(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : numbers.format(value);
}

/** A number in a narrow place: 12.3K. */
export function short(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : compact.format(value);
}

export function rate(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : `${value >= 1000 ? short(value) : number(value)}/s`;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? size : size.toFixed(1)} ${units[unit]}`;
}

const SPANS: [number, string][] = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
];

/** Seconds in at most two parts: `3 d 4 h`. */
export function span(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
  let rest = Math.round(seconds);
  const parts: string[] = [];
  for (const [length, name] of SPANS) {
    const count = Math.floor(rest / length);
    rest -= count * length;
    if (count > 0) parts.push(`${count} ${name}`);
    else if (parts.length > 0) break;
  }
  return parts.slice(0, 2).join(" ");
}

export function localTime(time: Date): string {
  return times.format(time);
}

export function utcTime(time: Date): string {
  return `${time
    .toISOString()
    .replace("T", " ")
    .replace(/\.000Z$|Z$/, "")} UTC`;
}

/** `projects/P/topics/T` without all before the last part. */
export function shortName(reference: string | undefined): string {
  return (reference ?? "").split("/").at(-1) ?? "";
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

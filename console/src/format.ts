/** Numbers, spans, times and bytes as people read them; a dash where nothing is known. */

const numbers = new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 });
const times = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 3 });

type Value = number | null | undefined;

function said(value: Value, text: (known: number) => string): string {
  return value === null || value === undefined ? "–" : text(value);
}

export const number = (value: Value) => said(value, numbers.format);
/** A number in a narrow place: 12.3K. */
export const short = (value: Value) => said(value, compact.format);
export const rate = (value: Value) => said(value, (known) => `${known >= 1000 ? short(known) : number(known)}/s`);

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(value: Value): string {
  return said(value, (known) => {
    const unit = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, known)) / 10));
    return `${unit === 0 ? number(known) : (known / 1024 ** unit).toFixed(1)} ${UNITS[unit]}`;
  });
}

const SPANS = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
] as const;

/** Seconds in at most two parts: `3 d 4 h`. */
export function span(value: Value): string {
  return said(value, (seconds) => {
    if (seconds < 60) return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
    const rounded = Math.round(seconds);
    const parts = SPANS.map(([length, name], at) => {
      const longer = SPANS[at - 1]?.[0] ?? Number.POSITIVE_INFINITY;
      return { count: Math.floor((rounded % longer) / length), name };
    });
    const first = parts.findIndex(({ count }) => count > 0);
    const shown = parts.slice(first, first + 2).filter(({ count }) => count > 0);
    return shown.map(({ count, name }) => `${count} ${name}`).join(" ");
  });
}

export function localTime(time: Date): string {
  return times.format(time);
}

export function utcTime(time: Date): string {
  const text = time.toISOString().replace("T", " ");
  return `${text.replace(/\.000Z$|Z$/, "")} UTC`;
}

/** `projects/P/topics/T` without all before the last part. */
export function shortName(reference: string | undefined): string {
  return (reference ?? "").split("/").at(-1) ?? "";
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

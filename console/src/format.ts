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

/** Seconds in at most two parts: `3 d 4 h`. */
export function span(value: Value): string {
  return said(value, (seconds) => {
    if (seconds < 60) return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
    const minutes = Math.floor(Math.round(seconds) / 60);
    const days = Math.floor(minutes / 1440);
    const part = (count: number, unit: string) => (count > 0 ? `${count} ${unit}` : "");
    const hours = part(Math.floor(minutes / 60) % 24, "h");
    const parts = days > 0 ? [part(days, "d"), hours] : [hours, part(minutes % 60, "min")];
    return parts.filter(Boolean).join(" ");
  });
}

export const localTime = (time: Date) => times.format(time);
export const utcTime = (time: Date) => `${time.toISOString().replace(/T|(\.000)?Z$/g, " ")}UTC`;

/** `projects/P/topics/T` without all before the last part. */
export function shortName(reference: string | undefined): string {
  return (reference ?? "").split("/").at(-1) ?? "";
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

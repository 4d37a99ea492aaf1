/** Bodies, names and attributes as text that cannot do anything: cut where it is long, and invisible marks made visible. */

/** Controls, and marks that change the direction of what stands beside them. */
const HIDDEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it is these that are looked for
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

export function visible(text: string): string {
  const code = (mark: string) => mark.charCodeAt(0).toString(16).padStart(4, "0").toUpperCase();
  return text.replace(HIDDEN, (mark) => `\u27e8${code(mark)}\u27e9`);
}

export function fromBase64(data: string): Uint8Array {
  try {
    return Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
  } catch {
    return new TextEncoder().encode(data); // the service takes any text without `strict_data`
  }
}

export function toBase64(data: Uint8Array): string {
  let text = "";
  for (let at = 0; at < data.length; at += 8192) text += String.fromCharCode(...data.subarray(at, at + 8192));
  return btoa(text);
}

/** The text of bytes that are UTF-8, else null. */
export function asText(data: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    return null;
  }
}

/** Strings, numbers and words, or a sign; blanks between them are left out. */
const TOKENS = /"(?:[^"\\]|\\.)*"|[^\s"[\]{},:]+|[[\]{},:]/g;

/** An object or array laid out, null for what is none: its own text, whatever numbers, escapes and names are in it. */
export function asJson(text: string): string | null {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let deep = 0;
  let last = "";
  const parts: string[] = [];
  const line = () => `\n${"  ".repeat(deep)}`;
  for (const [token] of text.matchAll(TOKENS)) {
    const opens = last === "[" || last === "{";
    if (token === "]" || token === "}") {
      deep--;
      if (!opens) parts.push(line());
    } else if (opens || last === ",") parts.push(line());
    parts.push(token === ":" ? ": " : token);
    if (token === "[" || token === "{") deep++;
    last = token;
  }
  return parts.join("");
}

/** Bytes as a table of 16 a line: place, hexadecimal digits, and what is printable. */
export function asHex(data: Uint8Array, most = 4096): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(data.length, most); at += 16) {
    const row = [...data.subarray(at, Math.min(at + 16, most))];
    const digits = row.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const printable = row.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits.padEnd(47)}  ${printable}`);
  }
  return lines.join("\n");
}

/** `name=value` lines as a map; raises an `Error` for a line that is neither empty nor such. */
export function attributesOf(lines: string): Record<string, string> {
  const pairs = lines.split("\n").filter((line) => line.trim() !== "");
  return Object.fromEntries(
    pairs.map((line) => {
      const at = line.indexOf("=");
      if (at < 1) throw new Error(`An attribute is written name=value; this is not: ${line.slice(0, 80)}`);
      return [line.slice(0, at).trim(), line.slice(at + 1)];
    }),
  );
}

/** Plots over time, by uPlot, in the colours of the page; also said in words, for who does not see them. */
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { isFinal } from "../api";
import { localTime, short } from "../format";
import { useGet } from "../load";
import { useQuery } from "../router";
import type { History } from "../wire";
import { Button, Card, shown } from "./basics";

interface PlotsProps {
  project: string;
  topics?: string[];
  subscriptions?: string[];
  plots: (history: History) => Plotted[];
  onPick?: (seconds: number) => void;
}

/** Plots of some topics and subscriptions; the span is the one that the address says. */
export function Plots({ project, topics = [], subscriptions = [], plots, onPick }: PlotsProps) {
  const [span, setSpan] = useQuery("span", "hour");
  const query = new URLSearchParams({ span, topics: topics.join(), subscriptions: subscriptions.join() });
  const loaded = useGet<History>(`/projects/${project}:history?${query}`, 30);
  // A service of an earlier release has none; all else of the page is of use without.
  if (isFinal(loaded.error)) return <p class="quiet">There are no plots: {loaded.error?.message}</p>;
  return shown(loaded, (history) => (
    <>
      <fieldset class="choice span" aria-label="Span of the plots">
        {["hour", "day"].map((each) => (
          <Button label={`Last ${each}`} key={each} pressed={span === each} onClick={() => setSpan(each)} />
        ))}
      </fieldset>
      <div class="grid">
        {plots(history).map((each) => (
          <Card key={each.title} title={each.title}>
            <Plot {...each} times={timesOf(history, each.lines[0]?.values.length ?? 0)} onPick={onPick} />
          </Card>
        ))}
      </div>
    </>
  ));
}

/** The ends of the intervals, in seconds since 1970. */
function timesOf(history: History, count: number): number[] {
  const end = Date.parse(history.end) / 1000;
  return Array.from({ length: count }, (_, at) => end - (count - 1 - at) * history.interval);
}

/** A line of counts in intervals, as counts a second. */
export function rateLine(label: string, counts: (number | null)[], history: History, colour: 1 | 2 | 3 = 1): Line {
  const values = counts.map((count) => (count === null ? null : count / history.interval));
  return { label, values, colour };
}

export interface Line {
  label: string;
  /** One value for each time; null: not known. */
  values: (number | null)[];
  /** A number of `--line-N` of the style. */
  colour?: 1 | 2 | 3;
}

type Format = (value: number | null) => string;

type Plotted = { title: string; lines: Line[]; format?: Format };

/** The times are seconds since 1970, ascending. */
type PlotProps = Plotted & { times: number[]; onPick?: ((seconds: number) => void) | undefined };

const HEIGHT = 150;
const dark = matchMedia("(prefers-color-scheme: dark)");

export function Plot({ title, times, lines, format = short, onPick }: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  /** Where the pointer is; null: nowhere, and the newest values are said. */
  const [at, setAt] = useState<number | null>(null);
  const data: uPlot.AlignedData = [times, ...lines.map((line) => line.values)];
  const shape = lines.map((line) => line.label).join("|");

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const make = () => {
      plot.current?.destroy();
      const setCursor = [(drawn: uPlot) => setAt(drawn.cursor.idx ?? null)];
      plot.current = new uPlot({ ...optionsOf(lines, element, format), hooks: { setCursor } }, data, element);
    };
    make();
    const sizes = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    sizes.observe(element);
    dark.addEventListener("change", make);
    return () => {
      sizes.disconnect();
      dark.removeEventListener("change", make);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [times, lines]);

  const pick = () => {
    const left = plot.current?.cursor.left ?? -1;
    if (left >= 0 && plot.current) onPick?.(plot.current.posToVal(left, "x"));
  };
  const time = at === null ? undefined : times[at];
  return (
    <figure class={onPick ? "plot picks" : "plot"}>
      <figcaption>
        {lines.map(({ label, values, colour }, one) => (
          <span key={label} class={`key line-${colour ?? one + 1}`}>
            {lines.length > 1 && label}{" "}
            <strong>{format(time === undefined ? latest(values) : (values[at ?? 0] ?? null))}</strong>
          </span>
        ))}
        {time !== undefined && <span>{localTime(new Date(time * 1000))}</span>}
      </figcaption>
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: there are fields for a time and an id beside it */}
      <div ref={place} role="img" aria-label={inWords(title, times, lines, format)} onClick={pick} />
    </figure>
  );
}

function latest(values: (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

/** What a plot shows, in a sentence. */
function inWords(title: string, times: number[], lines: Line[], format: Format): string {
  const [from] = times;
  if (from === undefined) return `${title}: nothing is known yet`;
  const said = lines.map(({ label, values }) => {
    const known = values.filter((value) => value !== null);
    if (known.length === 0) return `${label}: nothing is known`;
    return `${label}: now ${format(latest(values))}, at most ${format(known.reduce((a, b) => Math.max(a, b)))}`;
  });
  return `${title} since ${localTime(new Date(from * 1000))}. ${said.join("; ")}`;
}

function optionsOf(lines: Line[], element: HTMLElement, format: Format): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const grid = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--quiet"), font: `11px ${style.fontFamily}`, grid, ticks: { show: false } };
  const range = (_: uPlot, __: number, most: number): [number, number] => [0, Math.max(1, most * 1.1)];
  return {
    width: element.clientWidth || 300,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { y: { range } },
    axes: [
      { ...axis, size: 36 },
      { ...axis, size: 52, values: (_, all) => all.map(format) },
    ],
    series: [
      {},
      ...lines.map((line, at) => {
        const stroke = colour(`--line-${line.colour ?? at + 1}`);
        return { label: line.label, stroke, fill: `${stroke}22`, width: 1.5, points: { show: false } };
      }),
    ],
  };
}

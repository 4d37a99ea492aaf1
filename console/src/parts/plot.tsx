/** Plots over time, by uPlot, in the colours of the page; also said in words, for who does not see them. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { localTime, short } from "../format";

export interface Line {
  label: string;
  /** One value for each time; null: not known. */
  values: (number | null)[];
  /** A number of `--line-N` of the style. */
  colour?: 1 | 2 | 3;
  filled?: boolean;
}

interface PlotProps {
  title: string;
  /** Seconds since 1970, ascending. */
  times: number[];
  lines: Line[];
  format?: (value: number | null) => string;
  height?: number;
  /** Called with the time that was clicked at. */
  onPick?: (seconds: number) => void;
}

const dark = matchMedia("(prefers-color-scheme: dark)");

export function Plot(props: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const pick = useRef(props.onPick);
  pick.current = props.onPick;
  const { times, lines, format = short, height = 150 } = props;
  const shape = lines.map((line) => line.label).join("|");

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const make = () => {
      plot.current?.destroy();
      const options = optionsOf(props, element, height, format);
      plot.current = new uPlot(options, [times, ...lines.map((line) => line.values)], element);
    };
    make();
    const sizes = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }));
    sizes.observe(element);
    dark.addEventListener("change", make);
    const clicked = () => {
      const left = plot.current?.cursor.left ?? -1;
      if (left >= 0 && plot.current) pick.current?.(plot.current.posToVal(left, "x"));
    };
    element.addEventListener("click", clicked);
    return () => {
      sizes.disconnect();
      dark.removeEventListener("change", make);
      element.removeEventListener("click", clicked);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, height]);

  useEffect(() => {
    plot.current?.setData([times, ...lines.map((line) => line.values)]);
  }, [times, lines]);

  return (
    <figure class={props.onPick ? "plot picks" : "plot"}>
      <figcaption>
        {lines.map((line, at) => (
          <span key={line.label} class={`key line-${line.colour ?? at + 1}`}>
            {lines.length > 1 && line.label} <strong>{format(latest(line.values))}</strong>
          </span>
        ))}
      </figcaption>
      <div ref={place} role="img" aria-label={inWords(props, format)} />
    </figure>
  );
}

function latest(values: (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

/** What a plot shows, in a sentence. */
export function inWords(props: Pick<PlotProps, "title" | "times" | "lines">, format: (value: number | null) => string) {
  const from = props.times[0];
  if (from === undefined) return `${props.title}: nothing is known yet`;
  const said = props.lines.map((line) => {
    const known = line.values.filter((value) => value !== null);
    if (known.length === 0) return `${line.label}: nothing is known`;
    return `${line.label}: now ${format(latest(line.values))}, at most ${format(known.reduce((a, b) => Math.max(a, b)))}`;
  });
  return `${props.title} since ${localTime(new Date(from * 1000))}. ${said.join("; ")}`;
}

function optionsOf(props: PlotProps, element: HTMLElement, height: number, format: (v: number | null) => string) {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const axis = {
    stroke: colour("--quiet"),
    font: `11px ${style.fontFamily}`,
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: element.clientWidth || 300,
    height,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { y: { range: (_: uPlot, __: number, most: number): [number, number] => [0, Math.max(1, most * 1.1)] } },
    axes: [
      { ...axis, size: 36 },
      { ...axis, size: 52, splits: undefined, values: (_: uPlot, all: number[]) => all.map((each) => format(each)) },
    ],
    series: [
      {},
      ...props.lines.map((line, at) => {
        const stroke = colour(`--line-${line.colour ?? at + 1}`);
        return {
          label: line.label,
          stroke,
          width: 1.5,
          points: { show: false },
          ...(line.filled ? { fill: `${stroke}22` } : {}),
        };
      }),
    ],
    plugins: [tooltip(props, format)],
  } as uPlot.Options;
}

/** What the values are where the pointer is. */
function tooltip(props: PlotProps, format: (value: number | null) => string): uPlot.Plugin {
  const box = document.createElement("div");
  box.className = "tooltip";
  box.hidden = true;
  return {
    hooks: {
      init: (plot) => void plot.over.append(box),
      setCursor: (plot) => {
        const at = plot.cursor.idx;
        const time = at === null || at === undefined ? undefined : plot.data[0][at];
        box.hidden = time === undefined || (plot.cursor.left ?? -1) < 0;
        if (box.hidden || time === undefined || at === null || at === undefined) return;
        const said = props.lines.map((line, one) => `${line.label}: ${format(plot.data[one + 1]?.[at] ?? null)}`);
        box.textContent = [localTime(new Date(time * 1000)), ...said].join("\n");
        const right = (plot.cursor.left ?? 0) > plot.over.clientWidth / 2;
        box.style.left = right ? "0" : "auto";
        box.style.right = right ? "auto" : "0";
      },
    },
  };
}

/** Plots of what the service keeps of the last hour or day, loaded again as it grows. */
import { isFinal } from "../api";
import { useGet } from "../load";
import { useQuery } from "../router";
import type { History } from "../wire";
import { Button, Card, shown } from "./basics";
import { type Line, Plot } from "./plot";

interface PlotsProps {
  project: string;
  topics?: string[];
  subscriptions?: string[];
  /** What is plotted, each in a card with a title. */
  plots: (history: History) => PlotOf[];
  onPick?: (seconds: number) => void;
}

interface PlotOf {
  title: string;
  lines: Line[];
  format?: (value: number | null) => string;
}

/** Plots of some topics and subscriptions; the span is the one that the address says. */
export function Plots({ project, topics = [], subscriptions = [], plots, onPick }: PlotsProps) {
  const [asked] = useQuery("span", "hour");
  const query = new URLSearchParams({ span: asked === "day" ? "day" : "hour" });
  if (topics.length > 0) query.set("topics", topics.join(","));
  if (subscriptions.length > 0) query.set("subscriptions", subscriptions.join(","));
  const loaded = useGet<History>(`/projects/${project}:history?${query}`, 30);
  // A service of an earlier release has none; all else of the page is of use without.
  if (isFinal(loaded.error)) return <p class="quiet">There are no plots: {loaded.error?.message}</p>;
  return shown(loaded, (history) => (
    <>
      <SpanChoice />
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

function SpanChoice() {
  const [span, setSpan] = useQuery("span", "hour");
  return (
    <fieldset class="choice span" aria-label="Span of the plots">
      {["hour", "day"].map((each) => (
        <Button label={`Last ${each}`} key={each} pressed={span === each} onClick={() => setSpan(each)} />
      ))}
    </fieldset>
  );
}

/** The ends of the intervals, in seconds since 1970. */
export function timesOf(history: Pick<History, "end" | "interval">, count: number): number[] {
  const end = Date.parse(history.end) / 1000;
  return Array.from({ length: count }, (_, at) => end - (count - 1 - at) * history.interval);
}

/** A line of counts in intervals, as counts a second. */
export function rateLine(label: string, counts: (number | null)[], history: History, colour: 1 | 2 | 3 = 1): Line {
  const values = counts.map((count) => (count === null ? null : count / history.interval));
  return { label, values, colour };
}

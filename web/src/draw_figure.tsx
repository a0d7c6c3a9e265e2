import type { ComponentChildren } from "preact";
import { light } from "./color";
import { referenceOf, type Report } from "./data";
import { joules, percent, seconds } from "./format";
import { Flow, flowHeight, named, type Entry } from "./charts/flow";
import { FrontierChart, OverlayKey } from "./charts/frontier";
import { fontFamily } from "./charts/frame";
import { wrapped } from "./charts/labels";
import { laneHeightFor, layOutTimeline, type TitledIteration } from "./charts/lanes";
import { legendHeightFor, PowerLegend } from "./charts/legend";
import { profileHeight, ProfileChart } from "./charts/profile";
import { MemoryChart } from "./charts/memory";
import { SwitchesChart } from "./charts/switches";
import { axisHeight, TimelineChart } from "./charts/timeline";

// The largest letters are 12 units high. With this scale, they are 7.2 pt high on paper.
const unitsPerMm = 96 / 25.4 / 0.8;
const usualWidth = 1000;
const legendLeft = 62;

interface Sheet {
  width: number; // In units.
  isForPaper: boolean; // Whether the SVG states its size in mm.
}

interface FigureProps {
  report: Report;
  sheet: Sheet;
}

function Paper({ sheet, height, title, children }: {
  sheet: Sheet;
  height: number;
  title: string;
  children: ComponentChildren;
}) {
  const { width } = sheet;
  const size = (units: number) => (sheet.isForPaper ? `${Math.round((units / unitsPerMm) * 10) / 10}mm` : units);
  return (
    <svg xmlns="http://www.w3.org/2000/svg" width={size(width)} height={size(height)}
      viewBox={`0 0 ${width} ${height}`}>
      <title>{title}</title>
      <rect width={width} height={height} fill={light.paper} />
      {children}
    </svg>
  );
}

/** Returns the height of a chart that is `full` high in the usual width. */
const heightOf = (sheet: Sheet, full: number): number =>
  Math.round(Math.min(full, Math.max(240, (1.3 * full * sheet.width) / usualWidth)));

/** Draws a chart with its legend and, if there is one, a note below. */
function Charted({ sheet, title, height, entries, note = "", children }: {
  sheet: Sheet;
  title: string;
  height: number;
  entries: Entry[];
  note?: string;
  children: ComponentChildren;
}) {
  const left = Math.min(legendLeft, sheet.width / 12);
  const space = sheet.width - left - 8;
  const legend = flowHeight(entries, space);
  const lines = wrapped(note, space);
  return (
    <Paper sheet={sheet} height={height + legend + 16 * lines.length + 12} title={title}>
      {children}
      <g transform={`translate(${left},${height})`}>
        <Flow entries={entries} width={space} palette={light} />
        {lines.map((line, i) => (
          <text key={i} y={legend + 12 + 16 * i} font-family={fontFamily} font-size="12"
            fill={light.muted}>
            {line}
          </text>
        ))}
      </g>
    </Paper>
  );
}

const line = (text: string, color: string, width: number, dashes?: string) =>
  named(text, () => (
    <path d="M0,8h24" stroke={color} stroke-width={width} stroke-dasharray={dashes} />
  ));
const dot = (text: string, color: string, radius: number) =>
  named(text, () => <circle cx="12" cy="8" r={radius} fill={color} />);
const ring = (text: string, color: string, radius: number) =>
  named(text, () => (
    <circle cx="12" cy="8" r={radius} fill={light.paper} stroke={color} stroke-width="1.5" />
  ));

function FrontierFigure({ report, sheet }: FigureProps) {
  const height = heightOf(sheet, 560);
  const { chosen, frontier } = report;
  const entries = [
    ...(frontier ? [line(`${frontier.name}: no plan needs less`, light.bound, 2)] : []),
    ...(report.plans.length > 1 ? [ring("plans", light.plan, 3.5)] : []),
    named(referenceOf(report).name, () => (
      <path d="M7,3l10,10m0,-10l-10,10" stroke={light.baseline} stroke-width="2" />
    )),
    dot(report.plans[chosen].target, light.chosen, 5),
    ...report.overlays.map((overlay, i) =>
      named(overlay.name, () => <OverlayKey overlay={overlay} i={i} palette={light} />)),
  ];
  return (
    <Charted sheet={sheet} height={height} title="Iteration time-energy frontier" entries={entries}>
      <FrontierChart report={report} chosen={chosen} width={sheet.width} height={height}
        palette={light} />
    </Charted>
  );
}

function TimelineFigure({ report, sheet }: FigureProps) {
  const plan = report.plans[report.chosen];
  const { baseline } = report;
  return (
    <IterationsFigure report={report} sheet={sheet} title="One iteration" iterations={[
      { title: `Maximum frequency: ${seconds(baseline.time_ns)}, ${joules(baseline.energy_j)}`,
        iteration: baseline },
      { title: `Plan, ${plan.target}: ${seconds(plan.time_ns)}, ${joules(plan.energy_j)} (${percent(
          plan.energy_j / baseline.energy_j - 1,
        )})`, iteration: plan },
    ]} />
  );
}

function IterationsFigure({ report, sheet, title, iterations }: FigureProps & {
  title: string;
  iterations: TitledIteration[];
}) {
  const width = sheet.width - 4;
  const legend = legendHeightFor(report, width);
  const layout = layOutTimeline(report, iterations, laneHeightFor(report.pp_ranks.length), width);
  return (
    <Paper sheet={sheet} height={legend + layout.height + axisHeight + 8} title={title}>
      <g transform="translate(4,4)">
        <PowerLegend report={report} palette={light} width={width} />
      </g>
      <g transform={`translate(4,${legend + 4})`}>
        <TimelineChart layout={layout} width={width} palette={light} />
      </g>
    </Paper>
  );
}

/** Draws the iterations of several schedules: at maximum frequency ("baseline") or with plans. */
function SchedulesFigure({ report, sheet, iteration }: FigureProps & {
  iteration: "baseline" | "plan";
}) {
  const { timelines } = scheduleTradeoffOf(report);
  const before = timelines[0].baseline.energy_j;
  const words = iteration === "baseline" ? "at maximum frequency" : "planned";
  return (
    <IterationsFigure report={report} sheet={sheet} title={`Schedules, ${words}`}
      iterations={timelines.map((work) => ({
        title: `${work.name}, ${words}: ${seconds(work[iteration].time_ns)}, ${joules(
          work[iteration].energy_j,
        )}${iteration === "plan" ? ` (${percent(work.plan.energy_j / before - 1)})` : ""}${
          inFlightOf(report, work.name)
        }`,
        iteration: work[iteration],
        work,
      }))} />
  );
}

function inFlightOf(report: Report, name: string): string {
  const row = scheduleTradeoffOf(report).rows.find((one) => one.name === name);
  return row ? `, in flight ${row.in_flight.join(" ")}` : "";
}

function scheduleTradeoffOf(report: Report) {
  if (!report.schedule_tradeoff) throw new Error("the report has no schedules to compare");
  return report.schedule_tradeoff;
}

function MemoryFigure({ report, sheet }: FigureProps) {
  const height = heightOf(sheet, 460);
  const tradeoff = scheduleTradeoffOf(report);
  const entries = [
    line("bound: no schedule in this memory saves more", light.bound, 1.5, "6 3"),
    dot("schedules that were found", light.chosen, 4),
    ring(tradeoff.reference, light.baseline, 5),
  ];
  return (
    <Charted sheet={sheet} height={height} title="Energy saved against memory" entries={entries}
      note={tradeoff.memory_source}>
      <MemoryChart tradeoff={tradeoff} width={sheet.width} height={height} palette={light} />
    </Charted>
  );
}

function ProfileFigure({ report, sheet }: FigureProps) {
  const width = sheet.width - 8;
  return (
    <Paper sheet={sheet} height={profileHeight(report, width) + 8} title="Profile">
      <g transform="translate(4,6)">
        <ProfileChart report={report} width={width} palette={light} />
      </g>
    </Paper>
  );
}

function SwitchesFigure({ report, sheet }: FigureProps) {
  const height = heightOf(sheet, 460);
  const tradeoff = report.switch_tradeoff;
  if (!tradeoff) throw new Error("the report has no limits of clock changes");
  const entries = [
    line("bound: no plan within the limit saves more", light.bound, 1.5, "6 3"),
    dot("plans", light.chosen, 4),
    line("the plan without a limit", light.baseline, 1, "2 3"),
    ...(tradeoff.max_switches === undefined ? [] : [named("the limit of the plans", () => (
      <g fill={light.chosen}>
        <circle cx="12" cy="8" r="4" />
        <circle cx="12" cy="8" r="7" fill="none" stroke={light.chosen} stroke-width="1.5" />
      </g>
    ))]),
  ];
  return (
    <Charted sheet={sheet} height={height} title="Limits of clock changes" entries={entries}
      note={tradeoff.target}>
      <SwitchesChart tradeoff={tradeoff} width={sheet.width} height={height} palette={light} />
    </Charted>
  );
}

/** Draws a figure. With a width in mm, the letters have a size that can be read on paper. */
export function drawFigure(name: string, report: Report, widthMm = 0) {
  const sheet: Sheet = widthMm > 0
    ? { width: Math.round(widthMm * unitsPerMm), isForPaper: true }
    : { width: usualWidth, isForPaper: false };
  switch (name) {
    case "frontier":
      return <FrontierFigure report={report} sheet={sheet} />;
    case "timeline":
      return <TimelineFigure report={report} sheet={sheet} />;
    case "profile":
      return <ProfileFigure report={report} sheet={sheet} />;
    case "switches":
      return <SwitchesFigure report={report} sheet={sheet} />;
    case "memory":
      return <MemoryFigure report={report} sheet={sheet} />;
    case "orders":
      return <SchedulesFigure report={report} sheet={sheet} iteration="baseline" />;
    case "schedules":
      return <SchedulesFigure report={report} sheet={sheet} iteration="plan" />;
    default:
      throw new Error(`unknown figure "${name}"`);
  }
}

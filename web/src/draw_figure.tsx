import type { ComponentChildren } from "preact";
import { light } from "./color";
import type { Report } from "./data";
import { joules, percent, seconds } from "./format";
import { FrontierChart, hasLine, hasMarks } from "./charts/frontier";
import { fontFamily } from "./charts/frame";
import { laneHeightFor, layOutTimeline, type TitledIteration } from "./charts/lanes";
import { legendHeight, PowerLegend } from "./charts/legend";
import { profileHeight, ProfileChart } from "./charts/profile";
import { MemoryChart } from "./charts/memory";
import { SwitchesChart } from "./charts/switches";
import { axisHeight, TimelineChart } from "./charts/timeline";

const width = 1000;

function Sheet({ height, title, children }: {
  height: number;
  title: string;
  children: ComponentChildren;
}) {
  return (
    <svg xmlns="http://www.w3.org/2000/svg" width={width} height={height}
      viewBox={`0 0 ${width} ${height}`}>
      <title>{title}</title>
      <rect width={width} height={height} fill={light.paper} />
      {children}
    </svg>
  );
}

function FrontierFigure({ report }: { report: Report }) {
  const height = 560;
  const legend = 30 + 18 * report.overlays.length;
  const { chosen } = report;
  return (
    <Sheet height={height + legend} title="Iteration time-energy frontier">
      <FrontierChart report={report} chosen={chosen} width={width} height={height}
        palette={light} />
      <g font-family={fontFamily} font-size="12" fill={light.muted}
        transform={`translate(62,${height + 8})`}>
        {report.frontier && <path d="M0,0h24" stroke={light.bound} stroke-width="2" />}
        {report.frontier && <text x="30" y="4">bound: no plan needs less</text>}
        <circle cx="204" cy="0" r="3.5" fill={light.paper} stroke={light.plan} stroke-width="1.5" />
        <text x="214" y="4">plans</text>
        <path d="M264,-5l10,10m0,-10l-10,10" stroke={light.baseline} stroke-width="2" />
        <text x="282" y="4">maximum frequency</text>
        <circle cx="424" cy="0" r="5" fill={light.chosen} />
        <text x="435" y="4">{report.plans[chosen].target}</text>
        {report.overlays.map((overlay, i) => (
          <g key={i} transform={`translate(0,${18 * (i + 1)})`}>
            {hasLine(overlay) && (
              <path d="M0,0h24" stroke={light.series[i % light.series.length]} stroke-width="1.5"
                stroke-dasharray="6 3" />
            )}
            {hasMarks(overlay) && (
              <rect x="9" y="-3" width="6" height="6"
                fill={light.series[i % light.series.length]} />
            )}
            <text x="30" y="4">{overlay.name}</text>
          </g>
        ))}
      </g>
    </Sheet>
  );
}

function TimelineFigure({ report }: { report: Report }) {
  const plan = report.plans[report.chosen];
  const { baseline } = report;
  return (
    <IterationsSheet report={report} title="One iteration" iterations={[
      { title: `Maximum frequency: ${seconds(baseline.time_ns)}, ${joules(baseline.energy_j)}`,
        iteration: baseline },
      { title: `Plan, ${plan.target}: ${seconds(plan.time_ns)}, ${joules(plan.energy_j)} (${percent(
          plan.energy_j / baseline.energy_j - 1,
        )})`, iteration: plan },
    ]} />
  );
}

function IterationsSheet({ report, title, iterations }: {
  report: Report;
  title: string;
  iterations: TitledIteration[];
}) {
  const layout = layOutTimeline(report, iterations, laneHeightFor(report.pp_ranks.length));
  return (
    <Sheet height={legendHeight + layout.height + axisHeight + 8} title={title}>
      <g transform="translate(4,4)">
        <PowerLegend report={report} palette={light} />
      </g>
      <g transform={`translate(4,${legendHeight + 4})`}>
        <TimelineChart layout={layout} width={width - 4} palette={light} />
      </g>
    </Sheet>
  );
}

/** Draws the usual and the chosen schedule: at maximum frequency ("baseline") or with plans. */
function SchedulesFigure({ report, iteration }: { report: Report; iteration: "baseline" | "plan" }) {
  const { reference, timelines } = scheduleTradeoffOf(report);
  const before = timelines[0].baseline.energy_j;
  const words = iteration === "baseline" ? "at maximum frequency" : "planned";
  return (
    <IterationsSheet report={report} title={`Schedules, ${words}`}
      iterations={timelines.map((work) => ({
        title: `${work.name}, ${words}: ${seconds(work[iteration].time_ns)}, ${joules(
          work[iteration].energy_j,
        )}${iteration === "plan" ? ` (${percent(work.plan.energy_j / before - 1)})` : ""}${
          work.name === reference ? "" : `, in flight ${inFlightOf(report, work.name)}`
        }`,
        iteration: work[iteration],
        work,
      }))} />
  );
}

function inFlightOf(report: Report, name: string): string {
  const row = scheduleTradeoffOf(report).rows.find((one) => one.name === name);
  return row ? row.in_flight.join(" ") : "";
}

function scheduleTradeoffOf(report: Report) {
  if (!report.schedule_tradeoff) throw new Error("the report has no schedules to compare");
  return report.schedule_tradeoff;
}

function MemoryFigure({ report }: { report: Report }) {
  const height = 460;
  const tradeoff = scheduleTradeoffOf(report);
  return (
    <Sheet height={height + 48} title="Energy saved against memory">
      <MemoryChart tradeoff={tradeoff} width={width} height={height} palette={light} />
      <g font-family={fontFamily} font-size="12" fill={light.muted}
        transform={`translate(62,${height + 8})`}>
        <path d="M0,0h24" stroke={light.bound} stroke-width="1.5" stroke-dasharray="6 3" />
        <text x="30" y="4">bound: no schedule in this memory saves more</text>
        <path d="M330,0h24" stroke={light.chosen} stroke-width="1.5" />
        <circle cx="342" cy="0" r="4" fill={light.chosen} />
        <text x="360" y="4">schedules that were found</text>
        <circle cx="542" cy="0" r="5" fill={light.paper} stroke={light.baseline}
          stroke-width="1.5" />
        <text x="554" y="4">{tradeoff.reference}</text>
        <text x="0" y="26">{tradeoff.memory_source}</text>
      </g>
    </Sheet>
  );
}

function ProfileFigure({ report }: { report: Report }) {
  return (
    <Sheet height={profileHeight(report, width - 8) + 8} title="Profile">
      <g transform="translate(4,6)">
        <ProfileChart report={report} width={width - 8} palette={light} />
      </g>
    </Sheet>
  );
}

function SwitchesFigure({ report }: { report: Report }) {
  const height = 460;
  const tradeoff = report.switch_tradeoff;
  if (!tradeoff) throw new Error("the report has no limits of clock changes");
  return (
    <Sheet height={height + 48} title="Limits of clock changes">
      <SwitchesChart tradeoff={tradeoff} width={width} height={height} palette={light} />
      <g font-family={fontFamily} font-size="12" fill={light.muted}
        transform={`translate(62,${height + 8})`}>
        <path d="M0,0h24" stroke={light.bound} stroke-width="1.5" stroke-dasharray="6 3" />
        <text x="30" y="4">bound: no plan within the limit saves more</text>
        <path d="M300,0h24" stroke={light.chosen} stroke-width="1.5" />
        <circle cx="312" cy="0" r="4" fill={light.chosen} />
        <text x="330" y="4">plans</text>
        <path d="M384,0h24" stroke={light.baseline} stroke-dasharray="2 3" />
        <text x="414" y="4">the plan without a limit</text>
        {tradeoff.max_switches !== undefined && (
          <>
            <circle cx="584" cy="0" r="4" fill={light.chosen} />
            <circle cx="584" cy="0" r="8" fill="none" stroke={light.chosen} stroke-width="1.5" />
            <text x="598" y="4">the limit of the plans</text>
          </>
        )}
        <text x="0" y="26">{tradeoff.target}</text>
      </g>
    </Sheet>
  );
}

export function drawFigure(name: string, report: Report) {
  switch (name) {
    case "frontier":
      return <FrontierFigure report={report} />;
    case "timeline":
      return <TimelineFigure report={report} />;
    case "profile":
      return <ProfileFigure report={report} />;
    case "switches":
      return <SwitchesFigure report={report} />;
    case "memory":
      return <MemoryFigure report={report} />;
    case "orders":
      return <SchedulesFigure report={report} iteration="baseline" />;
    case "schedules":
      return <SchedulesFigure report={report} iteration="plan" />;
    default:
      throw new Error(`unknown figure "${name}"`);
  }
}

import { bisector } from "d3-array";
import { useState } from "preact/hooks";
import { FrontierChart, frontierLayout, leastEnergyPart, OverlayKey } from "../charts/frontier";
import { referenceOf, type Report } from "../data";
import { joules, number, percent } from "../format";
import { themed } from "./themed";
import { useWidth } from "./use_width";

interface Props {
  report: Report;
  chosen: number;
  onChoose: (plan: number) => void;
}

interface Reading {
  x: number;
  y: number;
  title: string;
  lines: string[];
  plan?: number;
}

export function FrontierSection({ report, chosen, onChoose }: Props) {
  const { element, width } = useWidth<HTMLDivElement>();
  const [reading, setReading] = useState<Reading | null>(null);
  const height = Math.max(260, Math.min(420, width * 0.5));
  const plan = report.plans[chosen];
  const reference = referenceOf(report);
  const title = `Frontier: baseline ${number(reference.time_ns / 1e9)} s and ${joules(
    reference.energy_j,
  )}; chosen plan, ${plan.target}, ${number(plan.time_ns / 1e9)} s and ${joules(plan.energy_j)}`;

  const readingOf = (event: MouseEvent) => {
    const svg = (event.currentTarget as Element).getBoundingClientRect();
    return readingAt(report, width, height, event.clientX - svg.left, event.clientY - svg.top);
  };
  const read = (event: PointerEvent) => setReading(readingOf(event));
  return (
    <section aria-labelledby="frontier">
      <h2 id="frontier">The time–energy frontier</h2>
      <p>
        {report.frontier
          ? (
            <>
              The line shows the least energy for each iteration time: no plan lies below it. Most
              plans lie above it, because they use measured clocks only, or may change clocks only
              a few times.{" "}
              <i>T</i><sub>min</sub> is the least possible iteration time, and <i>T</i>* is the iteration
              time of least energy.
              {report.frontier.error === undefined &&
                " A breakpoint is a point at which the slope of the line changes."}
            </>
          )
          : "Each plan is for its own deadline. The frontier between the plans was not computed."}{" "}
        The axes do not start at 0.{" "}
        <span class="screen">Point at the chart or tap it to read values. Click a plan to choose it.</span>
      </p>
      <div class="chart" ref={element}>
        {width > 0 && (
          <svg class="frontier" width={width} height={height} viewBox={`0 0 ${width} ${height}`}
            role="img" aria-label={title}
            onPointerMove={read} onPointerDown={read}
            onPointerLeave={(event) => event.pointerType === "mouse" && setReading(null)}
            onClick={(event) => {
              const plan = readingOf(event)?.plan;
              if (plan !== undefined) onChoose(plan);
            }}>
            <FrontierChart report={report} chosen={chosen} width={width} height={height}
              palette={themed} />
            {reading && (
              <circle cx={reading.x} cy={reading.y} r="5" fill="none" stroke="var(--ink)"
                stroke-width="1.5" />
            )}
          </svg>
        )}
        {reading && <Tooltip x={reading.x} y={reading.y} width={width} reading={reading} />}
      </div>
      <Legend report={report} />
    </section>
  );
}

/** Returns the plan under the pointer. Without a plan, returns the bound at the pointer's time. */
function readingAt(report: Report, width: number, height: number, px: number, py: number) {
  const { x, y } = frontierLayout(report, width, height);
  const reference = referenceOf(report);
  const at = (time_ns: number, energy_j: number) => ({ x: x(time_ns / 1e9), y: y(energy_j) });
  const marks: Reading[] = [
    {
      ...at(reference.time_ns, reference.energy_j),
      title: reference.name,
      lines: [`${number(reference.time_ns / 1e9, 6)} s, ${joules(reference.energy_j, 5)}`],
    },
    ...report.plans.map((plan, i) => ({
      ...at(plan.time_ns, plan.energy_j),
      title: plan.target,
      lines: [
        `${number(plan.time_ns / 1e9, 6)} s, ${joules(plan.energy_j, 5)}`,
        `saves ${percent(1 - plan.energy_j / reference.energy_j)}`,
        `bound ${joules(plan.lower_bound_j, 5)}, gap ${percent(plan.gap, 3)}`,
      ],
      plan: i,
    })),
    ...report.overlays.flatMap((overlay) =>
      leastEnergyPart(overlay).map((p) => ({
        ...at(p.time_s * 1e9, p.energy_j),
        title: overlay.name,
        lines: [`${number(p.time_s, 6)} s, ${joules(p.energy_j, 5)}`],
      })),
    ),
  ];
  const distance = (mark: Reading) => Math.hypot(mark.x - px, mark.y - py);
  const nearest = marks.reduce((a, b) => (distance(b) < distance(a) ? b : a));
  if (distance(nearest) < 14 || !report.frontier) return distance(nearest) < 40 ? nearest : null;
  const bound = leastEnergyPart(report.frontier);
  const i = bisector((p: (typeof bound)[0]) => p.time_s).center(bound, x.invert(px));
  const point = bound[i];
  return {
    x: x(point.time_s),
    y: y(point.energy_j),
    title: "bound",
    lines: [
      `${number(point.time_s, 6)} s, ${joules(point.energy_j, 5)}`,
      `${percent(point.time_s / (reference.time_ns / 1e9) - 1)} slowdown`,
      `one more millisecond saves ${joules(report.frontier.marginal_w[i] / 1e3)} of instruction energy`,
    ],
  };
}

function Tooltip({ x, y, width, reading }: {
  x: number;
  y: number;
  width: number;
  reading: Reading;
}) {
  const side = x > width / 2 ? { right: width - x + 12 } : { left: x + 12 };
  return (
    <div class="tooltip" role="status" style={{ ...side, top: Math.max(0, y - 20) }}>
      <strong>{reading.title}</strong>
      {reading.lines.map((text) => (
        <div key={text}>{text}</div>
      ))}
    </div>
  );
}

function Legend({ report }: { report: Report }) {
  return (
    <ul class="legend">
      {report.frontier && (
        <li><i class="line" style={{ borderColor: themed.bound }} />
          bound ({report.frontier.error === undefined
            ? `${report.frontier.breakpoints.toLocaleString("en")} breakpoints`
            : `at most ${percent(report.frontier.error, 3)} too low`})</li>
      )}
      <li><i class="ring" style={{ borderColor: themed.plan }} />plans</li>
      <li><i class="dot" style={{ background: themed.chosen }} />chosen plan</li>
      <li><b>✕</b> {referenceOf(report).name}</li>
      {report.overlays.map((overlay, i) => (
        <li key={i}>
          <svg class="key" width="24" height="16" viewBox="0 0 24 16" aria-hidden="true">
            <OverlayKey overlay={overlay} i={i} palette={themed} />
          </svg>
          {overlay.name}
        </li>
      ))}
    </ul>
  );
}

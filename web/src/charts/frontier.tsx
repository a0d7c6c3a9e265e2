// Draws the iteration time-energy frontier: the lower bound, the plans close to the bound, and the
// baseline.
import { extent } from "d3-array";
import { scaleLinear } from "d3-scale";
import { line } from "d3-shape";
import { dashes, marks, type Palette } from "../color";
import { referenceOf, type Report } from "../data";
import { Frame, type Box } from "./frame";
import { apart, textWidth, type LabelBox } from "./labels";

export interface FrontierPoint {
  time_s: number;
  energy_j: number;
}

/** Places everything in the chart, for drawing and for finding the plan under the pointer. */
export function frontierLayout(report: Report, width: number, height: number) {
  const box: Box = { width, height, top: 34, right: 28, bottom: 46, left: 62 };
  const curves = [...(report.frontier ? [report.frontier] : []), ...report.overlays];
  const points = [referenceOf(report), ...report.plans];
  const times = [
    ...points.map((point) => point.time_ns / 1e9),
    ...curves.flatMap((curve) => leastEnergyPart(curve).map((p) => p.time_s)),
  ];
  const energies = [
    ...points.map((point) => point.energy_j),
    ...report.plans.map((plan) => plan.lower_bound_j),
    ...curves.flatMap((curve) => leastEnergyPart(curve).map((p) => p.energy_j)),
  ];
  const unit = Math.max(...energies) >= 2e4 ? { factor: 1e3, name: "kJ" } : { factor: 1, name: "J" };
  const x = scaleLinear(padded(times, 0.03, 0.01), [box.left, width - box.right]);
  const y = scaleLinear(padded(energies, 0.06, 0.001), [height - box.bottom, box.top]);
  return { box, x, y, unit };
}

/**
 * Returns the range of the values, widened by `part` on each side. The range covers at least the
 * fraction `span` of the largest value. Otherwise, a tiny difference would look large.
 */
function padded(values: number[], part: number, span: number): [number, number] {
  const [least, most] = extent(values) as [number, number];
  const missing = Math.max(0, (Math.abs(most) || 1) * span - (most - least)) / 2;
  const margin = (most - least + 2 * missing) * part + missing;
  return [least - margin, most + margin];
}

interface Curve {
  time_s: number[];
  energy_j: number[];
}

/** Returns the points up to least energy. A slower plan needs more energy, so no job wants it. */
export function leastEnergyPart(curve: Curve): FrontierPoint[] {
  let least = 0;
  curve.energy_j.forEach((energy, i) => {
    if (energy < curve.energy_j[least]) least = i;
  });
  return curve.time_s
    .slice(0, least + 1)
    .map((time_s, i) => ({ time_s, energy_j: curve.energy_j[i] }));
}

/** An overlay with more points than this is drawn as a line only. */
const fewPoints = 60;

/** Whether each point of the overlay has a mark. An overlay with few points is a list of plans. */
export function hasMarks(overlay: Curve): boolean {
  return leastEnergyPart(overlay).length <= fewPoints;
}

/** Whether the overlay has a line. A single point has no line. */
export function hasLine(overlay: Curve): boolean {
  return leastEnergyPart(overlay).length > 1;
}

/** Returns the label of a plan, above its point and within the chart. */
function labelOf(text: string, x: number, y: number, width: number): LabelBox & { text: string } {
  const right = Math.min(x + textWidth(text) / 2, width - 24);
  return { text, left: right - textWidth(text), right, y: y - 9 };
}

/** Draws the key of an overlay in a legend, in the box from (0, 0) to (24, 16). */
export function OverlayKey({ overlay, i, palette }: { overlay: Curve; i: number; palette: Palette }) {
  const color = palette.series[i % palette.series.length];
  return (
    <>
      {hasLine(overlay) && (
        <path d="M0,8h24" stroke={color} stroke-width="1.5" stroke-dasharray={dashes[i % dashes.length]} />
      )}
      {hasMarks(overlay) && <path d={marks[i % marks.length]} fill={color} transform="translate(12,8)" />}
    </>
  );
}

interface Props {
  report: Report;
  chosen: number; // The index of the chosen plan.
  width: number;
  height: number;
  palette: Palette;
}

export function FrontierChart({ report, chosen, width, height, palette }: Props) {
  const { box, x, y, unit } = frontierLayout(report, width, height);
  const path = line<FrontierPoint>(
    (p) => x(p.time_s),
    (p) => y(p.energy_j),
  );
  const reference = referenceOf(report);
  const baseline = { time_s: reference.time_ns / 1e9, energy_j: reference.energy_j };
  const plan = report.plans[chosen];
  const bound = report.frontier ? leastEnergyPart(report.frontier) : [];
  const scaledY = scaleLinear(
    y.domain().map((value) => value / unit.factor),
    y.range(),
  );
  const end = bound[bound.length - 1];
  const labels = report.plans
    .filter((p, i) => end && i !== chosen && p.time_ns / 1e9 > end.time_s * (1 + 1e-6))
    .map((p) => labelOf(p.target, x(p.time_ns / 1e9), y(p.energy_j), width));
  const shown = apart(labels);
  const xTicks = Math.max(3, Math.round(width / 110));
  return (
    <Frame
      box={box}
      palette={palette}
      x={{ scale: x, label: "iteration time (s)", ticks: xTicks, format: x.tickFormat(xTicks) }}
      y={{ scale: scaledY, label: `energy of an iteration (${unit.name}), one pipeline`, ticks: 6,
        format: scaledY.tickFormat(6) }}
    >
      {bound.length > 0 && (
        <g class="ends">
          <VerticalLine x={x(bound[0].time_s)} box={box} palette={palette} label="T_min" />
          <VerticalLine x={x(bound[bound.length - 1].time_s)} box={box} palette={palette} label="T*" isAtTop />
          <path d={path(bound)!} fill="none" stroke={palette.bound} stroke-width="2" />
        </g>
      )}
      {report.overlays.map((overlay, i) => {
        const curve = leastEnergyPart(overlay);
        const color = palette.series[i % palette.series.length];
        return (
          <g key={i}>
            <path d={path(curve) || undefined} fill="none" stroke={color} stroke-width="1.5"
              stroke-dasharray={dashes[i % dashes.length]} />
            {hasMarks(overlay) && curve.map((p) => (
              <path key={p.time_s} d={marks[i % marks.length]} fill={color}
                transform={`translate(${x(p.time_s)},${y(p.energy_j)})`} />
            ))}
          </g>
        );
      })}
      {report.plans.map((p, i) => (
        <circle
          key={p.name}
          cx={x(p.time_ns / 1e9)}
          cy={y(p.energy_j)}
          r={i === chosen ? 0 : 3.5}
          fill={palette.paper}
          stroke={palette.plan}
          stroke-width="1.5"
        />
      ))}
      {/* Plans beyond the end of the curve get a label, as their position explains nothing. */}
      {shown.map((label) => (
        <text key={label.text} x={(label.left + label.right) / 2} y={label.y} text-anchor="middle"
          fill={palette.muted}>
          {label.text}
        </text>
      ))}
      <path
        d={`M-5,-5L5,5M-5,5L5,-5`}
        transform={`translate(${x(baseline.time_s)},${y(baseline.energy_j)})`}
        stroke={palette.baseline}
        stroke-width="2.5"
      />
      <Saving x={x(plan.time_ns / 1e9)} left={x(baseline.time_s)} from={y(baseline.energy_j)}
        to={y(plan.energy_j)} palette={palette} />
      <circle cx={x(plan.time_ns / 1e9)} cy={y(plan.energy_j)} r="6" fill={palette.chosen}
        stroke={palette.paper} stroke-width="1.5" />
    </Frame>
  );
}

/** Draws an end of the frontier. Its fast end is high, so its label is low, and the other way round. */
function VerticalLine({ x, box, palette, label, isAtTop = false }: {
  isAtTop?: boolean;
  x: number;
  box: Box;
  palette: Palette;
  label: string;
}) {
  const [name, index] = label.split("_");
  return (
    <g transform={`translate(${x},0)`}>
      <line y1={box.top} y2={box.height - box.bottom} stroke={palette.muted}
        stroke-dasharray="2 4" />
      <text y={isAtTop ? box.top + 8 : box.height - box.bottom - 6} x={isAtTop ? -5 : 5}
        text-anchor={isAtTop ? "end" : "start"} fill={palette.muted} font-style="italic">
        {name}
        {index && <tspan dy="3" font-size="9">{index}</tspan>}
      </text>
    </g>
  );
}

/** Draws an arrow from the energy of the baseline down to the energy of the plan. */
function Saving({ x, left, from, to, palette }: {
  x: number;
  left: number;
  from: number;
  to: number;
  palette: Palette;
}) {
  if (to - from < 14) return null;
  return (
    <g fill="none" stroke={palette.chosen} stroke-width="1.5">
      {x - left > 16 && <path d={`M${left + 9},${from}H${x}`} stroke-dasharray="2 3" />}
      <path d={`M${x},${x - left > 16 ? from : from + 8}V${to - 9}m-4,-6l4,6l4,-6`} />
    </g>
  );
}

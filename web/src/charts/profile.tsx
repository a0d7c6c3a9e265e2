// Draws the measured options of every stage and kind, their lower hull (which the planner uses),
// and the exponential fit of the published method. The energy is the effective energy e - P t: the
// energy of an option minus the energy of waiting for the same time.
import { extent } from "d3-array";
import { scaleLinear } from "d3-scale";
import { line } from "d3-shape";
import type { Palette } from "../color";
import type { OptionSet, Report } from "../data";
import { fontFamily } from "./frame";
import { shortened } from "./timeline";

const panelWidth = 236;
const panelHeight = 176;
const gap = 14;
const legend = 40;

interface Props {
  report: Report;
  width: number;
  palette: Palette;
}

/** The option sets with more than one option. A fixed instruction has only one. */
const adjustable = (report: Report) => report.option_sets.filter((set) => set.time_ns.length > 1);

function columnsOf(width: number): number {
  return Math.max(1, Math.floor((width + gap) / (panelWidth + gap)));
}

export function profileHeight(report: Report, width: number): number {
  const rows = Math.ceil(adjustable(report).length / columnsOf(width));
  return legend + rows * (panelHeight + gap);
}

export function ProfileChart({ report, width, palette }: Props) {
  const columns = columnsOf(width);
  return (
    <g font-family={fontFamily} font-size="11">
      <g fill={palette.muted} transform="translate(2,12)">
        <circle cx="4" cy="-4" r="2.5" fill={palette.muted} />
        <text x="12">measured option</text>
        <path d="M118,-4h22" stroke={palette.bound} stroke-width="2" />
        <text x="146">lower hull, for planning</text>
        <path d="M286,-4h22" stroke={palette.chosen} stroke-width="1.5" stroke-dasharray="4 3" />
        <text x="314">exponential fit</text>
        <path d="M404,-9l10,10m0,-10l-10,10" stroke={palette.ink} stroke-width="2" />
        <text x="420">maximum frequency</text>
        <text x="2" y="18">
          x: time (ms); y: effective energy, e − P t, of all GPUs of the stage (J)
        </text>
      </g>
      {adjustable(report).map((set, i) => (
        <g
          key={set.name}
          transform={`translate(${(i % columns) * (panelWidth + gap)},${
            legend + Math.floor(i / columns) * (panelHeight + gap)
          })`}
        >
          <Panel set={set} blockingPower={report.job.blocking_power_w} palette={palette} />
        </g>
      ))}
    </g>
  );
}

function Panel({ set, blockingPower, palette }: {
  set: OptionSet;
  blockingPower: number;
  palette: Palette;
}) {
  const points = set.time_ns.map((time, i) => ({
    t: time / 1e6,
    e: set.energy_j[i] - (blockingPower * time) / 1e9,
  }));
  // Because of the margins, the marks at the edges are complete and do not cover the labels of the
  // axes.
  const x = scaleLinear(extent(points, (p) => p.t) as [number, number], [52, panelWidth - 14]);
  const y = scaleLinear(extent(points, (p) => p.e) as [number, number], [panelHeight - 38, 30]);
  const path = line<{ t: number; e: number }>(
    (p) => x(p.t),
    (p) => y(p.e),
  );
  const fit = set.fit;
  const [first, last] = x.domain();
  const fitted = fit
    ? Array.from({ length: 41 }, (_, i) => {
        const t = first + ((last - first) * i) / 40;
        return { t, e: fit.a * Math.exp(fit.b * (t / 1e3)) + fit.c };
      }).filter((p) => p.e <= y.domain()[1] && p.e >= y.domain()[0])
    : [];
  const baseline = points[set.baseline];
  return (
    <g>
      <text x="2" y="14" fill={palette.ink} font-weight="600">
        {shortened(set.name, 34)}
      </text>
      {y.ticks(4).map((tick) => (
        <g key={`y${tick}`}>
          <line x1="44" x2={panelWidth - 8} y1={y(tick)} y2={y(tick)} stroke={palette.faint} />
          <text x="40" y={y(tick)} dy="0.34em" text-anchor="end" fill={palette.muted}>
            {y.tickFormat(4)(tick)}
          </text>
        </g>
      ))}
      {x.ticks(4).map((tick) => (
        <text key={`x${tick}`} x={x(tick)} y={panelHeight - 10} text-anchor="middle"
          fill={palette.muted}>
          {x.tickFormat(4)(tick)}
        </text>
      ))}
      <line x1="44" x2={panelWidth - 8} y1={panelHeight - 26} y2={panelHeight - 26}
        stroke={palette.muted} />
      {points.map((p, i) => (
        <circle key={i} cx={x(p.t)} cy={y(p.e)} r="2.2" fill={palette.muted} />
      ))}
      <path d={path(set.hull.map((i) => points[i]))!} fill="none" stroke={palette.bound}
        stroke-width="2" />
      {fitted.length > 1 && (
        <path d={path(fitted)!} fill="none" stroke={palette.chosen} stroke-width="1.5"
          stroke-dasharray="4 3" />
      )}
      <path d="M-5,-5l10,10m0,-10l-10,10" stroke={palette.ink} stroke-width="2"
        transform={`translate(${x(baseline.t)},${y(baseline.e)})`} />
    </g>
  );
}

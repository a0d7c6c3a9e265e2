// Draws an emulated job over its iterations: the iteration times, and the power of the job.
import { max } from "d3-array";
import { scaleLinear } from "d3-scale";
import { line } from "d3-shape";
import type { Palette } from "../color";
import { Frame, tickFormat, type Box } from "./frame";

/** One value for each iteration. */
export interface EmulatedSeries {
  time_s: number[];
  average_power_w: number[];
  peak_power_w: number[];
}

export interface EmulationData {
  format: "perseus-emulation";
  version: number;
  pipelines: number;
  emulated: EmulatedSeries;
  maximum_frequency: EmulatedSeries;
}

interface Props {
  data: EmulationData;
  width: number;
  height: number; // Of each of the two charts, in pixels.
  palette: Palette;
}

export function EmulationChart({ data, width, height, palette }: Props) {
  const power = max(data.maximum_frequency.peak_power_w)!;
  const unit = power >= 2e6 ? { factor: 1e6, name: "MW" } : { factor: 1e3, name: "kW" };
  const scaled = (values: number[]) => values.map((value) => value / unit.factor);
  return (
    <>
      <Chart width={width} height={height} palette={palette} label="iteration time (s)"
        series={[
          { values: data.maximum_frequency.time_s, color: palette.baseline, dash: "2 3" },
          { values: data.emulated.time_s, color: palette.bound },
        ]} />
      <g transform={`translate(0,${height})`}>
        <Chart width={width} height={height} palette={palette} label={`power of the job (${unit.name})`}
          series={[
            { values: scaled(data.maximum_frequency.average_power_w), color: palette.baseline,
              dash: "2 3" },
            { values: scaled(data.emulated.peak_power_w), color: palette.chosen, dash: "6 3" },
            { values: scaled(data.emulated.average_power_w), color: palette.bound },
          ]} />
      </g>
    </>
  );
}

interface Series {
  values: number[];
  color: string;
  dash?: string;
}

function Chart({ width, height, palette, label, series }: {
  width: number;
  height: number;
  palette: Palette;
  label: string;
  series: Series[];
}) {
  const box: Box = { width, height, top: 34, right: 28, bottom: 46, left: 62 };
  const last = series[0].values.length;
  const x = scaleLinear([0, last], [box.left, width - box.right]);
  // The axis begins at 0, so that the saving is visible as a part of the whole.
  const y = scaleLinear([0, 1.05 * max(series, (s) => max(s.values))!],
    [height - box.bottom, box.top]);
  return (
    <Frame box={box} palette={palette}
      x={{ scale: x, label: "iteration", ticks: 8, format: tickFormat(x, 8) }}
      y={{ scale: y, label, ticks: 5, format: tickFormat(y, 5) }}>
      {series.map((s, i) => (
        <path key={i} d={line<[number, number]>((p) => x(p[0]), (p) => y(p[1]))(steps(s.values))!}
          fill="none" stroke={s.color} stroke-width="1.5"
          {...(s.dash ? { "stroke-dasharray": s.dash } : {})} />
      ))}
    </Frame>
  );
}

/** Returns one step for each run of equal values, because most iterations equal the previous one. */
export function steps(values: number[]): [number, number][] {
  const points: [number, number][] = [];
  values.forEach((value, i) => {
    if (i > 0 && value === values[i - 1]) return;
    if (i > 0) points.push([i, values[i - 1]]);
    points.push([i, value]);
  });
  if (values.length > 0) points.push([values.length, values[values.length - 1]]);
  return points;
}

// Draws how often a pp_rank runs at each clock.
import { max } from "d3-array";
import { scaleLinear } from "d3-scale";
import type { Palette } from "../color";
import type { Lane, Report } from "../data";

export interface Bar {
  frequency_mhz: number;
  counts: number[]; // The number of instructions by kind.
}

export interface ClockHistogram {
  kinds: string[];
  bars: Bar[];
  range: [number, number]; // The clocks of the whole profile, so that pp_ranks can be compared.
}

export const kindColors = (palette: Palette): string[] => [
  palette.bound,
  palette.chosen,
  ...palette.series,
];

/** Counts the clocks of the instructions of a pp_rank, for these kinds. */
export function histogramOf(
  report: Report,
  rank: number,
  lane: Lane,
  kinds: string[],
): ClockHistogram {
  const sets = report.option_sets.filter((set) => set.frequency_mhz.length > 1);
  const all = sets.flatMap((set) => set.frequency_mhz);
  const bars = new Map<number, number[]>();
  lane.options.forEach((option, i) => {
    const set = report.option_sets[report.pp_ranks[rank].option_sets[i]];
    if (set.frequency_mhz.length < 2) return;
    const frequency = set.frequency_mhz[option];
    const counts = bars.get(frequency) ?? [];
    const k = kinds.indexOf(set.kind);
    counts[k] = (counts[k] ?? 0) + 1;
    bars.set(frequency, counts);
  });
  return {
    kinds,
    bars: Array.from(bars, ([frequency_mhz, counts]) => ({
      frequency_mhz,
      counts: kinds.map((_, k) => counts[k] ?? 0),
    })).sort((a, b) => a.frequency_mhz - b.frequency_mhz),
    range: all.reduce(([low, high], f) => [Math.min(low, f), Math.max(high, f)], [Infinity, 0]),
  };
}

const width = 132;
const height = 36;

export function Histogram({ histogram, palette }: { histogram: ClockHistogram; palette: Palette }) {
  const { bars, kinds, range } = histogram;
  if (bars.length === 0) return null;
  const x = scaleLinear(range, [3, width - 3]);
  const total = (bar: Bar) => bar.counts.reduce((a, b) => a + b, 0);
  const y = scaleLinear([0, max(bars, total)!], [0, height - 12]);
  const colors = kindColors(palette);
  const text = bars.map((bar) => `${total(bar)} at ${bar.frequency_mhz} MHz`).join(", ");
  return (
    <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={text}>
      <title>{`${text} (${kinds.join(", ")})`}</title>
      <line x1="0" x2={width} y1={height - 10.5} y2={height - 10.5} stroke={palette.faint} />
      {bars.map((bar) => {
        let top = height - 11;
        return bar.counts.map((count, k) => {
          const size = y(count);
          top -= size;
          return count > 0 && (
            <rect key={`${bar.frequency_mhz} ${k}`} x={x(bar.frequency_mhz) - 1.5} width="3" y={top}
              height={size} fill={colors[k % colors.length]} />
          );
        });
      })}
      <text x="0" y={height} font-size="11" fill={palette.muted}>{range[0]}</text>
      <text x={width} y={height} font-size="11" text-anchor="end" fill={palette.muted}>
        {range[1]}
      </text>
    </svg>
  );
}

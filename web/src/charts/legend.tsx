// Explains the colors and marks of a timeline.
import { idleStep, powerColor, powerSteps, type Palette } from "../color";
import { blockingPowerOf, powerRange, type Report } from "../data";
import { watts } from "../format";
import { Flow, flowHeight, named, type Entry } from "./flow";
import { kindMarks, KindMark } from "./kinds";
import { textWidth } from "./labels";

export const legendWidth = 760;
const margin = 8; // Below the legend.

const stepWidth = 5;

function powersOf(report: Report): Entry {
  const [least, most] = powerRange(report);
  const before = `GPU at ${watts(least, 3)}`;
  const start = textWidth(before) + 6;
  const end = start + stepWidth * powerSteps;
  return {
    width: end + 6 + textWidth(watts(most, 3)) + 14,
    draw: () => (
      <>
        <text x="0" y="12">{before}</text>
        {Array.from({ length: powerSteps }, (_, step) => (
          <rect key={step} x={start + step * stepWidth} y="1" width={stepWidth + 0.4} height="14"
            fill={powerColor(step)} />
        ))}
        <text x={end + 6} y="12">{watts(most, 3)}</text>
      </>
    ),
  };
}

function entriesOf(report: Report): Entry[] {
  const box = (text: string, fill: (palette: Palette) => string): Entry =>
    named(text, (palette) => <rect y="1" width="22" height="14" fill={fill(palette)} />);
  const works = [report, ...(report.schedule_tradeoff?.timelines ?? [])];
  const sets = works.flatMap((work) => work.option_sets);
  const kinds = kindMarks.filter(({ kinds }) => sets.some((set) => kinds.includes(set.kind)));
  const entries = [
    powersOf(report),
    ...kinds.map(({ name, kinds: [kind] }) => named(name, () => <KindMark kind={kind} />)),
    box(`waiting, ${watts(blockingPowerOf(report), 3)}`, (palette) => palette.blocking),
    named("a critical path", (palette) => (
      <rect y="2" width="22" height="12" fill="none" stroke={palette.critical} stroke-width="1.2" />
    )),
  ];
  if (report.option_sets.some((set) => set.time_ns.length === 1)) {
    entries.push(box("no more power than waiting", () => powerColor(idleStep)));
  }
  return entries;
}

/** Returns the height of the legend in a page of this width. */
export const legendHeightFor = (report: Report, width: number): number =>
  flowHeight(entriesOf(report), width) + margin;

export function PowerLegend({ report, palette, width = legendWidth }: {
  report: Report;
  palette: Palette;
  width?: number;
}) {
  return <Flow entries={entriesOf(report)} width={width} palette={palette} />;
}

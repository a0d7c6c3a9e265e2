// Explains the colors of a timeline. The entries flow into as many lines as the width requires.
import type { JSX } from "preact";
import { idleStep, powerColor, powerSteps, type Palette } from "../color";
import { blockingPowerOf, powerRange, type Report } from "../data";
import { watts } from "../format";
import { fontFamily } from "./frame";

const lineHeight = 24;
export const legendHeight = 30;
export const legendWidth = 760;

interface Entry {
  width: number; // In pixels, with the space behind the entry.
  mark: (palette: Palette) => JSX.Element;
}

const stepWidth = 5;
const rampStart = 96;
const rampEnd = rampStart + stepWidth * powerSteps;

function entriesOf(report: Report): Entry[] {
  const [least, most] = powerRange(report);
  const box = (width: number, fill: (palette: Palette) => string, text: string): Entry => ({
    width,
    mark: (palette) => (
      <>
        <rect y="2" width="22" height="14" fill={fill(palette)} />
        <text x="28" y="13">{text}</text>
      </>
    ),
  });
  const entries = [
    {
      width: rampEnd + 62,
      mark: () => (
        <>
          <text x="0" y="13">{`GPU at ${watts(least, 3)}`}</text>
          {Array.from({ length: powerSteps }, (_, step) => (
            <rect key={step} x={rampStart + step * stepWidth} y="2" width={stepWidth + 0.4}
              height="14" fill={powerColor(step)} />
          ))}
          <text x={rampEnd + 6} y="13">{watts(most, 3)}</text>
        </>
      ),
    },
    box(150, (palette) => palette.blocking, `waiting, ${watts(blockingPowerOf(report), 3)}`),
    {
      width: 126,
      mark: (palette: Palette) => (
        <>
          <rect y="3" width="22" height="12" fill="none" stroke={palette.critical}
            stroke-width="1.2" />
          <text x="28" y="13">a critical path</text>
        </>
      ),
    },
  ];
  if (report.option_sets.some((set) => set.time_ns.length === 1)) {
    entries.push(box(206, () => powerColor(idleStep), "no more power than waiting"));
  }
  return entries;
}

/** Returns the place of each entry: [x, y]. */
function placesOf(entries: Entry[], width: number): [number, number][] {
  let x = 0;
  let y = 0;
  return entries.map((entry) => {
    if (x > 0 && x + entry.width > width) [x, y] = [0, y + lineHeight];
    const place: [number, number] = [x, y];
    x += entry.width;
    return place;
  });
}

/** Returns the height of the legend in a page of this width. */
export function legendHeightFor(report: Report, width: number): number {
  const places = placesOf(entriesOf(report), width);
  return places[places.length - 1][1] + legendHeight;
}

export function PowerLegend({ report, palette, width = legendWidth }: {
  report: Report;
  palette: Palette;
  width?: number;
}) {
  const entries = entriesOf(report);
  const places = placesOf(entries, width);
  return (
    <g font-family={fontFamily} font-size="12" fill={palette.muted}>
      {entries.map((entry, i) => (
        <g key={i} transform={`translate(${places[i].join()})`}>{entry.mark(palette)}</g>
      ))}
    </g>
  );
}

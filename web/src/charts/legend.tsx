// Explains the colors of a timeline.
import { idleStep, powerColor, powerSteps, type Palette } from "../color";
import { blockingPowerOf, powerRange, type Report } from "../data";
import { watts } from "../format";
import { fontFamily } from "./frame";

export const legendHeight = 30;
export const legendWidth = 760;

export function PowerLegend({ report, palette }: { report: Report; palette: Palette }) {
  const [least, most] = powerRange(report);
  const width = 5;
  const ramp = 96;
  const end = ramp + width * powerSteps;
  return (
    <g font-family={fontFamily} font-size="12" fill={palette.muted}>
      <text x="0" y="13">{`GPU at ${watts(least, 3)}`}</text>
      {Array.from({ length: powerSteps }, (_, step) => (
        <rect key={step} x={ramp + step * width} y="2" width={width + 0.4} height="14"
          fill={powerColor(step)} />
      ))}
      <text x={end + 6} y="13">{watts(most, 3)}</text>
      <rect x={end + 62} y="2" width="22" height="14" fill={palette.blocking} />
      <text x={end + 90} y="13">{`waiting, ${watts(blockingPowerOf(report), 3)}`}</text>
      <rect x={end + 212} y="3" width="22" height="12" fill="none" stroke={palette.critical}
        stroke-width="1.2" />
      <text x={end + 240} y="13">a critical path</text>
      {report.option_sets.some((set) => set.time_ns.length === 1) && (
        <>
          <rect x={end + 338} y="2" width="22" height="14" fill={powerColor(idleStep)} />
          <text x={end + 366} y="13">no more power than waiting</text>
        </>
      )}
    </g>
  );
}

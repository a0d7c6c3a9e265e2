// Draws how much of the saving remains with limits of clock changes. For each limit, it shows the
// plan that was found, and the most that any plan within the limit can save.
import { max, min } from "d3-array";
import { scaleLinear, scalePoint } from "d3-scale";
import { line } from "d3-shape";
import type { Palette } from "../color";
import type { SwitchTradeoff } from "../data";
import { Frame, type Box } from "./frame";
import { apart, textWidth } from "./labels";

interface Props {
  tradeoff: SwitchTradeoff;
  width: number;
  height: number;
  palette: Palette;
}

export function SwitchesChart({ tradeoff, width, height, palette }: Props) {
  const { limits, unlimited } = tradeoff;
  const box: Box = { width, height, top: 34, right: 28, bottom: 46, left: 62 };
  const percentOf = (saving: number) => 100 * saving;
  const bounds = limits.filter((limit) => limit.most_saving !== null)
    .map((limit) => ({ at: String(limit.max_switches), value: percentOf(limit.most_saving!) }));
  const plans = limits.filter((limit) => limit.saving !== null)
    .map((limit) => ({ at: String(limit.max_switches), value: percentOf(limit.saving!) }));
  const all = [0, percentOf(unlimited.saving), ...bounds.map((b) => b.value),
    ...plans.map((p) => p.value)];
  const y = scaleLinear([min(all)!, 1.08 * max(all)!], [height - box.bottom, box.top]);
  // The limits are a few numbers and not a range, so the distances between them are equal.
  const names = [...limits.map((limit) => String(limit.max_switches)), "none"];
  const places = scalePoint(names, [box.left, width - box.right]).padding(0.5);
  const index = scaleLinear([0, 1], [box.left, width - box.right]);
  const path = line<{ at: string; value: number }>((p) => places(p.at)!, (p) => y(p.value));
  const last = places("none")!;
  const nameOf = (at: string) => (at === "none" ? "no limit" : at);
  const labels = names.map((at) => {
    const half = Math.max(textWidth(nameOf(at)), textWidth("10.5")) / 2;
    return { at, left: places(at)! - half, right: places(at)! + half, y: 0 };
  });
  const labeled = new Set(apart(labels).map((label) => label.at));
  return (
    <Frame box={box} palette={palette}
      x={{ scale: index, label: "most clock changes of a GPU in an iteration", ticks: 0,
        format: String }}
      y={{ scale: y, label: "saving (%)", ticks: 6, format: y.tickFormat(6) }}>
      {names.map((name) => (
        <g key={name} transform={`translate(${places(name)},${height - box.bottom})`}>
          <line y2="5" stroke={palette.muted} />
          {labeled.has(name) && (
            <text y="18" text-anchor="middle" fill={palette.muted}>
              {nameOf(name)}
            </text>
          )}
        </g>
      ))}
      <line x1={box.left} x2={width - box.right} y1={y(percentOf(unlimited.saving))}
        y2={y(percentOf(unlimited.saving))} stroke={palette.baseline} stroke-dasharray="2 3" />
      <path d={path(bounds) || undefined} fill="none" stroke={palette.bound} stroke-width="1.5"
        stroke-dasharray="6 3" />
      <path d={path(plans) || undefined} fill="none" stroke={palette.chosen} stroke-width="1.5" />
      {plans.map((p) => (
        <g key={p.at} transform={`translate(${places(p.at)},${y(p.value)})`}>
          <circle r="4" fill={palette.chosen} />
          {p.at === String(tradeoff.max_switches) && (
            <circle class="limit-of-plans" r="8" fill="none" stroke={palette.chosen}
              stroke-width="1.5" />
          )}
          {/* The text is below its point, or above a point that is near the axis. */}
          {labeled.has(p.at) && (
            <text x="9" y={y(p.value) > height - box.bottom - 24 ? -8 : 17} fill={palette.ink}>
              {p.value.toFixed(1)}
            </text>
          )}
        </g>
      ))}
      <circle cx={last} cy={y(percentOf(unlimited.saving))} r="4" fill={palette.paper}
        stroke={palette.baseline} stroke-width="1.5" />
      <text x={last} y={y(percentOf(unlimited.saving)) - 10} text-anchor="middle"
        fill={palette.ink}>
        {percentOf(unlimited.saving).toFixed(1)}
      </text>
    </Frame>
  );
}

// Draws how much schedules save, over the memory that they need. For each amount of memory, it
// shows the best schedule that was found, and the most that any schedule in this memory can save.
import { extent, max, min } from "d3-array";
import { scaleLinear } from "d3-scale";
import { line } from "d3-shape";
import type { Palette } from "../color";
import type { ScheduleRow, ScheduleTradeoff } from "../data";
import { Frame, type Box } from "./frame";
import { apart, textWidth } from "./labels";

interface Props {
  tradeoff: ScheduleTradeoff;
  width: number;
  height: number;
  palette: Palette;
}

/** The label of the memory axis. */
export const memoryLabel = (tradeoff: ScheduleTradeoff): string =>
  tradeoff.unit === "GiB"
    ? "activations on the GPU that holds the most (GiB)"
    : `further microbatches in flight on a pp_rank, beyond ${tradeoff.reference}`;

const percentOf = (saving: number) => 100 * saving;

export function MemoryChart({ tradeoff, width, height, palette }: Props) {
  const [reference, ...rows] = tradeoff.rows;
  const box: Box = { width, height, top: 34, right: 40, bottom: 46, left: 62 };
  const bounded = rows.filter((row) => row.most_saving !== null);
  const savings = [
    ...tradeoff.rows.map((row) => row.saving),
    ...bounded.map((row) => row.most_saving!),
  ].map(percentOf);
  const [least, most] = extent(tradeoff.rows, (row) => row.memory) as [number, number];
  const margin = 0.04 * (most - least || 1);
  const x = scaleLinear([least - margin, most + margin], [box.left, width - box.right]);
  const y = scaleLinear([min([0, ...savings])!, 1.08 * max(savings)!],
    [height - box.bottom, box.top]);
  const place = (row: ScheduleRow, saving: number): [number, number] =>
    [x(row.memory), y(percentOf(saving))];
  const path = line();
  const referenceY = y(percentOf(reference.saving));
  const labels = rows.map((row) => {
    const [middle, height] = place(row, row.saving);
    const text = percentOf(row.saving).toFixed(1);
    // The text is below its point, or above a point that is near the axis.
    const below = y(0) - height < 24 ? -12 : 19;
    return { text, middle, left: middle - textWidth(text) / 2, right: middle + textWidth(text) / 2, y: height + below };
  });
  const isWhole = tradeoff.unit !== "GiB";
  const ticks = isWhole ? Math.min(10, Math.max(1, most - least)) : 8;
  return (
    <Frame box={box} palette={palette}
      x={{ scale: x, label: memoryLabel(tradeoff), ticks,
        format: isWhole ? (value) => (value % 1 === 0 ? `+${value}` : "") : x.tickFormat(ticks) }}
      y={{ scale: y, label: "energy saved at no slowdown (%)", ticks: 6, format: y.tickFormat(6) }}>
      <line x1={box.left} x2={width - box.right} y1={referenceY} y2={referenceY}
        stroke={palette.baseline} stroke-dasharray="2 3" />
      <path d={path(bounded.map((row) => place(row, row.most_saving!))) || undefined} fill="none"
        stroke={palette.bound} stroke-width="1.5" stroke-dasharray="6 3" />
      {bounded.map((row) => (
        <path key={row.name} d="M-4,0h8" stroke={palette.bound} stroke-width="1.5"
          transform={`translate(${place(row, row.most_saving!)})`} />
      ))}
      <path d={path(rows.map((row) => place(row, row.saving))) || undefined} fill="none"
        stroke={palette.chosen} stroke-width="1.5" />
      {rows.map((row) => (
        <circle key={row.name} r={row === tradeoff.rows[tradeoff.chosen] ? 6 : 4} fill={palette.chosen}
          transform={`translate(${place(row, row.saving)})`} />
      ))}
      {apart(labels).map((label) => (
        <text key={label.middle} x={label.middle} y={label.y} text-anchor="middle" fill={palette.ink}>
          {label.text}
        </text>
      ))}
      <circle cx={x(reference.memory)} cy={referenceY} r="5" fill={palette.paper}
        stroke={palette.baseline} stroke-width="1.5" />
    </Frame>
  );
}

// Draws axes, grid and labels around the plot of every chart.
import type { ScaleLinear } from "d3-scale";
import type { ComponentChildren } from "preact";
import type { Palette } from "../color";

export const fontFamily = "system-ui, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif";

export interface Box {
  width: number;
  height: number;
  top: number;
  right: number;
  bottom: number;
  left: number;
}

export interface Axis {
  scale: ScaleLinear<number, number>;
  label: string;
  ticks: number;
  format: (value: number) => string;
}

interface FrameProps {
  box: Box;
  x: Axis;
  y: Axis;
  palette: Palette;
  children?: ComponentChildren;
}

export function Frame({ box, x, y, palette, children }: FrameProps) {
  const bottom = box.height - box.bottom;
  const right = box.width - box.right;
  return (
    <g font-family={fontFamily} font-size="12">
      {y.scale.ticks(y.ticks).map((tick) => (
        <g key={`y${tick}`} transform={`translate(0,${y.scale(tick)})`}>
          <line x1={box.left} x2={right} stroke={palette.faint} />
          <text x={box.left - 8} dy="0.32em" text-anchor="end" fill={palette.muted}>
            {y.format(tick)}
          </text>
        </g>
      ))}
      {x.scale.ticks(x.ticks).map((tick) => (
        <g key={`x${tick}`} transform={`translate(${x.scale(tick)},${bottom})`}>
          <line y2="5" stroke={palette.muted} />
          <text y="18" text-anchor="middle" fill={palette.muted}>
            {x.format(tick)}
          </text>
        </g>
      ))}
      <line x1={box.left} x2={right} y1={bottom} y2={bottom} stroke={palette.muted} />
      {Math.min(...y.scale.domain()) > 0 && <AxisBreak x={box.left} y={bottom} palette={palette} />}
      {children}
      <text x={right} y={bottom + 36} text-anchor="end" fill={palette.ink}>
        {x.label}
      </text>
      <text x={box.left - 8} y={box.top - 12} text-anchor="start" fill={palette.ink}
        dx={-Math.min(box.left - 10, 44)}>
        {y.label}
      </text>
    </g>
  );
}

/** Draws a zigzag: the mark of an axis that does not begin at 0, so heights cannot be compared. */
function AxisBreak({ x, y, palette }: { x: number; y: number; palette: Palette }) {
  return (
    <path class="axis-break" d={`M${x},${y}v-4l-4,-2l8,-4l-4,-2v-4`} fill="none" stroke={palette.muted}
      stroke-width="1.2">
      <title>This axis does not begin at 0.</title>
    </path>
  );
}

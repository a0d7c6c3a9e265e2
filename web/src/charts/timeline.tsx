// Draws the timeline as SVG, for paper and files. All slices of one color are one path, so a job of
// ten thousand instructions needs only about fifty elements.
import { scaleLinear } from "d3-scale";
import { colorCount, inkOn, powerColor, type Palette } from "../color";
import { labelOf } from "../data";
import { fontFamily } from "./frame";
import { stripColors, stripHeight, stripOf } from "./kinds";
import { laneTop, titleLine, type TimelineGroup, type TimelineLayout } from "./lanes";

interface Props {
  layout: TimelineLayout;
  width: number;
  palette: Palette;
}

const left = 70; // Space for "pp_rank 63".
const right = 12;
export const axisHeight = 40;

export function TimelineChart({ layout, width, palette }: Props) {
  const x = scaleLinear([0, layout.longest / 1e9], [left, width - right]);
  const ticks = Math.max(3, Math.round(width / 120));
  return (
    <g font-family={fontFamily} font-size="12">
      {layout.groups.map((group) => (
        <Group key={group.title} layout={layout} group={group} palette={palette}
          x={(ns) => x(ns / 1e9)} />
      ))}
      {x.ticks(ticks).map((tick) => (
        <g key={tick} transform={`translate(${x(tick)},${layout.height + 4})`}>
          <line y2="5" stroke={palette.muted} />
          <text y="18" text-anchor="middle" fill={palette.muted}>
            {x.tickFormat(ticks)(tick)}
          </text>
        </g>
      ))}
      <line x1={left} x2={width - right} y1={layout.height + 4} y2={layout.height + 4}
        stroke={palette.muted} />
      <text x={width - right} y={layout.height + 34} text-anchor="end" fill={palette.ink}>
        time (s)
      </text>
    </g>
  );
}

function Group({ layout, group, palette, x }: {
  layout: TimelineLayout;
  group: TimelineGroup;
  palette: Palette;
  x: (ns: number) => number;
}) {
  const paths: string[] = Array.from({ length: colorCount }, () => "");
  const strips = { dark: "", light: "" };
  let frames = "";
  let lines = "";
  const strip = stripHeight(layout.laneHeight);
  const labels: { x: number; y: number; text: string; step: number }[] = [];
  const fixed = (value: number) => Math.round(value * 100) / 100;
  group.lanes.forEach((lane, r) => {
    const top = laneTop(layout, group, r);
    lane.forEach((slice, i) => {
      const from = x(slice.start);
      const width = x(slice.start + slice.duration) - from;
      // Adjacent slices get a small gap if they are wide enough.
      const drawn = fixed(width > 8 ? width - 0.6 : width);
      const rect = `M${fixed(from)},${top}h${drawn}v${layout.laneHeight}h${-drawn}z`;
      paths[group.steps[r][i]] += rect;
      const mark = stripOf(slice.set.kind);
      if (mark !== "none") {
        strips[mark] += `M${fixed(from)},${top + layout.laneHeight - strip}h${drawn}v${strip}h${-drawn}z`;
      }
      if (slice.critical && width >= leastFrame) frames += rect;
      if (slice.critical && width < leastFrame) lines += lineAbove(fixed(from), top, fixed(width));
      const text = labelOf(slice);
      if (width > 7 * text.length + 2 && layout.laneHeight >= 12) {
        labels.push({ x: from + width / 2, y: top + (layout.laneHeight - strip) / 2, text,
          step: group.steps[r][i] });
      }
    });
  });
  const end = x(group.iteration.time_ns);
  return (
    <g>
      {group.titleLines.map((line, i) => (
        <text key={i} x="0" y={group.top - 7 - titleLine * (group.titleLines.length - 1 - i)}
          fill={palette.ink} font-weight="600">
          {line}
        </text>
      ))}
      {group.lanes.map((_, r) => (
        <g key={r}>
          <rect x={x(0)} width={end - x(0)} y={laneTop(layout, group, r)}
            height={layout.laneHeight} fill={palette.blocking} />
          {layout.laneHeight >= 9 && (
            <text x={x(0) - 6} y={laneTop(layout, group, r) + layout.laneHeight / 2} dy="0.34em"
              text-anchor="end" font-size="11" fill={palette.muted}>
              {shortened(group.names[r], 10)}
            </text>
          )}
        </g>
      ))}
      {paths.map((d, step) => d && <path key={step} d={d} fill={powerColor(step)} />)}
      {strips.dark && <path d={strips.dark} fill={stripColors.dark} />}
      {strips.light && <path d={strips.light} fill={stripColors.light} />}
      {frames && (
        <path d={frames} fill="none" stroke={palette.critical}
          stroke-width={layout.laneHeight >= 12 ? 1.1 : 0.5} />
      )}
      {lines && <path d={lines} fill="none" stroke={palette.critical} stroke-width={layout.gap > 1 ? 2 : 1} />}
      {labels.map((label) => (
        <text key={`${label.x},${label.y}`} x={label.x} y={label.y} dy="0.34em" font-size="10"
          text-anchor="middle" fill={inkOn(label.step)}>
          {label.text}
        </text>
      ))}
    </g>
  );
}

/** A critical instruction that is narrower (pixels) has a line above instead of a frame. Frames of
 *  narrow neighbors would look like a black bar. */
export const leastFrame = 12;

/** Returns the line above an instruction, in the gap between lanes. */
export const lineAbove = (from: number, top: number, width: number) =>
  `M${from},${top - 0.5}h${Math.max(width, 1)}`;

export function shortened(text: string, length: number): string {
  const characters = Array.from(text);
  return characters.length <= length ? text : characters.slice(0, length - 1).join("") + "…";
}

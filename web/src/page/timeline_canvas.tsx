// Draws the timeline on a canvas, because each frame of a zoom draws up to ten thousand
// instructions again. It draws only the visible part, color by color.
import { scaleLinear } from "d3-scale";
import { pointer, select } from "d3-selection";
import { zoom, zoomIdentity, type ZoomBehavior, type ZoomTransform } from "d3-zoom";
import { useEffect, useRef, useState } from "preact/hooks";
import { colorCount, inkOn, powerColor, type Palette } from "../color";
import { labelOf, powerOf, type Report, type Slice } from "../data";
import { counted, joules, megahertz, seconds, watts } from "../format";
import { fontFamily } from "../charts/frame";
import { firstEndingAfter, laneTop, type TimelineLayout } from "../charts/lanes";
import { stripColors, stripHeight, stripOf } from "../charts/kinds";
import { leastFrame, shortened } from "../charts/timeline";
import type { Theme } from "./theme_button";
import { computedPalette } from "./themed";

const left = 72; // Space for "pp_rank 63".
const right = 8;
const axis = 34;
const mostZoom = 400;

interface Props {
  report: Report;
  layout: TimelineLayout;
  width: number;
  theme: Theme;
  label: string;
}

interface Found {
  x: number;
  y: number;
  slice: Slice | null; // Null while the rank waits.
  where: string;
  start: number;
  end: number;
}

export function TimelineCanvas({ report, layout, width, theme, label }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const behavior = useRef<ZoomBehavior<HTMLCanvasElement, unknown>>();
  const [transform, setTransform] = useState<ZoomTransform>(zoomIdentity);
  const [found, setFound] = useState<Found | null>(null);
  const height = layout.height + axis;
  const x = transform.rescaleX(scaleLinear([0, layout.longest], [left, width - right]));

  useEffect(() => {
    const area: [[number, number], [number, number]] = [[left, 0], [width - right, height]];
    const zooming = zoom<HTMLCanvasElement, unknown>()
      .scaleExtent([1, mostZoom])
      .extent(area)
      .translateExtent(area)
      // One notch of the wheel zooms as far as one press of a key.
      .wheelDelta((event) => -event.deltaY * (event.deltaMode === 1 ? 0.08 : 0.004))
      // The wheel with ctrl and two fingers zoom. The wheel alone and one finger scroll the page.
      .filter((event) =>
        event.type === "wheel" ? event.ctrlKey || event.metaKey : event.touches ? event.touches.length > 1 : !event.button,
      )
      .on("zoom", (event) => setTransform(event.transform));
    behavior.current = zooming;
    const selection = select(canvas.current!);
    selection.call(zooming);
    return () => {
      selection.on(".zoom", null);
    };
  }, [width, height]);

  useEffect(() => {
    const draw = () => paint(canvas.current!, layout, width, height, x);
    draw();
    // The theme of the system may change, and the page may follow it.
    const media = window.matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", draw);
    window.addEventListener("themechange", draw);
    return () => {
      media.removeEventListener("change", draw);
      window.removeEventListener("themechange", draw);
    };
  }, [layout, width, transform, theme]);

  const scale = (factor: number) =>
    select(canvas.current!).call(behavior.current!.scaleBy, factor);
  const move = (part: number) =>
    select(canvas.current!).call(behavior.current!.translateBy, (part * width) / transform.k, 0);
  const read = (event: PointerEvent) => {
    const [px, py] = pointer(event, canvas.current!);
    setFound(find(layout, px, py, x.invert(px)));
  };
  const reset = () => select(canvas.current!).call(behavior.current!.transform, zoomIdentity);
  const keys: Record<string, () => void> = {
    "+": () => scale(1.5),
    "=": () => scale(1.5),
    "-": () => scale(1 / 1.5),
    "0": reset,
    ArrowLeft: () => move(0.15),
    ArrowRight: () => move(-0.15),
  };
  return (
    <>
      <canvas
        ref={canvas}
        style={{ width, height }}
        tabIndex={0}
        role="img"
        aria-label={`${label}. The keys plus and minus zoom, the arrow keys move, and 0 shows all.`}
        data-zoom={transform.k.toFixed(2)}
        onKeyDown={(event) => {
          if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
          keys[event.key]();
          event.preventDefault();
        }}
        onPointerMove={read}
        onPointerDown={read}
        onPointerLeave={(event) => event.pointerType === "mouse" && setFound(null)}
      />
      <div class="zoom" role="group" aria-label="Zoom of the timeline">
        <button type="button" aria-label="Zoom in" onClick={() => scale(2)}>+</button>
        <button type="button" aria-label="Zoom out" onClick={() => scale(0.5)}>−</button>
        <button type="button" onClick={reset}>All</button>
        <span class="mouse">ctrl and the mouse wheel zoom, dragging moves</span>
        <span class="touch">a tap shows values, two fingers zoom and move</span>
      </div>
      {found && <Reading report={report} found={found} width={width} />}
    </>
  );
}

function Reading({ report, found, width }: { report: Report; found: Found; width: number }) {
  const { slice } = found;
  const side = found.x > width / 2 ? { right: width - found.x + 14 } : { left: found.x + 14 };
  return (
    <div class="tooltip" role="status" style={{ ...side, top: found.y + 14 }}>
      <strong>{slice ? `${labelOf(slice)}: ${slice.set.name}` : "waits"}</strong>
      <div>{found.where}</div>
      {slice && slice.set.frequency_mhz[slice.option] > 0 && (
        <div>{megahertz(slice.set.frequency_mhz[slice.option])} MHz</div>
      )}
      {slice && slice.set.knobs[slice.option].map((value, i) => (
        <div key={i}>{report.job.knobs[i]} {value}</div>
      ))}
      <div>
        {seconds(found.end - found.start)} from {seconds(found.start)}
      </div>
      {slice && (
        <div>
          {joules(slice.energy)} of {counted(report.job.gpus_per_stage, "GPU")} at{" "}
          {watts(powerOf(slice, report), 3)}
          {slice.critical && ", critical"}
        </div>
      )}
    </div>
  );
}

function find(layout: TimelineLayout, px: number, py: number, time: number) {
  if (px < left) return null;
  for (const group of layout.groups) {
    for (let r = 0; r < group.lanes.length; ++r) {
      const top = laneTop(layout, group, r);
      if (py < top || py > top + layout.laneHeight + layout.gap) continue;
      if (time > group.iteration.time_ns) return null;
      const lane = group.lanes[r];
      const i = firstEndingAfter(lane, time);
      const slice = lane[i];
      const where = `${group.names[r]}, ${group.title}`;
      if (slice && slice.start <= time) {
        return { x: px, y: py, slice, where, start: slice.start, end: slice.start + slice.duration };
      }
      const before = i > 0 ? lane[i - 1].start + lane[i - 1].duration : 0;
      const end = slice ? slice.start : group.iteration.time_ns;
      return { x: px, y: py, slice: null, where, start: before, end };
    }
  }
  return null;
}

type TimeScale = ReturnType<typeof scaleLinear<number, number>>;

function paint(
  canvas: HTMLCanvasElement,
  layout: TimelineLayout,
  width: number,
  height: number,
  x: TimeScale,
) {
  const palette = computedPalette(canvas);
  const density = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  const context = canvas.getContext("2d")!;
  context.scale(density, density);
  context.textBaseline = "middle";
  for (const group of layout.groups) {
    context.font = `600 13px ${fontFamily}`;
    context.fillStyle = palette.ink;
    context.textAlign = "left";
    context.fillText(group.title, 0, group.top - 12);
  }
  context.save();
  context.beginPath();
  context.rect(left, 0, width - left - right, height);
  context.clip();
  paintSlices(context, layout, x, palette);
  context.restore();
  paintNames(context, layout, palette);
  paintAxis(context, layout, width, x, palette);
}

function paintSlices(
  context: CanvasRenderingContext2D,
  layout: TimelineLayout,
  x: TimeScale,
  palette: Palette,
) {
  const [from, to] = [x.invert(left), x.invert(x.range()[1])];
  const byStep: number[][] = Array.from({ length: colorCount }, () => []);
  const outlines: number[] = [];
  const strips: Record<"dark" | "light", number[]> = { dark: [], light: [] };
  const strip = stripHeight(layout.laneHeight);
  const labels: [number, number, string, number][] = [];
  context.fillStyle = palette.blocking;
  for (const group of layout.groups) {
    group.lanes.forEach((lane, r) => {
      const top = laneTop(layout, group, r);
      context.fillRect(x(0), top, x(group.iteration.time_ns) - x(0), layout.laneHeight);
      for (let i = firstEndingAfter(lane, from); i < lane.length && lane[i].start < to; ++i) {
        const slice = lane[i];
        const begin = x(slice.start);
        const length = x(slice.start + slice.duration) - begin;
        const step = group.steps[r][i];
        byStep[step].push(begin, top, length);
        if (slice.critical) outlines.push(begin, top, length);
        const mark = stripOf(slice.set.kind);
        if (mark !== "none") strips[mark].push(begin, top, length > 10 ? length - 0.6 : length);
        if (length > 14 && layout.laneHeight >= 12) {
          const text = labelOf(slice);
          if (length > 6 * text.length + 2) labels.push([begin + length / 2, top, text, step]);
        }
      }
    });
  }
  const paintAll = (rects: number[], each: (begin: number, top: number, length: number) => void) => {
    for (let i = 0; i < rects.length; i += 3) each(rects[i], rects[i + 1], rects[i + 2]);
  };
  byStep.forEach((rects, step) => {
    context.fillStyle = powerColor(step);
    paintAll(rects, (begin, top, length) =>
      // Adjacent slices get a small gap if they are wide enough.
      context.fillRect(begin, top, length > 10 ? length - 0.6 : length, layout.laneHeight),
    );
  });
  for (const mark of ["dark", "light"] as const) {
    context.fillStyle = stripColors[mark];
    paintAll(strips[mark], (begin, top, length) =>
      context.fillRect(begin, top + layout.laneHeight - strip, length, strip));
  }
  context.strokeStyle = palette.critical;
  context.fillStyle = palette.critical;
  context.lineWidth = layout.laneHeight >= 12 ? 1.4 : 0.8;
  context.beginPath();
  const line = layout.gap > 1 ? 2 : 1;
  paintAll(outlines, (begin, top, length) => {
    if (length >= leastFrame) {
      context.rect(begin + 0.5, top + 0.7, length - 1.4, layout.laneHeight - 1.4);
    } else {
      context.fillRect(begin, top - 0.5 - line / 2, Math.max(length, 1), line);
    }
  });
  context.stroke();
  context.font = `10px ${fontFamily}`;
  context.textAlign = "center";
  for (const [middle, top, text, step] of labels) {
    context.fillStyle = inkOn(step);
    context.fillText(text, middle, top + (layout.laneHeight - strip) / 2 + 0.5);
  }
}

function paintNames(
  context: CanvasRenderingContext2D,
  layout: TimelineLayout,
  palette: Palette,
) {
  if (layout.laneHeight < 9) return;
  context.font = `11px ${fontFamily}`;
  context.textAlign = "right";
  context.fillStyle = palette.muted;
  for (const group of layout.groups) {
    group.lanes.forEach((_, r) => {
      const middle = laneTop(layout, group, r) + layout.laneHeight / 2;
      context.fillText(shortened(group.names[r], 10), left - 6, middle, left - 6);
    });
  }
}

function paintAxis(
  context: CanvasRenderingContext2D,
  layout: TimelineLayout,
  width: number,
  x: TimeScale,
  palette: Palette,
) {
  const inSeconds = x.copy().domain(x.domain().map((ns) => ns / 1e9));
  const count = Math.max(2, Math.round(width / 130));
  const format = inSeconds.tickFormat(count);
  const top = layout.height + 4;
  context.strokeStyle = palette.muted;
  context.fillStyle = palette.muted;
  context.lineWidth = 1;
  context.font = `11px ${fontFamily}`;
  context.beginPath();
  context.moveTo(left, top + 0.5);
  context.lineTo(width - right, top + 0.5);
  for (const tick of inSeconds.ticks(count)) {
    const at = inSeconds(tick);
    context.moveTo(at, top);
    context.lineTo(at, top + 5);
    // The first and the last label must not be cut off.
    context.textAlign = at > width - right - 24 ? "right" : at < left + 12 ? "left" : "center";
    context.fillText(`${format(tick)} s`, at, top + 16);
  }
  context.stroke();
}

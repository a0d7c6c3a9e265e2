// Places the lanes of a timeline: the baseline above, the plan below, with the same time scale.
import type { Iteration, Report, Slice, Work } from "../data";
import { blockingPowerOf, powerOf, powerRange, slicesOf } from "../data";
import { powerStep } from "../color";
import { wrapped } from "./labels";

export interface TimelineGroup {
  titleLines: string[];
  title: string;
  iteration: Iteration;
  names: string[]; // The names of the lanes.
  lanes: Slice[][];
  steps: number[][]; // The color of each slice (powerStep in color.ts).
  top: number; // The top of the first lane, in pixels.
}

export interface TimelineLayout {
  groups: TimelineGroup[];
  laneHeight: number;
  gap: number; // The space between lanes, in pixels.
  height: number;
  longest: number; // The longest iteration, in ns.
}

const titleHeight = 22;
export const titleLine = 15;

export function laneHeightFor(ranks: number): number {
  return ranks <= 4 ? 30 : ranks <= 8 ? 22 : ranks <= 16 ? 14 : ranks <= 64 ? 7 : 3;
}

/** An iteration with its title. An iteration of another schedule has its own `work`. */
export interface TitledIteration {
  title: string;
  iteration: Iteration;
  work?: Work;
}

export function layOutTimeline(
  report: Report,
  iterations: TitledIteration[],
  laneHeight: number,
  width = Infinity, // For the titles.
): TimelineLayout {
  const range = powerRange(report);
  const blocking = blockingPowerOf(report);
  const gap = laneHeight >= 14 ? 3 : 1;
  let top = 0;
  const groups = iterations.map(({ title, iteration, work = report }) => {
    const lanes = slicesOf(work, iteration);
    const titleLines = wrapped(title, width);
    const group = {
      titleLines,
      title,
      iteration,
      names: work.pp_ranks.map((rank) => rank.name),
      lanes,
      steps: lanes.map((lane) => lane.map((slice) => powerStep(powerOf(slice, report), range, blocking))),
      top: top + titleHeight + titleLine * (titleLines.length - 1),
    };
    top = group.top + lanes.length * (laneHeight + gap) + 10;
    return group;
  });
  return {
    groups,
    laneHeight,
    gap,
    height: top - 10,
    longest: Math.max(...iterations.map(({ iteration }) => iteration.time_ns)),
  };
}

export const laneTop = (layout: TimelineLayout, group: TimelineGroup, lane: number): number =>
  group.top + lane * (layout.laneHeight + layout.gap);

/** Returns the index of the first slice that ends after `time` (ns). Requires slices in order. */
export function firstEndingAfter(lane: Slice[], time: number): number {
  let low = 0;
  let high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane[middle].start + lane[middle].duration > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

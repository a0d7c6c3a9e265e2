// What the program writes into the page (src/report/report.cc), and the same laid out for drawing.
// Times are in ns, energies in J, powers in W; a rank's are of all its GPUs together.

export interface OptionSet {
  name: string;
  kind: string; // "forward", "backward", ..., "all_reduce", "generic"
  pp_rank: number;
  chunk: number;
  baseline: number; // Index of the option at maximum frequency.
  hull: number[]; // Indices of the options that are vertices of the curve, fastest first.
  frequency_mhz: number[];
  time_ns: number[];
  energy_j: number[];
  knobs: number[][];
  fit?: { a: number; b: number; c: number }; // Effective energy = a exp(b t) + c, t in s.
}

export interface Rank {
  name: string;
  option_sets: number[]; // Per instruction, in execution order.
  microbatches: number[]; // -1: of none.
}

export interface Lane {
  options: number[];
  gaps_ns: number[]; // What the rank waits before each instruction.
  critical: string; // "0" or "1" for each instruction.
  durations_ns?: number[]; // Only under a switching latency, else those of the options.
  energies_j?: number[];
  busy_ns: number;
  energy_j: Record<string, number>; // By kind.
  blocking_energy_j: number;
  switches: number;
  marginal_w: number;
}

export interface Iteration {
  time_ns: number;
  energy_j: number;
  instruction_energy_j: number;
  blocking_energy_j: number;
  switches: number;
  lanes: Lane[];
}

export interface Plan extends Iteration {
  name: string;
  target: string;
  deadline_s: number;
  lower_bound_j: number;
  gap: number;
  marginal_w: number | null;
}

export interface Frontier {
  name: string;
  breakpoints: number;
  time_s: number[];
  energy_j: number[];
  marginal_w: number[];
}

export interface Job {
  profile?: string;
  graph?: string;
  schedule: string;
  instructions: number;
  microbatches?: number;
  pipelines: number;
  gpus_per_stage: number;
  blocking_power_w: number; // Of a rank.
  switch_latency_s: number;
  knobs: string[];
}

export interface Report {
  format: "perseus-report";
  version: number;
  job: Job;
  option_sets: OptionSet[];
  ranks: Rank[];
  frontier: Frontier | null;
  baseline: Iteration;
  plans: Plan[]; // Fastest first.
  chosen: number; // Index of the plan that is shown first.
  overlays: Frontier[];
}

export function parseReport(text: string): Report {
  const report = JSON.parse(text) as Report;
  if (report.format !== "perseus-report" || report.version !== 1) {
    throw new Error("the data in this page is not a report of this version");
  }
  return report;
}

/** One instruction of a timeline, as long as it is drawn. */
export interface Slice {
  set: OptionSet;
  microbatch: number;
  option: number;
  start: number; // ns
  duration: number; // ns
  energy: number; // J, all GPUs of the stage
  critical: boolean;
}

/** The instructions of each rank, in order. */
export function slicesOf(report: Report, iteration: Iteration): Slice[][] {
  return iteration.lanes.map((lane, r) => {
    const rank = report.ranks[r];
    let end = 0;
    return lane.options.map((option, i) => {
      const set = report.option_sets[rank.option_sets[i]];
      const start = end + lane.gaps_ns[i];
      const duration = lane.durations_ns ? lane.durations_ns[i] : set.time_ns[option];
      end = start + duration;
      return {
        set,
        microbatch: rank.microbatches[i],
        option,
        start,
        duration,
        energy: lane.energies_j ? lane.energies_j[i] : set.energy_j[option],
        critical: lane.critical[i] === "1",
      };
    });
  });
}

/** W of one GPU while the instruction runs. */
export function powerOf(slice: Slice, report: Report): number {
  return slice.energy / (slice.duration / 1e9) / report.job.gpus_per_stage;
}

/** W of one GPU that waits. */
export const blockingPowerOf = (report: Report): number =>
  report.job.blocking_power_w / report.job.gpus_per_stage;

/** Least and most power of one GPU that any option draws beyond waiting: for colours. */
export function powerRange(report: Report): [number, number] {
  let least = Infinity;
  let most = 0;
  const waiting = blockingPowerOf(report) * 1.02;
  for (const set of report.option_sets) {
    set.time_ns.forEach((time, i) => {
      const power = set.energy_j[i] / (time / 1e9) / report.job.gpus_per_stage;
      if (power <= waiting) return;
      least = Math.min(least, power);
      most = Math.max(most, power);
    });
  }
  return least < most ? [least, most] : [0, Math.max(most, 1)];
}

const letters: Record<string, string> = {
  forward: "F",
  backward: "B",
  backward_input: "I",
  backward_weight: "W",
  recompute: "R",
  load: "L",
  all_reduce: "A",
  optimizer: "O",
};

/** "F3": the forward of microbatch 3. */
export function labelOf(slice: Slice): string {
  const letter = letters[slice.set.kind];
  if (letter === undefined) return slice.set.name;
  return slice.microbatch >= 0 ? letter + slice.microbatch : letter;
}

export function gpusOfPipeline(report: Report): number {
  return report.ranks.length * report.job.gpus_per_stage;
}

/** The plan of least energy with no slowdown, the first of equal ones; else the fastest. */
export function firstPlan(report: Report): number {
  const baseline = report.baseline.time_ns;
  let best = 0;
  report.plans.forEach((plan, i) => {
    const isBetter = plan.time_ns <= baseline && plan.energy_j < report.plans[best].energy_j;
    if (isBetter) best = i;
  });
  return best;
}

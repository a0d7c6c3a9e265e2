// The data that the program writes into the page (perseus/planning/report/report.cc), and functions
// that prepare it for drawing. Times are in ns, energies in J, powers in W. The values of a pp_rank
// are for all its GPUs together. In the report of a general graph, a "rank" is a resource.

export interface OptionSet {
  name: string;
  kind: string; // "forward", "backward", ..., "all_reduce", "generic"
  pp_rank: number;
  chunk: number;
  baseline: number; // The index of the option at maximum frequency.
  hull: number[]; // Indices of the options that are vertices of the lower hull, fastest first.
  frequency_mhz: number[];
  time_ns: number[];
  energy_j: number[];
  knobs: (number | string)[][];
  // The fit: effective energy (J) = a exp(b t) + c, with t in s.
  fit?: { a: number; b: number; c: number };
}

export interface Rank {
  name: string;
  option_sets: number[]; // The index of the option set of each instruction, in execution order.
  microbatches: number[]; // By instruction. -1: the instruction belongs to no microbatch.
}

export interface Lane {
  options: number[]; // The option of each instruction, in execution order.
  gaps_ns: number[]; // How long the pp_rank waits before each instruction.
  // "1" for each instruction on the critical path, and "0" for other instructions.
  critical: string;
  // Only if clock changes take time. Otherwise the durations are those of the options.
  durations_ns?: number[];
  energies_j?: number[];
  busy_ns: number;
  energy_j: Record<string, number>; // The energy by kind.
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

// Means over iterations in which the times of instructions vary, compared with maximum frequency
// and the same noise.
export interface UnderNoise {
  slowdown: number;
  slowdown_ci: number; // Half-width of the 95 % confidence interval.
  saving: number;
  saving_ci: number;
  most_saving: number; // The most that a plan with this mean time can save.
}

export interface Plan extends Iteration {
  name: string;
  target: string;
  deadline_s: number;
  lower_bound_j: number;
  gap: number;
  marginal_w: number | null;
  noise?: UnderNoise; // Only if the noise of the job is known.
}

export interface Frontier {
  name: string;
  breakpoints: number;
  /** The greatest error as a fraction of the energy. Absent if the frontier is exact. */
  error?: number;
  error_j?: number[];
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
  blocking_power_w: number; // For all GPUs of one pp_rank.
  switch_latency_s: number;
  knobs: string[];
  noise?: { independent: number; common: number }; // The relative standard deviations of times.
}

/** The saving with one limit of clock changes, as fractions of the energy at maximum frequency. */
export interface SwitchLimit {
  max_switches: number; // For one GPU in an iteration.
  saving: number | null; // The saving of the plan. Null if no plan was found.
  // The most that a plan within the limit can save. Null if no plan is possible.
  most_saving: number | null;
}

export interface SwitchTradeoff {
  target: string;
  limits: SwitchLimit[]; // In ascending order.
  unlimited: { saving: number };
  max_switches?: number; // The limit that the plans of the report keep.
}

/** The instructions of the pp_ranks, and the options of these instructions. */
export interface Work {
  option_sets: OptionSet[];
  pp_ranks: Rank[];
}

/** The saving of one schedule, and the memory that it needs. */
export interface ScheduleRow {
  name: string;
  in_flight: number[]; // The most microbatches that each pp_rank holds at a time.
  memory: number; // In the unit of the trade-off (ScheduleTradeoff.unit).
  energy_j: number;
  // The saving of its plan, as a fraction of the energy of the reference at maximum frequency.
  saving: number;
  most_saving: number | null; // The most that a schedule in this memory can save. Null if unknown.
}

/** An iteration with one schedule: at maximum frequency, and with its plan. */
export interface ScheduleTimeline extends Work {
  name: string;
  baseline: Iteration;
  plan: Iteration;
}

export interface ScheduleTradeoff {
  reference: string;
  unit: string; // "microbatches" (in addition to the reference), or "GiB".
  memory_source: string; // A sentence that says which numbers were measured, modeled or given.
  rows: ScheduleRow[]; // The reference first, then in order of memory.
  chosen: number; // The index of the row of the last timeline.
  timelines: ScheduleTimeline[];
  conclusion: string;
}

export interface Report {
  format: "perseus-report";
  version: number;
  job: Job;
  option_sets: OptionSet[];
  pp_ranks: Rank[];
  frontier: Frontier | null;
  baseline: Iteration;
  plans: Plan[]; // Fastest first.
  chosen: number; // The index of the plan that is shown first.
  overlays: Frontier[];
  stopped_early?: boolean; // The user stopped the search for the plans.
  switch_tradeoff?: SwitchTradeoff; // Only with `perseus plan --switch-tradeoff`.
  schedule_tradeoff?: ScheduleTradeoff; // Only if the schedule was searched for.
  // Another schedule at maximum frequency, to which savings refer. Absent if they refer to `baseline`.
  compared_with?: { schedule: string; time_ns: number; energy_j: number };
}

/** Returns what savings and slowdowns refer to. */
export function referenceOf(report: Report): { name: string; time_ns: number; energy_j: number } {
  const other = report.compared_with;
  if (other) return { ...other, name: `${other.schedule} at maximum frequency` };
  return { ...report.baseline, name: "maximum frequency" };
}

export function parseReport(text: string): Report {
  const report = JSON.parse(text) as Report;
  if (report.format !== "perseus-report" || report.version !== 1) {
    throw new Error("the data in this page is not a report, or has another version");
  }
  return report;
}

/** One instruction of a timeline. */
export interface Slice {
  set: OptionSet;
  chunk: string; // "₁" for chunk 1. Empty if each pp_rank has only one chunk.
  microbatch: number;
  option: number;
  start: number; // ns
  duration: number; // ns
  energy: number; // J, all GPUs of the stage
  critical: boolean;
}

/** Returns the instructions of each pp_rank, in execution order. */
export function slicesOf(work: Work, iteration: Iteration): Slice[][] {
  const hasChunks = work.option_sets.some((set) => set.chunk > 0);
  return iteration.lanes.map((lane, r) => {
    const rank = work.pp_ranks[r];
    let end = 0;
    return lane.options.map((option, i) => {
      const set = work.option_sets[rank.option_sets[i]];
      const start = end + lane.gaps_ns[i];
      const duration = lane.durations_ns ? lane.durations_ns[i] : set.time_ns[option];
      end = start + duration;
      return {
        set,
        chunk: hasChunks ? subscript(set.chunk) : "",
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

/** Returns the power (W) of one GPU while the instruction runs. */
export function powerOf(slice: Slice, report: Report): number {
  return slice.energy / (slice.duration / 1e9) / report.job.gpus_per_stage;
}

/** Returns the power (W) of one GPU that waits. */
export const blockingPowerOf = (report: Report): number =>
  report.job.blocking_power_w / report.job.gpus_per_stage;

/**
 * Returns the least and the greatest power (W) of one GPU over all options, for the color scale.
 * Options that draw no more power than waiting do not count.
 */
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
  optimizer_step: "O",
  load: "L",
  all_reduce: "A",
  optimizer: "O",
};

const subscript = (chunk: number): string =>
  Array.from(String(chunk), (digit) => String.fromCharCode(0x2080 + Number(digit))).join("");

/** Returns a short label: "F3" for the forward of microbatch 3, and "F3₁" for that of chunk 1. */
export function labelOf(slice: Slice): string {
  const letter = letters[slice.set.kind];
  if (letter === undefined) return slice.set.name;
  return slice.microbatch >= 0 ? letter + slice.microbatch + slice.chunk : letter;
}

/** Returns the noun for a lane: a pp_rank of a pipeline, or a resource of a general graph. */
export const laneNoun = (report: Report): string =>
  report.job.profile !== undefined ? "pp_rank" : "resource";

export function gpusOfPipeline(report: Report): number {
  return report.pp_ranks.length * report.job.gpus_per_stage;
}

/**
 * Returns the index of the plan of least energy with no slowdown (the first of equal plans). If
 * every plan is slower than the baseline, returns the index of the fastest plan.
 */
export function firstPlan(report: Report): number {
  const baseline = referenceOf(report).time_ns;
  let best = 0;
  report.plans.forEach((plan, i) => {
    const isBetter = plan.time_ns <= baseline && plan.energy_j < report.plans[best].energy_j;
    if (isBetter) best = i;
  });
  return best;
}

// A report that is small enough to check by hand: two stages, two microbatches, two GPUs per stage.
//
//   ms           0    10   20   30   40   50   60   70   80   90
//   maximum      |    |    |    |    |    |    |    |    |    |
//     rank 0     [F0  [F1  .......[B0       [B1       ]              75 ms, 39 J
//     rank 1     .....[F].[F][B0  [B1  ...............
//   no slowdown
//     rank 0     [F0  [F1  .......[B0       [B1       ]              75 ms, 36.75 J
//     rank 1     .....[f0  [F][B0  [b1      ..........
//   slower
//     rank 0     [F0  [F1  .......[B0       [b1                 ]    95 ms, 35.75 J
//     rank 1     .....[f0  [F][B0  [b1      ....................
//
// Capital letters are instructions at 1400 MHz, with 400 W per stage. Small letters are instructions at
// 700 MHz: they take twice as long, with 150 W per stage. Dots are waiting, with 50 W per stage.
import type { Iteration, Lane, OptionSet, Plan, Rank, Report } from "../../src/data";

const fast = 0;
const slow = 1;
const ms = 1e6;

function optionSet(pp_rank: number, kind: string, time_ms: number): OptionSet {
  return {
    name: `stage ${pp_rank} ${kind}`,
    kind,
    pp_rank,
    chunk: 0,
    baseline: fast,
    hull: [fast, slow],
    frequency_mhz: [1400, 700],
    time_ns: [time_ms * ms, 2 * time_ms * ms],
    energy_j: [time_ms * 0.4, 2 * time_ms * 0.15],
    knobs: [[], []],
  };
}

const option_sets = [
  optionSet(0, "forward", 10),
  optionSet(0, "backward", 20),
  optionSet(1, "forward", 5),
  optionSet(1, "backward", 10),
];

const ranks: Rank[] = [
  { name: "pp_rank 0", option_sets: [0, 0, 1, 1], microbatches: [0, 1, 0, 1] },
  { name: "pp_rank 1", option_sets: [2, 2, 3, 3], microbatches: [0, 1, 0, 1] },
];

// `energies`: of forwards, of backwards, and of waiting (J).
function lane(options: number[], critical: string, gaps_ms: number[], busy_ms: number, energies: number[],
  switches: number): Lane {
  const [forward, backward, waiting] = energies;
  return {
    options,
    gaps_ns: gaps_ms.map((gap) => gap * ms),
    critical,
    busy_ns: busy_ms * ms,
    energy_j: { forward, backward },
    blocking_energy_j: waiting,
    switches,
    marginal_w: 40,
  };
}

const allFast = [fast, fast, fast, fast];
const firstRank = lane(allFast, "1111", [0, 0, 15, 0], 60, [8, 16, 0.75], 0);
const slowedRank = (waiting_j: number): Lane =>
  lane([slow, fast, fast, slow], "0110", [10, 0, 0, 0], 45, [3.5, 7, waiting_j], 2);

const baseline: Iteration = {
  time_ns: 75 * ms,
  energy_j: 39,
  instruction_energy_j: 36,
  blocking_energy_j: 3,
  switches: 0,
  lanes: [firstRank, lane(allFast, "0110", [10, 5, 0, 0], 30, [4, 8, 2.25], 0)],
};

const noSlowdown: Plan = {
  name: "no-slowdown",
  target: "no slowdown",
  deadline_s: 0.075,
  lower_bound_j: 36.7,
  gap: 36.75 / 36.7 - 1,
  marginal_w: 120,
  time_ns: 75 * ms,
  energy_j: 36.75,
  instruction_energy_j: 34.5,
  blocking_energy_j: 2.25,
  switches: 2,
  lanes: [firstRank, slowedRank(1.5)],
};

const slower: Plan = {
  name: "slower",
  target: "30 % slowdown",
  deadline_s: 0.0975,
  lower_bound_j: 35.7,
  gap: 35.75 / 35.7 - 1,
  marginal_w: 60,
  time_ns: 95 * ms,
  energy_j: 35.75,
  instruction_energy_j: 32.5,
  blocking_energy_j: 3.25,
  switches: 4,
  lanes: [
    lane([fast, fast, fast, slow], "1111", [0, 0, 15, 0], 80, [8, 14, 0.75], 2),
    slowedRank(2.5),
  ],
};

const report: Report = {
  format: "perseus-report",
  version: 1,
  job: {
    profile: "profile.csv",
    schedule: "gpipe",
    instructions: 8,
    microbatches: 2,
    pipelines: 4,
    gpus_per_stage: 2,
    blocking_power_w: 50,
    switch_latency_s: 0,
    knobs: [],
  },
  option_sets,
  pp_ranks: ranks,
  frontier: {
    name: "frontier",
    breakpoints: 4,
    time_s: [0.075, 0.08, 0.095, 0.11],
    energy_j: [36.7, 36, 35.7, 36.1],
    marginal_w: [240, 120, 60, 0],
  },
  baseline,
  plans: [noSlowdown, slower],
  chosen: 0,
  overlays: [],
};

/** Returns a new copy, which a test may change. */
export const sampleReport = (): Report => JSON.parse(JSON.stringify(report)) as Report;

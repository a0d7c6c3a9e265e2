import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { firstPlan, gpusOfPipeline, labelOf, parseReport, powerOf, powerRange, slicesOf } from "../../src/data";
import { sampleReport } from "./sample_report";

const ms = 1e6;

describe("parseReport", () => {
  it("accepts a report of this version", () => {
    assert.deepEqual(parseReport(JSON.stringify(sampleReport())), sampleReport());
  });

  it("refuses another version, another format, and text that is not JSON", () => {
    assert.throws(() => parseReport(JSON.stringify({ ...sampleReport(), version: 2 })), /not a report/);
    assert.throws(() => parseReport('{"format":"perseus-plan","version":1}'), /not a report/);
    assert.throws(() => parseReport('{"format":"perseus-rep'), SyntaxError);
  });
});

describe("slicesOf", () => {
  it("computes starts and durations from gaps and options", () => {
    const report = sampleReport();
    const [first, second] = slicesOf(report, report.plans[0]);
    const places = (lane: typeof first) => lane.map((s) => [s.start / ms, s.duration / ms]);
    assert.deepEqual(places(first), [[0, 10], [10, 10], [35, 20], [55, 20]]);
    assert.deepEqual(places(second), [[10, 10], [20, 5], [25, 10], [35, 20]]);
  });

  it("returns energy, option, microbatch and criticality of each instruction", () => {
    const report = sampleReport();
    const [, lane] = slicesOf(report, report.plans[0]);
    assert.deepEqual(lane.map((s) => s.energy), [1.5, 2, 4, 3]);
    assert.deepEqual(lane.map((s) => s.set.frequency_mhz[s.option]), [700, 1400, 1400, 700]);
    assert.deepEqual(lane.map(labelOf), ["F0", "F1", "B0", "B1"]);
    assert.deepEqual(lane.map((s) => s.critical), [false, true, true, false]);
  });

  it("uses the evaluated durations and energies if a switch latency changes them", () => {
    // rank 0   [F0 ][F1   ]...[B0    ][B1    ]     F1 begins at the previous clock
    const report = sampleReport();
    const lane = report.plans[0].lanes[0];
    lane.durations_ns = [10, 12, 20, 20].map((t) => t * ms);
    lane.energies_j = [4, 3.9, 8, 8];
    const [slices] = slicesOf(report, report.plans[0]);
    assert.deepEqual(slices.map((s) => s.start / ms), [0, 10, 37, 57]);
    assert.deepEqual(slices.map((s) => s.duration / ms), [10, 12, 20, 20]);
    assert.deepEqual(slices.map((s) => s.energy), [4, 3.9, 8, 8]);
  });

  it("has no slices for a pp_rank without instructions", () => {
    const report = sampleReport();
    report.pp_ranks.push({ name: "idle", option_sets: [], microbatches: [] });
    report.baseline.lanes.push({ ...report.baseline.lanes[0], options: [], gaps_ns: [], critical: "" });
    assert.deepEqual(slicesOf(report, report.baseline)[2], []);
  });
});

describe("labelOf", () => {
  it("is the name of a generic instruction, and leaves out an absent microbatch", () => {
    const report = sampleReport();
    const [[slice]] = slicesOf(report, report.baseline);
    assert.equal(labelOf({ ...slice, set: { ...slice.set, kind: "generic", name: "sort" } }), "sort");
    assert.equal(labelOf({ ...slice, set: { ...slice.set, kind: "all_reduce" }, microbatch: -1 }), "A");
  });
});

describe("power", () => {
  it("is of one GPU", () => {
    const report = sampleReport();
    const [[slice]] = slicesOf(report, report.baseline);
    assert.equal(powerOf(slice, report), 200);
  });

  it("ranges over all options except those that draw no more power than waiting", () => {
    const report = sampleReport();
    assert.deepEqual(powerRange(report), [75, 200]);
    const fixed = { ...report.option_sets[0], frequency_mhz: [0], time_ns: [ms], knobs: [[]] };
    const gpus = report.job.gpus_per_stage;
    const waiting_j = (report.job.blocking_power_w * ms) / 1e9;
    report.option_sets.push({ ...fixed, kind: "all_reduce", energy_j: [waiting_j] });
    assert.deepEqual(powerRange(report), [75, 200]);
    report.option_sets.push({ ...fixed, kind: "optimizer", energy_j: [(250 * gpus * ms) / 1e9] });
    assert.deepEqual(powerRange(report), [75, 250]);
  });

  it("has a range even if all powers are equal or no option exists", () => {
    const report = sampleReport();
    report.option_sets = [{ ...report.option_sets[0], time_ns: [ms, 2 * ms], energy_j: [0.1, 0.2] }];
    assert.deepEqual(powerRange(report), [0, 50]);
    report.option_sets = [];
    assert.deepEqual(powerRange(report), [0, 1]);
  });
});

describe("firstPlan", () => {
  it("is the plan of least energy among those that are no slower than maximum frequency", () => {
    const report = sampleReport();
    const [first, slower] = report.plans;
    report.plans = [{ ...first, time_ns: 74 * ms, energy_j: 38 }, first, slower];
    assert.equal(firstPlan(report), 1);
  });

  it("is the first of several equal plans", () => {
    const report = sampleReport();
    report.plans = [report.plans[0], { ...report.plans[0], name: "slowdown-1" }, report.plans[1]];
    assert.equal(firstPlan(report), 0);
  });

  it("is the fastest if all are slower", () => {
    const report = sampleReport();
    report.plans = [{ ...report.plans[1], time_ns: 80 * ms }, report.plans[1]];
    assert.equal(firstPlan(report), 0);
  });
});

describe("gpusOfPipeline", () => {
  it("counts the GPUs of every rank", () => assert.equal(gpusOfPipeline(sampleReport()), 4));
});

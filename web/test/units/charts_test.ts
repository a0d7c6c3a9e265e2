import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { frontierLayout, leastEnergyPart } from "../../src/charts/frontier";
import { histogramOf } from "../../src/charts/histogram";
import { firstEndingAfter, laneTop, layOutTimeline } from "../../src/charts/lanes";
import { idleStep, inkOn, luminance, powerColor, powerStep, powerSteps } from "../../src/color";
import { slicesOf } from "../../src/data";
import { apart, wrapped } from "../../src/charts/labels";
import { lineAbove } from "../../src/charts/timeline";
import { clocksOf } from "../../src/page/stages_section";
import { sampleReport } from "./sample_report";

const ms = 1e6;

describe("firstEndingAfter", () => {
  // ms       0    10   20   30   40   50   60   70
  // rank 0   [F0  [F1  .......[B0       [B1       ]
  const report = sampleReport();
  const [lane] = slicesOf(report, report.baseline);
  const rows: [what: string, time_ms: number, index: number][] = [
    ["finds the instruction that runs", 5, 0],
    ["finds the next one at the very end of one", 10, 1],
    ["finds the one after a gap", 30, 2],
    ["finds the last", 74.9, 3],
    ["finds none after the last", 75, 4],
    ["finds the first before all", -1, 0],
  ];
  for (const [what, time_ms, index] of rows) {
    it(what, () => assert.equal(firstEndingAfter(lane, time_ms * ms), index));
  }
  it("finds none in an empty lane", () => assert.equal(firstEndingAfter([], 5), 0));
});

describe("layOutTimeline", () => {
  const report = sampleReport();
  const layout = layOutTimeline(
    report,
    [
      { title: "above", iteration: report.baseline },
      { title: "below", iteration: report.plans[1] },
    ],
    30,
  );

  it("uses one time scale for both iterations: that of the slower one", () => {
    assert.equal(layout.longest, 95 * ms);
  });

  it("places all lanes inside, without overlaps", () => {
    const tops = layout.groups.flatMap((group) => group.lanes.map((_, r) => laneTop(layout, group, r)));
    for (let i = 1; i < tops.length; ++i) assert.ok(tops[i] >= tops[i - 1] + layout.laneHeight);
    assert.ok(tops[tops.length - 1] + layout.laneHeight <= layout.height);
  });

  it("gives the greatest and the least power the ends of the scale", () => {
    const steps = layout.groups[0].steps.flat();
    assert.deepEqual(new Set(steps), new Set([powerSteps - 1]));
    assert.equal(layout.groups[1].steps[0][3], 0);
  });
});

describe("apart", () => {
  const rows: [what: string, distance: number, kept: string[]][] = [
    ["keeps all names that have room", 40, ["0", "2", "4", "none"]],
    ["leaves out those that would touch the next one", 20, ["2", "none"]],
    ["keeps the last one alone where there is no room", 1, ["none"]],
  ];
  for (const [what, distance, kept] of rows) {
    const names = ["0", "2", "4", "none"];
    it(what, () => {
      const labels = names.map((name, i) => ({ name, left: i * distance, right: i * distance + 30, y: 0 }));
      assert.deepEqual(apart(labels).map((label) => label.name), kept);
    });
  }

  it("keeps labels that are above each other", () => {
    const labels = [{ left: 0, right: 30, y: 0 }, { left: 0, right: 30, y: 14 }];
    assert.deepEqual(apart(labels), labels);
  });
});

describe("lineAbove", () => {
  it("is in the gap above the lane, and wide enough to see", () => {
    assert.equal(lineAbove(70, 22, 2.5), "M70,21.5h2.5");
    assert.equal(lineAbove(70, 22, 0.2), "M70,21.5h1");
  });
});

describe("wrapped", () => {
  it("breaks at blanks, and keeps a long word whole", () => {
    assert.deepEqual(wrapped("one two three", 7 * 7), ["one two", "three"]);
    assert.deepEqual(wrapped("one extraordinary", 7 * 5), ["one", "extraordinary"]);
    assert.deepEqual(wrapped("", 100), []);
  });
});

describe("powerStep", () => {
  it("stays within the scale", () => {
    assert.equal(powerStep(60, [75, 200], 50), 0);
    assert.equal(powerStep(500, [75, 200], 50), powerSteps - 1);
  });

  it("falls in lightness with more power, and has contrast with its text", () => {
    for (let step = 0; step < powerSteps; ++step) {
      const light = luminance(powerColor(step));
      if (step > 0) assert.ok(light < luminance(powerColor(step - 1)), `step ${step}`);
      const ink = luminance(inkOn(step));
      const contrast = (Math.max(light, ink) + 0.05) / (Math.min(light, ink) + 0.05);
      assert.ok(contrast >= 4.5, `step ${step}: ${contrast}`);
    }
  });

  it("has a separate color for instructions that draw no more power than waiting", () => {
    assert.equal(powerStep(50, [75, 200], 50), idleStep);
    assert.notEqual(powerColor(idleStep), powerColor(0));
  });
});

describe("histogramOf", () => {
  // rank 1 of the plan:  .....[f0  [F][B0  [b1      ..........
  const report = sampleReport();
  const histogram = histogramOf(report, 1, report.plans[0].lanes[1], ["forward", "backward"]);

  it("counts the instructions of each kind at each clock, slowest clock first", () => {
    assert.deepEqual(histogram.bars, [
      { frequency_mhz: 700, counts: [1, 1] },
      { frequency_mhz: 1400, counts: [1, 1] },
    ]);
  });

  it("covers the clocks of the profile, not only those in use", () => {
    const atMaximum = histogramOf(report, 0, report.baseline.lanes[0], ["forward", "backward"]);
    assert.deepEqual(atMaximum.range, [700, 1400]);
    assert.deepEqual(atMaximum.bars, [{ frequency_mhz: 1400, counts: [2, 2] }]);
  });

  it("leaves out instructions without a choice of clocks", () => {
    const other = sampleReport();
    other.option_sets[2] = {
      ...other.option_sets[2], kind: "load", frequency_mhz: [0, ], time_ns: [ms], energy_j: [1], knobs: [[]],
    };
    const lane = { ...other.baseline.lanes[1], options: [0, 0, 0, 1] };
    const { bars, range } = histogramOf(other, 1, lane, ["backward"]);
    assert.deepEqual(bars.map((bar) => bar.frequency_mhz), [700, 1400]);
    assert.deepEqual(range, [700, 1400]);
  });
});

describe("clocksOf", () => {
  it("returns the least, mean and greatest clock by kind", () => {
    const report = sampleReport();
    assert.deepEqual(clocksOf(report, 1, report.plans[0].lanes[1]), [
      { kind: "forward", least: 700, mean: 1050, most: 1400 },
      { kind: "backward", least: 700, mean: 1050, most: 1400 },
    ]);
  });
});

describe("leastEnergyPart", () => {
  // energy   36.7  36  35.7  36.1:   the last plan is slower and needs more energy
  it("ends at the least energy", () => {
    assert.deepEqual(leastEnergyPart(sampleReport().frontier!), [
      { time_s: 0.075, energy_j: 36.7 },
      { time_s: 0.08, energy_j: 36 },
      { time_s: 0.095, energy_j: 35.7 },
    ]);
  });

  it("is one point if the energy only rises, and all points if it only falls", () => {
    assert.equal(leastEnergyPart({ time_s: [1, 2], energy_j: [5, 6] }).length, 1);
    assert.equal(leastEnergyPart({ time_s: [1, 2], energy_j: [6, 5] }).length, 2);
  });
});

describe("frontierLayout", () => {
  it("contains baseline, plans, bound and overlays", () => {
    const report = sampleReport();
    report.overlays = [
      { name: "other", breakpoints: 2, time_s: [0.07, 0.12], energy_j: [50, 30], marginal_w: [0, 0] },
    ];
    const { x, y } = frontierLayout(report, 800, 400);
    assert.ok(x.domain()[0] < 0.07 && x.domain()[1] > 0.12);
    assert.ok(y.domain()[0] < 30 && y.domain()[1] > 50);
  });

  it("has a scale even for a single point", () => {
    const report = sampleReport();
    report.frontier = null;
    report.plans = [{ ...report.plans[0], energy_j: 39, lower_bound_j: 39 }];
    const { x, y } = frontierLayout(report, 800, 400);
    assert.ok(x.domain()[1] > x.domain()[0] && y.domain()[1] > y.domain()[0]);
  });
});

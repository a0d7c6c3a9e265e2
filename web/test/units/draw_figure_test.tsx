import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { renderToString } from "preact-render-to-string";
import { drawFigure } from "../../src/draw_figure";
import type { Report } from "../../src/data";
import { sampleReport } from "./sample_report";

const draw = (name: string, report: Report) => renderToString(drawFigure(name, report));
const textsOf = (svg: string) =>
  Array.from(svg.matchAll(/<text[^>]*>(.*?)<\/text>/gs), ([, text]) => text.replace(/<[^>]*>/g, ""));
const figures = ["frontier", "timeline", "profile"];
const all = [...figures, "switches", "memory", "orders", "schedules"];

/** Checks that every attribute of every element has a quoted value, as XML requires. */
function checkAttributes(svg: string) {
  for (const [element] of svg.matchAll(/<[a-zA-Z](?:[^>"]|"[^"]*")*>/g)) {
    assert.match(element, /^<[a-zA-Z]+( [\w:-]+="[^"<]*")*\/?>$/);
  }
}

/** The sample report with itself as another schedule. */
function withSchedules(): Report {
  const report = sampleReport();
  const { option_sets, pp_ranks, baseline, plans } = report;
  const row = (name: string, memory: number, saving: number, most_saving: number | null) =>
    ({ name, in_flight: name === "+1" ? [3, 1] : [2, 1], memory, energy_j: 36.75, saving, most_saving });
  report.schedule_tradeoff = {
    reference: "1f1b",
    unit: "microbatches",
    memory_source: "",
    rows: [row("1f1b", 0, 0.0577, null), row("+0", 0, 0.0577, 0.06), row("+1", 1, 0.0951, 0.11)],
    chosen: 2,
    timelines: [
      { name: "1f1b", option_sets, pp_ranks, baseline, plan: plans[0] },
      { name: "+1", baseline, plan: plans[0],
        option_sets: option_sets.map((set) =>
          set.kind === "backward" ? { ...set, kind: "backward_weight" } : set),
        pp_ranks: pp_ranks.map((rank, i) => ({ ...rank, name: `its rank ${i}` })) },
    ],
    conclusion: "One more microbatch saves.\n",
  };
  return report;
}

describe("drawFigure", () => {
  for (const name of figures) {
    it(`draws the ${name} as one SVG, with a number in every coordinate`, () => {
      const svg = draw(name, sampleReport());
      assert.match(svg, /^<svg xmlns="http:\/\/www.w3.org\/2000\/svg"[^>]*>.*<\/svg>$/s);
      assert.doesNotMatch(svg, /NaN|undefined|Infinity|\[object/);
      // A figure for paper must not need a style sheet or a script.
      assert.doesNotMatch(svg, /var\(|class="[^"]*theme|<script|<style|href=/);
    });
  }

  it("names instructions, ranks and totals in the timeline", () => {
    const texts = textsOf(draw("timeline", sampleReport()));
    for (const text of ["F0", "B1", "pp_rank 0", "pp_rank 1"]) assert.ok(texts.includes(text), text);
    assert.ok(texts.includes("Maximum frequency: 75.000 ms, 39.00 J"), texts.join("|"));
    assert.ok(texts.includes("Plan, no slowdown: 75.000 ms, 36.75 J (-5.77 %)"), texts.join("|"));
  });

  it("shows the plan that the report has chosen", () => {
    const texts = textsOf(draw("timeline", { ...sampleReport(), chosen: 1 }));
    assert.ok(texts.includes("Plan, 30 % slowdown: 95.000 ms, 35.75 J (-8.33 %)"), texts.join("|"));
  });

  it("labels plans beyond the end of the frontier where there is room", () => {
    const report = sampleReport();
    const beyond = (target: string, time_s: number) =>
      ({ ...report.plans[1], name: target, target, time_ns: time_s * 1e9 });
    report.plans = [report.plans[0], beyond("near", 0.1201), beyond("next to it", 0.1202),
      beyond("far", 0.2)];
    const texts = textsOf(draw("frontier", report));
    assert.ok(texts.includes("far"), texts.join("|"));
    assert.ok(texts.includes("next to it"), texts.join("|"));
    assert.ok(!texts.includes("near"), texts.join("|"));
  });

  it("marks the limit of the plans among the limits of clock changes", () => {
    const report = sampleReport();
    const limit = (max_switches: number, saving: number) => ({ max_switches, saving, most_saving: saving });
    report.switch_tradeoff = { target: "no slowdown", limits: [limit(0, 0.01), limit(2, 0.04)],
      unlimited: { saving: 0.05 } };
    assert.doesNotMatch(draw("switches", report), /limit-of-plans/);
    report.switch_tradeoff.max_switches = 2;
    assert.equal(draw("switches", report).match(/class="limit-of-plans"/g)?.length, 1);
    assert.ok(textsOf(draw("switches", report)).includes("the limit of the plans"));
  });

  it("marks an energy axis that does not begin at 0", () => {
    assert.match(draw("frontier", sampleReport()), /class="axis-break"/);
  });

  it("draws a frontier chart of plans alone, and one with overlays", () => {
    const report = sampleReport();
    report.overlays = [{ ...report.frontier!, name: "another planner" }];
    assert.ok(textsOf(draw("frontier", report)).includes("another planner"));
    report.frontier = null;
    report.overlays = [];
    assert.doesNotMatch(draw("frontier", report), /NaN|undefined/);
  });

  it("has a panel for each option set with more than one option", () => {
    const report = sampleReport();
    report.option_sets.push({
      ...report.option_sets[0], name: "all-reduce", frequency_mhz: [0], time_ns: [1e6], energy_j: [1],
      knobs: [[]], hull: [0],
    });
    const texts = textsOf(draw("profile", report));
    assert.ok(texts.includes("stage 1 backward"));
    assert.ok(!texts.includes("all-reduce"));
  });

  it("shows names with HTML in them as text", () => {
    const report = sampleReport();
    const hostile = "<b>&\"'</b>";
    report.pp_ranks[0].name = hostile;
    report.option_sets[0] = { ...report.option_sets[0], name: hostile, kind: "generic" };
    report.plans[0].target = hostile;
    report.overlays = [{ ...report.frontier!, name: hostile }];
    for (const name of figures) {
      const svg = draw(name, report);
      assert.match(svg, /&lt;b(>|&gt;)&amp;/, name);
      assert.doesNotMatch(svg, /<b>/, name);
    }
  });

  it("compares schedules", () => {
    const report = withSchedules();
    for (const name of ["memory", "orders", "schedules"]) {
      const svg = draw(name, report);
      assert.match(svg, /^<svg .*<\/svg>$/s);
      assert.doesNotMatch(svg, /NaN|undefined|Infinity|\[object/);
    }
    const memory = textsOf(draw("memory", report));
    for (const text of ["5.8", "9.5", "+0", "+1", "bound: no schedule in this memory saves more"]) {
      assert.ok(memory.includes(text), `${text} in ${memory.join("|")}`);
    }
    const orders = textsOf(draw("orders", report));
    assert.ok(orders.includes("1f1b, at maximum frequency: 75.000 ms, 39.00 J, in flight 2 1"), orders.join("|"));
    const planned = textsOf(draw("schedules", report));
    assert.ok(
      planned.includes("+1, planned: 75.000 ms, 36.75 J (-5.77 %), in flight 3 1"),
      planned.join("|"),
    );
    assert.ok(planned.includes("weight gradient"), "only the second schedule has these");
    // The lanes of another schedule have its own names.
    assert.ok(planned.includes("its rank 1"), planned.join("|"));
  });

  it("compares no schedules in a report without them", () => {
    assert.throws(() => draw("memory", sampleReport()), /no schedules/);
  });

  it("has no line of bounds that are unknown, and shows bytes", () => {
    const report = withSchedules();
    report.schedule_tradeoff!.unit = "GiB";
    report.schedule_tradeoff!.rows.forEach((row) => {
      row.memory = 2.5 + row.memory;
      row.most_saving = null;
    });
    const texts = textsOf(draw("memory", report));
    assert.ok(texts.includes("activations on the GPU that holds the most (GiB)"), texts.join("|"));
    assert.doesNotMatch(draw("memory", report), /NaN|null/);
  });

  it("draws XML, whatever is unknown and whatever the names are", () => {
    const report = withSchedules();
    const hostile = "a & b < c > d \"e\"";
    const tradeoff = report.schedule_tradeoff!;
    Object.assign(tradeoff, { reference: hostile, memory_source: hostile });
    tradeoff.rows.forEach((row) => Object.assign(row, { name: hostile, most_saving: null }));
    tradeoff.timelines.forEach((timeline) => { timeline.name = hostile; });
    report.pp_ranks.forEach((rank) => { rank.name = hostile; });
    report.plans.forEach((plan) => Object.assign(plan, { name: hostile, target: hostile }));
    report.overlays = [{ name: hostile, breakpoints: 0, time_s: [], energy_j: [], marginal_w: [] }];
    report.switch_tradeoff = { target: hostile, unlimited: { saving: 0.1 },
      limits: [{ max_switches: 2, saving: null, most_saving: null }] };
    for (const name of all) {
      const svg = draw(name, report);
      checkAttributes(svg);
      assert.doesNotMatch(svg, /NaN|undefined|Infinity/, name);
    }
  });

  it("draws for the width of a column on paper", () => {
    const report = withSchedules();
    for (const name of all.filter((one) => one !== "switches")) {
      const svg = renderToString(drawFigure(name, report, 84));
      assert.match(svg, /^<svg [^>]*width="84mm" height="[\d.]+mm" viewBox="0 0 397 \d+"/, name);
      checkAttributes(svg);
    }
  });

  it("tells kinds, chunks and curves apart without color", () => {
    const report = sampleReport();
    const timeline = draw("timeline", report);
    for (const text of ["forward", "backward"]) assert.ok(textsOf(timeline).includes(text), text);
    report.option_sets[2] = { ...report.option_sets[2], chunk: 1 };
    assert.ok(textsOf(draw("timeline", report)).includes("F0₁"));
    report.overlays = ["a", "b"].map((name) => ({ ...report.frontier!, name }));
    const dashed = draw("frontier", report).match(/stroke-width="1.5" stroke-dasharray="[^"]*"/g)!;
    assert.equal(new Set(dashed).size, 2);
  });

  it("reports an unknown figure", () => {
    assert.throws(() => drawFigure("pie", sampleReport()), /unknown figure "pie"/);
  });
});

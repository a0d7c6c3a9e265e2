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

  it("reports an unknown figure", () => {
    assert.throws(() => drawFigure("pie", sampleReport()), /unknown figure "pie"/);
  });
});

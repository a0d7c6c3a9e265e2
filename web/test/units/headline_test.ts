import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { savingOfMonth } from "../../src/page/headline";
import { sampleReport } from "./sample_report";

const near = (actual: number, expected: number) =>
  assert.ok(Math.abs(actual - expected) <= 1e-12 * Math.abs(expected), `${actual}, not ${expected}`);

describe("savingOfMonth", () => {
  const report = sampleReport();
  const rates = { price: 0.12, gramsPerKilowattHour: 400 };
  const iterations = 2_628_000 / 0.075; // 730 h of 75 ms: 35,040,000

  it("saves 2.25 J in each of the iterations that maximum frequency runs in a month", () => {
    const saving = savingOfMonth(report, report.plans[0], 1, rates);
    near(saving.energy_j, 2.25 * iterations);
    // 78.84 MJ are 21.9 kWh.
    near(saving.money, 21.9 * 0.12);
    near(saving.co2_kg, 8.76);
    assert.equal(saving.longer_h, 0);
  });

  it("compares the same work: a slower plan runs the same iterations in more time", () => {
    const saving = savingOfMonth(report, report.plans[1], 1, rates);
    near(saving.energy_j, 3.25 * iterations);
    near(saving.longer_h, 730 * (20 / 75));
  });

  it("compares with another schedule if the report names one", () => {
    const compared = { ...report, compared_with: { schedule: "1f1b", time_ns: 150e6, energy_j: 40 } };
    const saving = savingOfMonth(compared, report.plans[0], 1, rates);
    near(saving.energy_j, 3.25 * iterations / 2);
    assert.ok(saving.longer_h < 0);
  });

  it("grows with pipelines, price and CO2 per kWh, but the additional time does not", () => {
    const one = savingOfMonth(report, report.plans[1], 1, rates);
    const many = savingOfMonth(report, report.plans[1], 16, { price: 0.24, gramsPerKilowattHour: 100 });
    near(many.energy_j, one.energy_j * 16);
    near(many.money, one.money * 32);
    near(many.co2_kg, one.co2_kg * 4);
    assert.equal(many.longer_h, one.longer_h);
  });
});

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  joules,
  kilograms,
  money,
  number,
  percent,
  percentWithin,
  seconds,
  wattHours,
  watts,
} from "../../src/format";

describe("format", () => {
  const rows: [what: string, shown: string, expected: string][] = [
    ["keeps significant digits", number(0.0123456), "0.01235"],
    ["keeps significant digits above 1", number(12.3456), "12.35"],
    ["drops no digit before the point", number(123456), "123,456"],
    ["shows as many digits as requested", number(2.822212829, 6), "2.82221"],
    ["shows 0 as 0", number(0), "0"],
    ["never uses an exponent", number(1.6e-9, 4), "0.000000002"],
    ["shows NaN as NaN", number(NaN), "NaN"],
    ["counts seconds", seconds(2822212829), "2.8222 s"],
    ["counts ms below a second", seconds(49191747), "49.192 ms"],
    ["counts µs below a ms", seconds(400000, 3), "400 µs"],
    ["counts joules", joules(982.34), "982.3 J"],
    ["counts kJ", joules(7300.65), "7.301 kJ"],
    ["counts MJ", joules(1.2e6, 2), "1.2 MJ"],
    ["shows negative energies with a unit too", joules(-7300.65), "-7.301 kJ"],
    ["counts watts", watts(83.64), "83.64 W"],
    ["counts kW", watts(2586.9, 3), "2.59 kW"],
    ["counts Wh, kWh, MWh", [3600, 3.6e6, 3.6e9].map((j) => wattHours(j)).join(), "1.00 Wh,1.00 kWh,1.00 MWh"],
    ["counts kg and t", [999, 12340].map(kilograms).join(), "999 kg,12.3 t"],
    ["rounds large amounts of money to dollars", money(12345.6), "$12,346"],
    ["shows the cents of small amounts", money(1.234), "$1.23"],
    ["shows fractions in percent", percent(0.16046), "16.05 %"],
    ["shows no sign for a value that rounds to 0", percent(-1e-9), "0.00 %"],
    ["shows negative percentages with a sign", percent(-0.00005001), "-0.01 %"],
    ["shows an interval in percent", percentWithin(0.00041, 0.000026, 3), "0.041 ± 0.003 %"],
  ];
  for (const [what, shown, expected] of rows) {
    it(`${what}: ${expected}`, () => assert.equal(shown, expected));
  }
});

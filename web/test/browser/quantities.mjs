// Reads numbers as the page shows them, independently of the code of the page. A shown number must be
// the value, rounded to the shown digits, with enough digits.
import assert from "node:assert/strict";

const units = {
  "": 1, "%": 0.01, s: 1, ms: 1e-3, "µs": 1e-6, h: 3600, J: 1, kJ: 1e3, MJ: 1e6, GJ: 1e9,
  W: 1, kW: 1e3, MW: 1e6, Wh: 3600, kWh: 3.6e6, MWh: 3.6e9, GWh: 3.6e12, kg: 1, t: 1e3, MHz: 1,
};

/** Parses a shown number: "7.301 kJ" is { value: 7301, resolution: 1 }. */
export function quantityOf(text) {
  const match = text.trim().match(/^(-?[\d,]+(?:\.(\d+))?)(?:\s(\S+))?$/);
  assert.ok(match && (match[3] ?? "") in units, `"${text}" is not a number with a unit`);
  const unit = units[match[3] ?? ""];
  return {
    value: Number(match[1].replaceAll(",", "")) * unit,
    resolution: 10 ** -(match[2]?.length ?? 0) * unit,
  };
}

/** Asserts that `text` shows `value`, with at least three digits (percentages: to a tenth of a percent). */
export function assertShows(text, value, what) {
  const shown = quantityOf(text);
  const slack = shown.resolution / 2 + 1e-9 * Math.abs(value);
  assert.ok(Math.abs(shown.value - value) <= slack, `${what}: "${text}" is not ${value}`);
  const enough = text.includes("%") ? 1e-3 : Math.abs(value) * 1e-2;
  assert.ok(value === 0 || shown.resolution <= enough * 1.0001, `${what}: "${text}" shows too little of ${value}`);
  assert.ok(!/^-[0.,]*( |$)/.test(text), `${what}: "${text}" is 0 with a sign`);
}

export const sum = (values) => values.reduce((a, b) => a + b, 0);

// Formats numbers for readers: with units, and with enough digits to distinguish plans.
import { format } from "d3-format";

export const whole = format(",.0f");

/** Formats a number with about `digits` significant digits and no exponent: 1,234; 12.3; 0.123. */
export function number(value: number, digits = 4): string {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const before = Math.floor(Math.log10(Math.abs(value))) + 1;
  const shown = before >= digits ? whole : format(`,.${Math.min(digits - before, 9)}f`);
  return shown(value).replace("−", "-");
}

/** Formats the value in the largest unit in which it is at least 1. */
function scaled(value: number, units: [number, string][], digits: number): string {
  const size = Math.abs(value);
  const unit = units.find(([of]) => size >= of) ?? units[units.length - 1];
  return `${number(value / unit[0], digits)} ${unit[1]}`;
}

export const seconds = (ns: number, digits = 5): string =>
  scaled(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]], digits);

export const joules = (j: number, digits = 4): string =>
  scaled(j, [[1e9, "GJ"], [1e6, "MJ"], [1e3, "kJ"], [1, "J"]], digits);

export const watts = (w: number, digits = 4): string =>
  scaled(w, [[1e6, "MW"], [1e3, "kW"], [1, "W"]], digits);

export const wattHours = (j: number, digits = 3): string =>
  scaled(j / 3600, [[1e9, "GWh"], [1e6, "MWh"], [1e3, "kWh"], [1, "Wh"]], digits);

export const kilograms = (kg: number): string => scaled(kg, [[1e3, "t"], [1, "kg"]], 3);

/** Formats an amount in dollars, as the program does for `--price`. */
export const money = (amount: number): string => `$${number(amount, amount >= 100 ? 1 : 3)}`;

/** Formats a count with its noun: "1 GPU", "8 GPUs". */
export const counted = (count: number, noun: string, plural = "s"): string =>
  `${whole(count)} ${noun}${count === 1 ? "" : plural}`;

/** Formats a fraction in percent. A value that rounds to 0 has no sign, so it is not "-0.00 %". */
export const percent = (part: number, digits = 2): string =>
  `${(part * 100).toFixed(digits).replace(/^-(?=[0.]*$)/, "")} %`;

/** Formats a fraction and the half-width of its interval in percent: "0.041 ± 0.003 %". */
export const percentWithin = (part: number, halfWidth: number, digits: number): string =>
  `${percent(part, digits).slice(0, -2)} ± ${percent(halfWidth, digits)}`;

/** Formats a clock without its unit. Whole numbers keep all digits. */
export const megahertz = (mhz: number): string => (Number.isInteger(mhz) ? whole(mhz) : number(mhz));

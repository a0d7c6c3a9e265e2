// The colors of all charts. In the page, the colors are CSS variables, so a change of the theme
// needs no new drawing. In static figures, the colors are the values of the light theme.
import { interpolateRgbBasis } from "d3-interpolate";

export interface Palette {
  ink: string;
  faint: string; // The color of axes and grid.
  muted: string; // The color of labels.
  paper: string;
  bound: string;
  plan: string;
  chosen: string;
  baseline: string;
  blocking: string;
  critical: string;
  series: string[];
}

export const light: Palette = {
  ink: "#1a1f2b",
  faint: "#d9dde5",
  muted: "#5a6272",
  paper: "#ffffff",
  bound: "#1f5fbf",
  plan: "#1f5fbf",
  chosen: "#c2410c",
  baseline: "#1a1f2b",
  blocking: "#eaedf2",
  critical: "#111111",
  series: ["#0f766e", "#7c3aed", "#a16207", "#be185d", "#4d7c0f"],
};

/** The dashes of further curves, so that they also differ in gray. */
export const dashes = ["6 3", "2 3", "10 3 2 3", "14 4", "4 2 1 2 1 2"];
/** The marks of their points, each as a path around (0, 0). */
export const marks = ["M-3,-3h6v6h-6z", "M0,-4.5l4.5,4.5l-4.5,4.5l-4.5,-4.5z", "M0,-4l4,7h-8z",
  "M0,4l4,-7h-8z", "M-4,-1.5h2.5v-2.5h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5z"];

/** The number of colors for different powers. */
export const powerSteps = 24;

// The colors of powers, from cool to warm. Their lightness decreases, so that they differ in gray,
// too. (charts_test.ts checks this.)
const ramp = interpolateRgbBasis(["#96cdea", "#d9c254", "#e8963c", "#cf4f33", "#8f1a37"]);
const ramps = Array.from({ length: powerSteps }, (_, i) => ramp(i / (powerSteps - 1)));

/** The color of instructions that draw no more power than waiting, such as a collective. */
export const idleStep = powerSteps;
/** The number of all colors. */
export const colorCount = powerSteps + 1;
const idleColor = "#8790a1";

/** Returns the color of a power (W of one GPU), as a number below `colorCount`. */
export function powerStep(
  power: number,
  [least, most]: [number, number],
  blocking: number,
): number {
  // The margin of 2 % allows for rounded energies.
  if (power <= blocking * 1.02) return idleStep;
  const part = (power - least) / (most - least);
  return Math.max(0, Math.min(powerSteps - 1, Math.floor(part * powerSteps)));
}

export const powerColor = (step: number): string =>
  step === idleStep ? idleColor : ramps[step];

/** Returns the relative luminance (WCAG 2) of "rgb(r, g, b)" or "#rrggbb". */
export function luminance(color: string): number {
  const parts = color.startsWith("#")
    ? [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16))
    : color.match(/\d+/g)!.map(Number);
  const [r, g, b] = parts.map((part) => {
    const c = part / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

const inks = Array.from({ length: colorCount }, (_, step) =>
  // White or black, depending on which has more contrast.
  1.05 / (luminance(powerColor(step)) + 0.05) > (luminance(powerColor(step)) + 0.05) / 0.05
    ? "#ffffff"
    : "#000000",
);

/** Returns the color of text on top of that color. */
export const inkOn = (step: number): string => inks[step];

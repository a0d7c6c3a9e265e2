// The palette as CSS variables. page.css sets their values for each theme.
import { light, type Palette } from "../color";

const names = Object.keys(light) as (keyof Palette)[];

export const themed = Object.fromEntries(
  names.map((name) => [
    name,
    name === "series"
      ? light.series.map((_, i) => `var(--series-${i})`)
      : `var(--${name})`,
  ]),
) as unknown as Palette;

/** Returns the palette as color values, because a canvas does not support CSS variables. */
export function computedPalette(element: Element): Palette {
  const style = getComputedStyle(element);
  const value = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return Object.fromEntries(
    names.map((name) => [
      name,
      name === "series" ? light.series.map((_, i) => value(`series-${i}`)) : value(name),
    ]),
  ) as unknown as Palette;
}

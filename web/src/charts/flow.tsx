// Places the entries of a legend in lines, in as many as the width requires.
import type { JSX } from "preact";
import type { Palette } from "../color";
import { fontFamily } from "./frame";
import { textWidth } from "./labels";

const lineHeight = 22;
const mark = 30; // The space of the mark in front of a text.
const gap = 14;

export interface Entry {
  width: number; // In pixels, with the space behind the entry.
  draw: (palette: Palette) => JSX.Element;
}

/** Returns an entry with a mark in the box from (0, 0) to (24, 16), and a text behind it. */
export function named(text: string, draw: (palette: Palette) => JSX.Element | null): Entry {
  return {
    width: mark + textWidth(text) + gap,
    draw: (palette) => (
      <>
        {draw(palette)}
        <text x={mark} y="12">{text}</text>
      </>
    ),
  };
}

/** Returns the place of each entry: [x, y]. */
function placesOf(entries: Entry[], width: number): [number, number][] {
  let x = 0;
  let y = 0;
  return entries.map((entry) => {
    if (x > 0 && x + entry.width - gap > width) [x, y] = [0, y + lineHeight];
    const place: [number, number] = [x, y];
    x += entry.width;
    return place;
  });
}

export function flowHeight(entries: Entry[], width: number): number {
  const places = placesOf(entries, width);
  return (places[places.length - 1]?.[1] ?? -lineHeight) + lineHeight;
}

export function Flow({ entries, width, palette }: {
  entries: Entry[];
  width: number;
  palette: Palette;
}) {
  const places = placesOf(entries, width);
  return (
    <g font-family={fontFamily} font-size="12" fill={palette.muted}>
      {entries.map((entry, i) => (
        <g key={i} transform={`translate(${places[i].join()})`}>{entry.draw(palette)}</g>
      ))}
    </g>
  );
}

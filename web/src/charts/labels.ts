// Decides which labels of a chart have room.

/** Where a label is: from `left` to `right`, on the line `y`. */
export interface LabelBox {
  left: number;
  right: number;
  y: number;
}

const gap = 6;
const lineHeight = 14;
const letterWidth = 7;

/** About the width of a text of the font size of charts. */
export const textWidth = (text: string) => letterWidth * text.length;

/** Returns those of the labels that do not touch: the last one, then each one before it that has
 *  room. */
export function apart<Label extends LabelBox>(labels: Label[]): Label[] {
  const kept: Label[] = [];
  const touch = (a: LabelBox, b: LabelBox) => Math.abs(a.y - b.y) < lineHeight &&
    a.left < b.right + gap && b.left < a.right + gap;
  for (const label of [...labels].reverse()) {
    if (!kept.some((other) => touch(label, other))) kept.unshift(label);
  }
  return kept;
}

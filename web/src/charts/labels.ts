// Decides which labels of a chart have enough space.

/** The place of a label: from `left` to `right`, on the line `y`. */
export interface LabelBox {
  left: number;
  right: number;
  y: number;
}

const gap = 6;
const lineHeight = 14;
const letterWidth = 7;

/** Returns the approximate width of a text in the font size of charts. */
export const textWidth = (text: string) => letterWidth * text.length;

/** Returns labels that do not touch. Takes the last label first, and then, backward, each label
 *  that has enough space. */
export function apart<Label extends LabelBox>(labels: Label[]): Label[] {
  const kept: Label[] = [];
  const touch = (a: LabelBox, b: LabelBox) => Math.abs(a.y - b.y) < lineHeight &&
    a.left < b.right + gap && b.left < a.right + gap;
  for (const label of [...labels].reverse()) {
    if (!kept.some((other) => touch(label, other))) kept.unshift(label);
  }
  return kept;
}

/** Breaks a text into lines that are at most `width` wide. A longer word has a line of its own. */
export function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const last = lines[lines.length - 1];
    if (last !== undefined && textWidth(`${last} ${word}`) <= width) lines[lines.length - 1] = `${last} ${word}`;
    else if (word !== "") lines.push(word);
  }
  return lines;
}

// Tells forwards, backwards and weight gradients apart, even in gray and where no label has space: a
// strip at the lower edge of an instruction.
import { powerColor, powerSteps } from "../color";

type Strip = "none" | "dark" | "light";

export const kindMarks: { name: string; kinds: string[]; strip: Strip }[] = [
  { name: "forward", kinds: ["forward", "recompute"], strip: "none" },
  { name: "backward", kinds: ["backward", "backward_input"], strip: "dark" },
  { name: "weight gradient", kinds: ["backward_weight"], strip: "light" },
];

export const stripColors = { dark: "#111111", light: "#ffffff" };

const strips = new Map(kindMarks.flatMap(({ kinds, strip }) => kinds.map((kind) => [kind, strip])));

export const stripOf = (kind: string): Strip => strips.get(kind) ?? "none";

/** Returns the height of the strip in a lane of this height. */
export const stripHeight = (laneHeight: number): number =>
  laneHeight >= 20 ? 4 : laneHeight >= 12 ? 3 : laneHeight >= 6 ? 2 : 1;

export function KindMark({ kind }: { kind: string }) {
  const strip = stripOf(kind);
  return (
    <>
      <rect y="1" width="22" height="14" fill={powerColor(powerSteps / 2)} />
      {strip !== "none" && <rect y="11" width="22" height="4" fill={stripColors[strip]} />}
    </>
  );
}

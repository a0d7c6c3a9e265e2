// Computes the instructions of a report from its data, and their places on the canvas.
export const canvasLeft = 72;
const canvasRight = 8;

/** Returns for each pp_rank, in order: start, duration (ns), energy (J), and the instruction. */
export function instructionsOf(data, iteration) {
  return iteration.lanes.map((lane, r) => {
    let end = 0;
    return lane.options.map((option, i) => {
      const set = data.option_sets[data.pp_ranks[r].option_sets[i]];
      const start = end + lane.gaps_ns[i];
      const duration = lane.durations_ns?.[i] ?? set.time_ns[option];
      end = start + duration;
      return {
        start, duration, end, set, option,
        energy: lane.energies_j?.[i] ?? set.energy_j[option],
        microbatch: data.pp_ranks[r].microbatches[i],
        critical: lane.critical[i] === "1",
      };
    });
  });
}

/** Returns the intervals in which a pp_rank waits. */
export function waitsOf(lane, iteration) {
  const ends = [0, ...lane.map((i) => i.end)];
  const starts = [...lane.map((i) => i.start), iteration.time_ns];
  return starts.map((end, i) => ({ start: ends[i], end })).filter(({ start, end }) => end > start);
}

/** Returns a function from (index of the iteration, pp_rank, time) to a place on the canvas that shows `plan`. */
export function placesOn(data, plan, canvasWidth) {
  const ranks = data.pp_ranks.length;
  const height = ranks <= 4 ? 30 : ranks <= 8 ? 22 : ranks <= 16 ? 14 : ranks <= 64 ? 7 : 3;
  const pitch = height + (height >= 14 ? 3 : 1);
  const longest = Math.max(data.baseline.time_ns, plan.time_ns);
  return (group, rank, time) => ({
    x: canvasLeft + (time / longest) * (canvasWidth - canvasLeft - canvasRight),
    y: 22 + group * (ranks * pitch + 10 + 22) + rank * pitch + height / 2,
    height,
  });
}

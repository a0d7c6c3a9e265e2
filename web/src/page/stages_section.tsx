// Shows the share of the work, the clocks, and the energies of each pp_rank.
import { laneNoun, type Iteration, type Lane, type Report } from "../data";
import { Histogram, histogramOf, kindColors } from "../charts/histogram";
import { joules, megahertz, percent, whole } from "../format";
import { themed } from "./themed";

export interface ClockSummary {
  kind: string;
  least: number;
  mean: number;
  most: number;
}

/** Returns the clocks (MHz) of a pp_rank's instructions by kind. Omits kinds without a clock. */
export function clocksOf(report: Report, rank: number, lane: Lane): ClockSummary[] {
  const byKind = new Map<string, number[]>();
  lane.options.forEach((option, i) => {
    const set = report.option_sets[report.pp_ranks[rank].option_sets[i]];
    if (set.frequency_mhz.length < 2) return;
    const clocks = byKind.get(set.kind) ?? [];
    clocks.push(set.frequency_mhz[option]);
    byKind.set(set.kind, clocks);
  });
  return Array.from(byKind, ([kind, clocks]) => ({
    kind,
    least: clocks.reduce((a, b) => Math.min(a, b)),
    mean: clocks.reduce((a, b) => a + b) / clocks.length,
    most: clocks.reduce((a, b) => Math.max(a, b)),
  }));
}

const spoken = (kind: string) => kind.replace("_", " ");

export function StagesSection({ report, chosen }: { report: Report; chosen: number }) {
  const plan = report.plans[chosen];
  const kinds = kindsOf(plan);
  const clocked = new Set(
    report.option_sets.filter((set) => set.frequency_mhz.length > 1).map((set) => set.kind),
  );
  const clockKinds = kinds.filter((kind) => clocked.has(kind));
  const longest = Math.max(...report.baseline.lanes.map((lane) => lane.busy_ns));
  const noun = laneNoun(report);
  const waiting = (report.job.blocking_power_w * report.pp_ranks.length) / 1e3; // In a millisecond.
  return (
    <section aria-labelledby="stages">
      <h2 id="stages">Each {noun}</h2>
      <p>
        <b>Balance</b>: how long a {noun} computes at maximum frequency, relative to the busiest {noun}.{" "}
        <b>Saved per extra second</b>: the energy that the instructions of a {noun} would save, on
        average, for each second that they may take longer. {plan.marginal_w !== null && (
          <>
            One more millisecond saves {joules(plan.marginal_w / 1e3)} of instructions minus{" "}
            {joules(waiting)} of waiting: {joules(plan.marginal_w / 1e3 - waiting)}.
          </>
        )}
      </p>
      <div class="scroll">
        <table class="stages">
          <caption>Plan: {plan.target}. Clocks: the mean of the instructions, with their range below. Switches: clock changes per iteration.</caption>
          <thead>
            <tr>
              <th scope="col" rowSpan={2}>{noun}</th>
              <th scope="col" rowSpan={2}>balance</th>
              {clockKinds.length > 0 && (
                <th scope="colgroup" colSpan={1 + clockKinds.length}>clock (MHz)</th>
              )}
              <th scope="col" rowSpan={2}>switches</th>
              <th scope="colgroup" colSpan={kinds.length + 1}>energy</th>
              <th scope="col" rowSpan={2}>saved per extra second</th>
            </tr>
            <tr>
              {clockKinds.length > 0 && <th scope="col">histogram</th>}
              {clockKinds.map((kind, k) => (
                <th scope="col" key={kind}>
                  <i class="kind" style={{ background: kindColors(themed)[k] }} />
                  {spoken(kind)}
                </th>
              ))}
              {kinds.map((kind) => (
                <th scope="col" key={kind}>{spoken(kind)}</th>
              ))}
              <th scope="col">waiting</th>
            </tr>
          </thead>
          <tbody>
            {report.pp_ranks.map((rank, r) => {
              const lane = plan.lanes[r];
              const clocks = clocksOf(report, r, lane);
              const balance = report.baseline.lanes[r].busy_ns / longest;
              return (
                <tr key={r}>
                  <th scope="row">{rank.name}</th>
                  <td class="balance">
                    {percent(balance, 1)}
                    <span>
                      <i style={{ width: `${balance * 100}%` }} />
                    </span>
                  </td>
                  {clockKinds.length > 0 && (
                    <td>
                      <Histogram histogram={histogramOf(report, r, lane, clockKinds)} palette={themed} />
                    </td>
                  )}
                  {clockKinds.map((kind) => (
                    <td key={kind}>{clockCell(clocks.find((c) => c.kind === kind))}</td>
                  ))}
                  <td>{whole(lane.switches)}</td>
                  {kinds.map((kind) => (
                    <td key={kind}>{kind in lane.energy_j ? joules(lane.energy_j[kind]) : ""}</td>
                  ))}
                  <td>{joules(lane.blocking_energy_j)}</td>
                  <td>{joules(lane.marginal_w, 3)}</td>
                </tr>
              );
            })}
          </tbody>
          <tfoot>
            <TotalRow name="total" iteration={plan} kinds={kinds} clockKinds={clockKinds} />
            <TotalRow name="at maximum frequency" iteration={report.baseline} kinds={kinds}
              clockKinds={clockKinds} />
          </tfoot>
        </table>
      </div>
    </section>
  );
}

function clockCell(clock: ClockSummary | undefined) {
  if (!clock) return "";
  const mean = whole(clock.mean);
  return clock.least === clock.most ? mean : (
    <>{mean}<small>{megahertz(clock.least)}–{megahertz(clock.most)}</small></>
  );
}

const order = ["forward", "recompute", "backward", "backward_input", "backward_weight"];

/**
 * Returns the kinds of an iteration. The kinds that a microbatch passes come first, in this order.
 * The other kinds follow.
 */
function kindsOf(iteration: Iteration): string[] {
  const kinds = new Set(iteration.lanes.flatMap((lane) => Object.keys(lane.energy_j)));
  const rest = Array.from(kinds).filter((kind) => !order.includes(kind));
  return [...order.filter((kind) => kinds.has(kind)), ...rest];
}

function TotalRow({ name, iteration, kinds, clockKinds }: {
  name: string;
  iteration: Iteration;
  kinds: string[];
  clockKinds: string[];
}) {
  const sumOf = (kind: string) =>
    iteration.lanes.reduce((sum, lane) => sum + (lane.energy_j[kind] ?? 0), 0);
  return (
    <tr>
      <th scope="row">{name}</th>
      <td colSpan={clockKinds.length > 0 ? 2 + clockKinds.length : 1} />
      <td>{whole(iteration.switches)}</td>
      {kinds.map((kind) => (
        <td key={kind}>{joules(sumOf(kind))}</td>
      ))}
      <td>{joules(iteration.blocking_energy_j)}</td>
      <td />
    </tr>
  );
}

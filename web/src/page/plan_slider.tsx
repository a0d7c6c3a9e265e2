// Selects a plan along the frontier. The slider stays visible while the page scrolls.
import { referenceOf, type Report } from "../data";
import { joules, number, percent, watts } from "../format";

interface Props {
  report: Report;
  chosen: number;
  onChoose: (plan: number) => void;
}

export function PlanSlider({ report, chosen, onChoose }: Props) {
  const plan = report.plans[chosen];
  const baseline = referenceOf(report);
  const slowdown = plan.time_ns / baseline.time_ns - 1;
  const numbers: [string, string, string][] = [
    ["time", "iteration time", `${number(plan.time_ns / 1e9, 6)} s`],
    // The time of a plan may be slightly shorter than its deadline.
    ["slowdown", "slowdown", slowdown <= 0 ? "none" : percent(slowdown)],
    ["energy", "energy", joules(plan.energy_j, 5)],
    ["saving", "saving", percent(1 - plan.energy_j / baseline.energy_j)],
    ["power", "power", watts(plan.energy_j / (plan.time_ns / 1e9))],
    ["gap", "gap to the best plan, at most", percent(plan.gap, 3)],
  ];
  return (
    <section class="slider" aria-label="Plan along the frontier">
      <label>
        <span>
          Plan: <strong>{plan.target}</strong> {!report.compared_with && <small>plans/{plan.name}.json</small>}
        </span>
        <input
          type="range"
          min="0"
          max={report.plans.length - 1}
          step="1"
          value={chosen}
          disabled={report.plans.length < 2}
          aria-valuetext={`${plan.target}: ${number(plan.time_ns / 1e9, 6)} s, ${joules(plan.energy_j)}`}
          onInput={(event) => onChoose(event.currentTarget.valueAsNumber)}
        />
        <span class="ends">
          <span>faster</span>
          <span>less energy</span>
        </span>
      </label>
      <dl>
        {numbers.map(([id, name, value]) => (
          <div key={id} class={id === "power" || id === "gap" ? "detail" : ""}>
            <dt>{name}</dt>
            <dd data-number={id}>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

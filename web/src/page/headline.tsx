// Shows the savings of a month in energy, money and CO2, with no slowdown and with the chosen plan.
import { useState } from "preact/hooks";
import { firstPlan, gpusOfPipeline, laneNoun, referenceOf, type Plan, type Report } from "../data";
import {
  counted,
  joules,
  kilograms,
  money,
  number,
  percent,
  percentWithin,
  wattHours,
} from "../format";

export const hoursOfMonth = 730;
const joulesPerKilowattHour = 3.6e6;

export interface Rates {
  price: number; // The price of a kWh in dollars.
  gramsPerKilowattHour: number;
  pipelines: number;
}

export interface MonthlySaving {
  energy_j: number;
  money: number;
  co2_kg: number;
  longer_h: number; // The additional time (h) for the same work.
}

/** Returns what the plan saves. It counts the iterations of a month at maximum frequency. */
export function savingOfMonth(
  report: Report,
  plan: Plan,
  pipelines: number,
  rates: Pick<Rates, "price" | "gramsPerKilowattHour">,
): MonthlySaving {
  const reference = referenceOf(report);
  const iterations = (hoursOfMonth * 3600) / (reference.time_ns / 1e9);
  const energy_j = (reference.energy_j - plan.energy_j) * iterations * pipelines;
  const kilowattHours = energy_j / joulesPerKilowattHour;
  return {
    energy_j,
    money: kilowattHours * rates.price,
    co2_kg: (kilowattHours * rates.gramsPerKilowattHour) / 1e3,
    longer_h: hoursOfMonth * (plan.time_ns / reference.time_ns - 1),
  };
}

export function Headline({ report, chosen }: { report: Report; chosen: number }) {
  const [rates, setRates] = useState<Rates>({
    price: 0.12,
    gramsPerKilowattHour: 400,
    pipelines: report.job.pipelines,
  });
  const first = report.plans[firstPlan(report)];
  const plan = report.plans[chosen];
  const reference = referenceOf(report);
  const saving = 1 - first.energy_j / reference.energy_j;
  const slowdown = first.time_ns / reference.time_ns - 1;
  const iterations = (hoursOfMonth * 3600) / (reference.time_ns / 1e9);
  return (
    <section class="headline" aria-labelledby="headline">
      <h1 id="headline">
        {saving > 0 ? (
          <>
            <strong>{percent(saving)} less energy</strong>{" "}
            {slowdown <= 0 ? "with no slowdown" : `at ${percent(slowdown)} slowdown`}
          </>
        ) : (
          report.plans.some((p) => p.energy_j < reference.energy_j)
            ? "Only slower plans save energy for this job"
            : "No plan saves energy for this job"
        )}
      </h1>
      {report.stopped_early && (
        <p>The search for these plans was stopped early. A whole run may find better ones.</p>
      )}
      <p>
        An iteration of one pipeline ({counted(report.pp_ranks.length, laneNoun(report))},{" "}
        {counted(gpusOfPipeline(report), "GPU")}) takes {number(reference.time_ns / 1e9)} s and
        uses {joules(reference.energy_j)} with every GPU at maximum frequency
        {report.compared_with && ` and the schedule ${report.compared_with.schedule}`}. The plan for{" "}
        <em>{first.target}</em>
        {report.compared_with && ` with the schedule ${report.job.schedule}`} uses {joules(first.energy_j)}. No plan for this target uses less than{" "}
        {joules(first.lower_bound_j)}. In a month of {hoursOfMonth} hours, this job runs{" "}
        {number(iterations, 3)} iterations at maximum frequency. For the same work, the plans save:
      </p>
      <NoiseNote report={report} plan={plan} />
      <div class="scroll">
        <SavingsTable report={report} first={first} plan={plan} rates={rates} />
      </div>
      <Inputs rates={rates} onChange={setRates} />
    </section>
  );
}

// Shows the mean results of the plan if the times of instructions vary between iterations.
function NoiseNote({ report, plan }: { report: Report; plan: Plan }) {
  const noise = report.job.noise;
  if (!noise || !plan.noise) return null;
  const { slowdown, slowdown_ci, saving, saving_ci, most_saving } = plan.noise;
  return (
    <p class="noise">
      The time of an instruction varies by {percent(noise.independent)}
      {noise.common > 0 && ` on its own, and by ${percent(noise.common)} together with its rank`}. With
      this noise, the mean iteration of the plan for <em>{plan.target}</em> takes{" "}
      {percentWithin(slowdown, slowdown_ci, 3)} more time than at maximum frequency, and saves{" "}
      {percentWithin(saving, saving_ci, 2)} of the energy. No plan that is as fast on average saves more
      than {percent(most_saving, 2)}.
    </p>
  );
}

function SavingsTable({ report, first, plan, rates }: {
  report: Report;
  first: Plan;
  plan: Plan;
  rates: Rates;
}) {
  const counts = rates.pipelines === 1 ? [1] : [1, rates.pipelines];
  // If the chosen plan is the first plan, one column is enough.
  const plans = plan === first ? [first] : [first, plan];
  const columns = counts.flatMap((pipelines) =>
    plans.map((p) => savingOfMonth(report, p, pipelines, rates)),
  );
  const rows: [string, (saving: MonthlySaving) => string][] = [
    ["Energy saved", (s) => wattHours(s.energy_j)],
    ["Money saved", (s) => money(s.money)],
    ["CO₂ saved", (s) => kilograms(s.co2_kg)],
    ["Additional time", (s) => (s.longer_h <= 0 ? "none" : `${number(s.longer_h, 3)} h`)],
  ];
  return (
    <table class="savings">
      <thead>
        <tr>
          <td />
          {counts.map((pipelines, i) => (
            <th key={i} colSpan={plans.length} scope="colgroup">
              {i === 1 ? `Whole job, ${pipelines} pipelines` : "One pipeline"}
              {counts.length === 1 && " (the whole job)"}
            </th>
          ))}
        </tr>
        <tr>
          <th scope="col">per month of work</th>
          {counts.flatMap((_, i) =>
            plans.map((p) => (
              <th scope="col" key={`${i} ${p.name}`} class={p === first ? "" : "chosen"}>
                {p.target}
              </th>
            )),
          )}
        </tr>
      </thead>
      <tbody>
        {rows.map(([name, cell]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            {columns.map((saving, i) => (
              <td key={i} class={plans[i % plans.length] === first ? "" : "chosen"}>{cell(saving)}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Inputs({ rates, onChange }: { rates: Rates; onChange: (rates: Rates) => void }) {
  const fields: [keyof Rates, string, number, number][] = [
    ["price", "Price of a kWh ($)", 0, 0.01],
    ["gramsPerKilowattHour", "Grid, g CO₂ per kWh", 0, 10],
    ["pipelines", "Pipelines", 1, 1],
  ];
  return (
    <form class="rates" onSubmit={(event) => event.preventDefault()}>
      {fields.map(([name, label, least, step]) => (
        <label key={name}>
          {label}
          {/* The page does not rewrite what the reader types: "0." may become 0.35. */}
          <input type="number" name={name} min={least} step={step} defaultValue={`${rates[name]}`}
            onInput={(event) => {
              const value = event.currentTarget.valueAsNumber;
              const isGood =
                value >= least && (name !== "pipelines" || Number.isInteger(value));
              event.currentTarget.setAttribute("aria-invalid", String(!isGood));
              if (isGood) onChange({ ...rates, [name]: value });
            }} />
        </label>
      ))}
    </form>
  );
}

import { useMemo } from "preact/hooks";
import { laneHeightFor, layOutTimeline } from "../charts/lanes";
import { MemoryChart, memoryLabel } from "../charts/memory";
import type { Report, ScheduleTradeoff } from "../data";
import { joules, percent } from "../format";
import { IterationsView } from "./iterations_view";
import type { Theme } from "./theme_button";
import { themed } from "./themed";
import { useWidth } from "./use_width";

/** Shows how much more memory saves. Below, shows the usual and the chosen schedule. */
export function SchedulesSection({ report, tradeoff, theme }: {
  report: Report;
  tradeoff: ScheduleTradeoff;
  theme: Theme;
}) {
  const { element, width } = useWidth<HTMLDivElement>();
  const height = Math.max(260, Math.min(400, width * 0.42));
  const layout = useMemo(
    () =>
      layOutTimeline(
        report,
        tradeoff.timelines.map((work) => ({
          title: `${work.name}, planned: ${joules(work.plan.energy_j)}`,
          iteration: work.plan,
          work,
        })),
        laneHeightFor(report.pp_ranks.length),
      ),
    [report, tradeoff],
  );
  return (
    <section class="schedules" aria-labelledby="schedules">
      <h2 id="schedules">The schedule, and memory</h2>
      <p>
        A schedule that holds more microbatches in flight fills the time in which a pp_rank waits,
        so all later instructions may run at lower clocks. All plans of this chart are as fast as{" "}
        {tradeoff.reference} at maximum frequency. No schedule in the memory of a row saves more
        than the bound.
      </p>
      {tradeoff.conclusion.trim().split("\n").map((sentence) => (
        <p key={sentence} class="conclusion">{sentence}</p>
      ))}
      {tradeoff.memory_source && <p>{tradeoff.memory_source}</p>}
      <div class="chart" ref={element}>
        {width > 0 && (
          <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img"
            aria-label={`Energy saved against memory: ${tradeoff.rows
              .map((row) => `${row.name} saves ${percent(row.saving)}`)
              .join(", ")}`}>
            <MemoryChart tradeoff={tradeoff} width={width} height={height} palette={themed} />
          </svg>
        )}
      </div>
      <ul class="legend">
        <li><i class="line dashed" style={{ borderColor: themed.bound }} />bound</li>
        <li><i class="dot" style={{ background: themed.chosen }} />schedule that was found</li>
        <li><i class="ring" style={{ borderColor: themed.baseline }} />{tradeoff.reference}</li>
      </ul>
      <RowsTable tradeoff={tradeoff} />
      <h3>One iteration with each schedule, planned</h3>
      <IterationsView report={report} layout={layout} theme={theme}
        label={`Timelines of schedules: ${tradeoff.timelines
          .map((timeline) => `${timeline.name} ${joules(timeline.plan.energy_j)}`)
          .join(", ")}`} />
    </section>
  );
}

function RowsTable({ tradeoff }: { tradeoff: ScheduleTradeoff }) {
  const isGib = tradeoff.unit === "GiB";
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            <th scope="col">schedule</th>
            <th scope="col">in flight on pp_ranks 0, 1, …</th>
            {isGib && <th scope="col" title={memoryLabel(tradeoff)}>most GiB</th>}
            <th scope="col">saving</th>
            <th scope="col">bound</th>
            <th scope="col">energy</th>
          </tr>
        </thead>
        <tbody>
          {tradeoff.rows.map((row) => (
            <tr key={row.name}>
              <th scope="row">{row.name}</th>
              <td>{row.in_flight.join(" ")}</td>
              {isGib && <td>{row.memory.toFixed(2)}</td>}
              <td>{percent(row.saving)}</td>
              <td>{row.most_saving === null ? (row === tradeoff.rows[0] ? "" : "none") : percent(row.most_saving)}</td>
              <td>{joules(row.energy_j, 6)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

import { useMemo } from "preact/hooks";
import { legendHeight, legendWidth, PowerLegend } from "../charts/legend";
import { laneHeightFor, layOutTimeline } from "../charts/lanes";
import { laneNoun, type Report } from "../data";
import { number } from "../format";
import { IterationsView } from "./iterations_view";
import type { Theme } from "./theme_button";
import { themed } from "./themed";

export function TimelineSection({ report, chosen, theme }: {
  report: Report;
  chosen: number;
  theme: Theme;
}) {
  const plan = report.plans[chosen];
  const layout = useMemo(
    () =>
      layOutTimeline(
        report,
        [
          { title: "Maximum frequency", iteration: report.baseline },
          { title: `Plan: ${plan.target}`, iteration: plan },
        ],
        laneHeightFor(report.pp_ranks.length),
      ),
    [report, plan],
  );
  return (
    <section class="timeline" aria-labelledby="timeline">
      <h2 id="timeline">One iteration</h2>
      <p>
        Each lane is one {laneNoun(report)}. A warmer color means that a GPU draws more power. Gray means
        that it waits. The outlined instructions are a critical path: only they determine the iteration
        time. The plan runs instructions with slack at lower clocks, so they take longer and use less
        energy. In a good plan, few instructions have slack left.
      </p>
      <svg width={legendWidth} height={legendHeight} class="power"
        viewBox={`0 0 ${legendWidth} ${legendHeight}`} role="img" aria-label="Colors: power of a GPU, waiting, critical path">
        <PowerLegend report={report} palette={themed} />
      </svg>
      <IterationsView report={report} layout={layout} theme={theme}
        label={`Timeline: maximum frequency ${number(report.baseline.time_ns / 1e9)} s, ${
          plan.target
        } ${number(plan.time_ns / 1e9)} s`} />
    </section>
  );
}

import { useMemo } from "preact/hooks";
import { legendHeightFor, legendWidth, PowerLegend } from "../charts/legend";
import { laneHeightFor, layOutTimeline } from "../charts/lanes";
import { laneNoun, type Report } from "../data";
import { number } from "../format";
import { IterationsView } from "./iterations_view";
import type { Theme } from "./theme_button";
import { themed } from "./themed";
import { useWidth } from "./use_width";

export function TimelineSection({ report, chosen, theme }: {
  report: Report;
  chosen: number;
  theme: Theme;
}) {
  const { element, width } = useWidth<HTMLDivElement>();
  const legendSpace = Math.min(legendWidth, width);
  const legendHeight = legendHeightFor(report, legendSpace);
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
        Each lane is one {laneNoun(report)}{report.job.profile !== undefined && (
          <>, a position along the pipeline. F3 is the forward of microbatch 3, B3 its backward</>
        )}. A warmer color means that a GPU draws more power. Between instructions, it waits. The
        instructions with a frame, or a line above, are a critical path: only they determine the
        iteration time. The plan runs instructions with slack at lower clocks, so they take longer and use less
        energy. In a good plan, few instructions have slack left.
      </p>
      <div ref={element}>
        <svg width={legendSpace} height={legendHeight} class="power"
          viewBox={`0 0 ${legendSpace} ${legendHeight}`} role="img" aria-label="Colors: power of a GPU, waiting, critical path">
          <PowerLegend report={report} palette={themed} width={legendSpace} />
        </svg>
      </div>
      <IterationsView report={report} layout={layout} theme={theme}
        label={`Timeline: maximum frequency ${number(report.baseline.time_ns / 1e9)} s, ${
          plan.target
        } ${number(plan.time_ns / 1e9)} s`} />
    </section>
  );
}

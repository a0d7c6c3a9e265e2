import { useEffect, useMemo, useState } from "preact/hooks";
import { light } from "../color";
import { legendHeight, legendWidth, PowerLegend } from "../charts/legend";
import { laneHeightFor, layOutTimeline } from "../charts/lanes";
import { axisHeight, TimelineChart } from "../charts/timeline";
import { laneNoun, type Report } from "../data";
import { number } from "../format";
import type { Theme } from "./theme_button";
import { themed } from "./themed";
import { TimelineCanvas } from "./timeline_canvas";
import { useWidth } from "./use_width";

export function TimelineSection({ report, chosen, theme }: {
  report: Report;
  chosen: number;
  theme: Theme;
}) {
  const { element, width } = useWidth<HTMLDivElement>();
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
  const printing = usePrinting();
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
      <div class="chart" ref={element}>
        {width > 0 && !printing && (
          <TimelineCanvas report={report} layout={layout} width={width} theme={theme}
            label={`Timeline: maximum frequency ${number(report.baseline.time_ns / 1e9)} s, ${
              plan.target
            } ${number(plan.time_ns / 1e9)} s`} />
        )}
        {printing && (
          <svg viewBox={`0 0 1000 ${layout.height + axisHeight}`} width="100%">
            <TimelineChart report={report} layout={layout} width={1000} palette={light} />
          </svg>
        )}
      </div>
    </section>
  );
}

/** Whether the page is being printed. Paper gets vectors instead of the canvas. */
function usePrinting(): boolean {
  const [printing, setPrinting] = useState(false);
  useEffect(() => {
    const media = window.matchMedia("print");
    const change = () => setPrinting(media.matches);
    const before = () => setPrinting(true);
    const after = () => setPrinting(false);
    media.addEventListener("change", change);
    window.addEventListener("beforeprint", before);
    window.addEventListener("afterprint", after);
    return () => {
      media.removeEventListener("change", change);
      window.removeEventListener("beforeprint", before);
      window.removeEventListener("afterprint", after);
    };
  }, []);
  return printing;
}

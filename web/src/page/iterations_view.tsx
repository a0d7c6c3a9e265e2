import { useEffect, useState } from "preact/hooks";
import { light } from "../color";
import type { TimelineLayout } from "../charts/lanes";
import { axisHeight, TimelineChart } from "../charts/timeline";
import type { Report } from "../data";
import type { Theme } from "./theme_button";
import { TimelineCanvas } from "./timeline_canvas";
import { useWidth } from "./use_width";

/** Draws the lanes of iterations. `label` describes the lanes for readers who cannot see them. */
export function IterationsView({ report, layout, theme, label }: {
  report: Report;
  layout: TimelineLayout;
  theme: Theme;
  label: string;
}) {
  const { element, width } = useWidth<HTMLDivElement>();
  const printing = usePrinting();
  return (
    <div class="chart" ref={element}>
      {width > 0 && !printing && (
        <TimelineCanvas report={report} layout={layout} width={width} theme={theme}
          label={label} />
      )}
      {printing && (
        <svg viewBox={`0 0 1000 ${layout.height + axisHeight}`} width="100%">
          <TimelineChart layout={layout} width={1000} palette={light} />
        </svg>
      )}
    </div>
  );
}

/** Whether the page is being printed. On paper, the timeline is SVG and not a canvas. */
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

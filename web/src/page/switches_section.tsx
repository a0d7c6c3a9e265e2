import { SwitchesChart } from "../charts/switches";
import type { SwitchTradeoff } from "../data";
import { percent } from "../format";
import { themed } from "./themed";
import { useWidth } from "./use_width";

/** Draws how much of the saving of one target remains with limits of clock changes. */
export function SwitchesSection({ tradeoff }: { tradeoff: SwitchTradeoff }) {
  const { element, width } = useWidth<HTMLDivElement>();
  const height = Math.max(240, Math.min(380, width * 0.4));
  const title = tradeoff.limits
    .filter((limit) => limit.saving !== null)
    .map((limit) => `at most ${limit.max_switches} changes save ${percent(limit.saving!)}`)
    .join(", ");
  return (
    <section aria-labelledby="switches">
      <h2 id="switches">Few clock changes</h2>
      <p>
        A clock change (a switch) takes milliseconds on a real GPU. This chart shows how much a plan with few
        changes saves, for the target “{tradeoff.target}”. The change back at the end of the
        iteration counts. No plan within a limit saves more than the bound.
      </p>
      <div class="chart" ref={element}>
        {width > 0 && (
          <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img"
            aria-label={`Limits of clock changes: ${title}; no limit saves ${percent(
              tradeoff.unlimited.saving,
            )}`}>
            <SwitchesChart tradeoff={tradeoff} width={width} height={height} palette={themed} />
          </svg>
        )}
      </div>
      <ul class="legend">
        <li><i class="line dashed" style={{ borderColor: themed.bound }} />bound</li>
        <li><i class="dot" style={{ background: themed.chosen }} />plan within the limit</li>
        <li><i class="ring" style={{ borderColor: themed.baseline }} />plan without a limit</li>
        {tradeoff.max_switches !== undefined && (
          <li>
            <i class="dot in-ring" style={{ background: themed.chosen, outlineColor: themed.chosen }} />
            the limit of the plans
          </li>
        )}
      </ul>
    </section>
  );
}

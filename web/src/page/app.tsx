import { useState } from "preact/hooks";
import { blockingPowerOf, laneNoun, type Report } from "../data";
import { counted, seconds, watts } from "../format";
import { FrontierSection } from "./frontier_section";
import { Headline } from "./headline";
import { PlanSlider } from "./plan_slider";
import { SchedulesSection } from "./schedules_section";
import { StagesSection } from "./stages_section";
import { SwitchesSection } from "./switches_section";
import { ThemeButton, useTheme } from "./theme_button";
import { TimelineSection } from "./timeline_section";

export function App({ report }: { report: Report }) {
  const [chosen, setChosen] = useState(report.chosen);
  const [theme, nextTheme] = useTheme();
  return (
    <>
      <header class="top">
        <p class="brand">Perseus</p>
        <ThemeButton theme={theme} onClick={nextTheme} />
      </header>
      <Headline report={report} chosen={chosen} />
      <PlanSlider report={report} chosen={chosen} onChoose={setChosen} />
      <FrontierSection report={report} chosen={chosen} onChoose={setChosen} />
      <TimelineSection report={report} chosen={chosen} theme={theme} />
      {report.schedule_tradeoff && (
        <SchedulesSection report={report} tradeoff={report.schedule_tradeoff} theme={theme} />
      )}
      {report.switch_tradeoff && <SwitchesSection tradeoff={report.switch_tradeoff} />}
      <StagesSection report={report} chosen={chosen} />
      <Footer report={report} />
    </>
  );
}

function Footer({ report }: { report: Report }) {
  const { job } = report;
  return (
    <footer>
      <h2>Input of this report</h2>
      <p>
        {job.profile !== undefined ? "Profile " : "Graph "}
        <code>{job.profile ?? job.graph}</code>
        {job.profile !== undefined && `, schedule ${job.schedule}`},{" "}
        {counted(report.pp_ranks.length, laneNoun(report))}
        {job.microbatches !== undefined && ` × ${counted(job.microbatches, "microbatch", "es")}`},{" "}
        {counted(job.instructions, "instruction")} per iteration,{" "}
        {counted(job.gpus_per_stage, "GPU")} per stage. A GPU that waits draws{" "}
        {watts(blockingPowerOf(report), 4)}. A clock change takes{" "}
        {job.switch_latency_s > 0 ? seconds(job.switch_latency_s * 1e9) : "no time"}.
      </p>
      <p>
        Energies are of all GPUs of a pipeline, with waiting included. They are as accurate as the
        profile: each plan is evaluated from the measured options that it names. The bound holds for
        this profile: no plan that is as fast needs less energy. Savings per month compare the same
        work: the iterations that the job runs at maximum frequency in 730 hours.
      </p>
    </footer>
  );
}

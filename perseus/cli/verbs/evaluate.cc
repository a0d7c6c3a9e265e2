// `perseus evaluate` computes the time and energy of a plan.
#include <fmt/core.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/flags/noise_flags.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/named_plans.h"
#include "perseus/cli/verbs/summary_file.h"
#include "perseus/cli/verbs/switches.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/plan/power_shape.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kEvaluateAbout =
    "Compute the time and energy of a plan from the measured options of a profile. If the plan\n"
    "states another time or energy, and no flag changes the profile or the job, the exit status\n"
    "is 2.";
constexpr const char* kEvaluateExamples =
    "  perseus evaluate out/plans/no-slowdown.json --profile profile.csv \\\n"
    "      --switch-latency 10";

struct EvaluateFlags {
  std::string plan;
  job::JobSettings job;
  NoiseFlags noise;
  bool as_json = false;
};

struct LoadedPlan {
  job::LoadedJob job;
  std::vector<int> options;
  plan_file::PlanFile file;

  // Whether the time and energy in the file are equal to the values of this evaluation.
  bool Holds(const plan::Evaluation& evaluation) const {
    return file.time == evaluation.time && file.energy_j == evaluation.energy_j;
  }
};

struct UnderNoise {
  noise::Noise noise;
  noise::NoisyDifference difference;  // The difference from maximum frequency with the same noise.
};

Result<std::optional<UnderNoise>> EvaluateNoise(const LoadedPlan& plan, const NoiseFlags& flags) {
  constexpr int kSamples = 2000;
  constexpr std::uint64_t kSeed = 3;
  const auto noise = NoiseOf(flags, plan.job.noise);
  if (!noise) return std::nullopt;
  const noise::NoisyExecution execution(plan.job.graph, plan.job.model, *noise, kSamples, kSeed);
  return UnderNoise{*noise,
                    execution.Compare(plan.options, schedule::BaselineOptions(plan.job.graph))};
}

Result<LoadedPlan> LoadPlan(const EvaluateFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(auto file, ReadPlan(flags.plan));
  plan_file::PlanFile found = file;
  found.job.profile = ProfileOfPlan(file, flags.plan);
  PERSEUS_ASSIGN_OR_RETURN(auto job, job::LoadPlannedJob(found, flags.plan, flags.job));
  PERSEUS_ASSIGN_OR_RETURN(auto options, plan_file::FindOptions(file, job.graph, flags.plan));
  return LoadedPlan{std::move(job), std::move(options), std::move(file)};
}

constexpr Nanoseconds kShortTime = kSecond / 10;

plan::PowerShape ShapeOf(const LoadedPlan& plan, const plan::Evaluation& evaluation) {
  return {evaluation, plan.job.model, static_cast<int>(plan.job.graph.pp_rank_orders.size())};
}

ordered_json Describe(const LoadedPlan& plan, const plan::Evaluation& evaluation) {
  const plan::PowerShape shape = ShapeOf(plan, evaluation);
  return {{"time_s", ToSeconds(evaluation.time)},
          {"energy_j", evaluation.energy_j},
          {"instruction_energy_j", evaluation.instruction_energy_j},
          {"blocking_energy_j", evaluation.blocking_energy_j},
          {"average_power_w", evaluation.average_power_w()},
          {"peak_power_w", shape.peak_w()},
          {"largest_step_100ms_w", shape.LargestStepW(kShortTime)},
          {"largest_step_1s_w", shape.LargestStepW(kSecond)},
          {"switches", evaluation.switches},
          {"switches_per_gpu", SwitchesPerGpu(evaluation)},
          {"switches_per_gpu_s", SwitchesPerGpuAndSecond(evaluation)}};
}

std::string FormatJson(const LoadedPlan& plan, const plan::Evaluation& baseline,
                       const plan::Evaluation& evaluation, const std::optional<UnderNoise>& noisy) {
  ordered_json result = Describe(plan, evaluation);
  result["saving"] = 1 - evaluation.energy_j / baseline.energy_j;
  result["slowdown"] = ToSeconds(evaluation.time) / ToSeconds(baseline.time) - 1;
  result["switch_latency_s"] = ToSeconds(plan.job.model.switch_latency);
  if (!plan.job.facts.path.empty()) result["facts"] = plan.job.facts.path;
  result["baseline"] = Describe(plan, baseline);
  if (noisy) {
    result["noise"] = {
        {"independent", noisy->noise.independent}, {"common", noisy->noise.common},
        {"slowdown", noisy->difference.slowdown},  {"slowdown_ci", noisy->difference.slowdown_ci},
        {"saving", noisy->difference.saving},      {"saving_ci", noisy->difference.saving_ci}};
  }
  result["claimed"] = {{"target", plan.file.target},
                       {"time_s", ToSeconds(plan.file.time)},
                       {"energy_j", plan.file.energy_j},
                       {"holds", plan.Holds(evaluation)}};
  return JsonText(result, 2) + "\n";
}

// Formats two numbers with enough digits to show their difference, but with at least the digits of
// the table.
std::pair<std::string, std::string> FormatApart(double one, double other) {
  constexpr int kFewest = 6;
  constexpr int kMost = 17;
  for (int digits = kFewest; digits < kMost && one != other; ++digits) {
    auto texts =
        std::pair(fmt::format("{:.{}g}", one, digits), fmt::format("{:.{}g}", other, digits));
    if (texts.first != texts.second) return texts;
  }
  return {FormatQuantity(one), FormatQuantity(other)};
}

std::string FormatTable(const LoadedPlan& plan, const plan::Evaluation& baseline,
                        const plan::Evaluation& evaluation,
                        const std::optional<UnderNoise>& noisy) {
  Table table({"plan", "time", "energy", "saving", "slowdown", "switches"});
  table.AddRow({"maximum frequency", FormatQuantity(ToSeconds(baseline.time), "s"),
                FormatQuantity(baseline.energy_j, "J"), "", "",
                FormatSwitches(SwitchesPerGpu(baseline))});
  table.AddRow({plan.file.target, FormatQuantity(ToSeconds(evaluation.time), "s"),
                FormatQuantity(evaluation.energy_j, "J"),
                FormatPercent(1 - evaluation.energy_j / baseline.energy_j),
                FormatPercent(ToSeconds(evaluation.time) / ToSeconds(baseline.time) - 1),
                FormatSwitches(SwitchesPerGpu(evaluation))});
  Table power({"power", "mean", "peak", "step of 0.1 s", "step of 1 s"});
  const auto add_power = [&](const std::string& name, const plan::Evaluation& of) {
    const plan::PowerShape shape = ShapeOf(plan, of);
    power.AddRow({name, FormatQuantity(of.average_power_w(), "W"),
                  FormatQuantity(shape.peak_w(), "W"),
                  FormatQuantity(shape.LargestStepW(kShortTime), "W"),
                  FormatQuantity(shape.LargestStepW(kSecond), "W")});
  };
  add_power("maximum frequency", baseline);
  add_power(plan.file.target, evaluation);
  std::string text;
  if (noisy) {
    text += fmt::format(
        "\nUnder noise, the mean iteration takes {:+.3f} ± {:.3f} % more time than at maximum "
        "frequency with the same noise, and saves {:.2f} ± {:.2f} % of the energy (95 % "
        "confidence).\n",
        100 * noisy->difference.slowdown, 100 * noisy->difference.slowdown_ci,
        100 * noisy->difference.saving, 100 * noisy->difference.saving_ci);
  }
  const std::string facts = job::Describe(plan.job.facts);
  if (!facts.empty()) text += "\n" + facts;
  if (plan.Holds(evaluation)) {
    text += "\nThe plan file has the same time and energy as this evaluation.\n";
  } else {
    const auto time = FormatApart(ToSeconds(plan.file.time), ToSeconds(evaluation.time));
    const auto energy = FormatApart(plan.file.energy_j, evaluation.energy_j);
    text += fmt::format(
        "\nThe plan file has {} s and {} J, but this evaluation gives {} s and {} J. The profile, "
        "the switch latency or the job differs from that of the plan, or the plan was edited.\n",
        time.first, energy.first, time.second, energy.second);
  }
  return table.Format() + kSwitchesNote + "\n" + power.Format() +
         "A step is the change from the mean power of one time to that of the next.\n" +
         Wrapped(text);
}

// Whether the flags describe a different job than the job for which the plan was made.
bool ChangesTheJob(const job::JobSettings& flags, const std::string& planned_profile) {
  if (!flags.profile.empty() && flags.profile != planned_profile) return true;
  return !flags.facts.empty() || flags.gpus_per_stage || flags.blocking_power_w ||
         flags.switch_latency_ms || flags.switch_cost || flags.p2p_s || flags.load_s ||
         flags.all_reduce_s || flags.optimizer_s;
}

Result<void> RunEvaluate(const Streams& streams, const EvaluateFlags& flags) {
  PERSEUS_RETURN_IF_ERROR(CheckNoise(flags.noise));
  PERSEUS_ASSIGN_OR_RETURN(const auto plan, LoadPlan(flags));
  PERSEUS_RETURN_IF_ERROR(WarnIfImplausible(streams, plan.job));
  const plan::Evaluator evaluator(plan.job.graph, plan.job.model);
  const plan::Evaluation baseline = evaluator.Evaluate(schedule::BaselineOptions(plan.job.graph));
  const plan::Evaluation evaluation = evaluator.Evaluate(plan.options);
  PERSEUS_ASSIGN_OR_RETURN(const auto noisy, EvaluateNoise(plan, flags.noise));
  PERSEUS_RETURN_IF_ERROR(streams.Print(flags.as_json
                                            ? FormatJson(plan, baseline, evaluation, noisy)
                                            : FormatTable(plan, baseline, evaluation, noisy)));
  if (plan.Holds(evaluation) || ChangesTheJob(flags.job, plan.file.job.profile)) return {};
  return Fail(InFile(flags.plan),
              "its time and energy are not those of this evaluation (see above)");
}

}  // namespace

Verb AddEvaluateVerb(CLI::App& program) {
  auto [verb, add, flags] =
      AddVerb<EvaluateFlags>(program, "evaluate", kEvaluateAbout, kEvaluateExamples);
  add("plan", flags->plan, "PLAN", "Plan (JSON)", InputFile())->required();
  add("--profile", flags->job.profile, "FILE",
      "Measured options (default: the profile that the plan names)", InputFile());
  add("--graph", flags->job.graph, "FILE",
      "The same for a general graph (default: the graph that the plan names)", InputFile());
  AddModelFlags(*verb, flags->job);
  AddNoiseFlags(*verb, flags->noise, "Also compute the mean time and energy under noise");
  verb->add_flag("--json", flags->as_json, "Print JSON instead of the table");
  return {verb, [flags = flags](const Streams& streams) { return RunEvaluate(streams, *flags); }};
}

}  // namespace perseus::cli

// `perseus verify` measures what a plan saves in a running job.
#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/row_block.h"
#include "perseus/cli/terminal/signals.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/tuner/paced_plans.h"
#include "perseus/runtime/tuner/verification.h"
#include "perseus/simulation/virtual_gpu/shared_clock.h"

namespace perseus::cli {
namespace {

constexpr const char* kVerifyAbout =
    "Measure what a plan saves in a running job: blocks of steps at the default clocks and blocks\n"
    "of planned steps, in pairs of random order. Reports the saved energy and the slowdown with "
    "confidence intervals, or that they cannot be determined, and how many steps would do. Takes "
    "--steps steps, and then restores the previous assignment. If it ends earlier, the "
    "blocks so far decide, if they are enough. With --against, compares two runs of a job from "
    "their records, for example with two schedules, and takes no step.";
constexpr const char* kVerifyExamples =
    "  perseus verify run --plan out/plans/no-slowdown.json --steps 200\n"
    "  perseus verify run-more-1 --against run-1f1b --steps 200";

struct VerifyFlags {
  std::string directory;
  std::string plan;
  std::string against;
  int steps = 100;
  std::optional<int> pipelines;
  double level_percent = 95;
  double tolerance_percent = 0.2;
  double counter_period_ms = 100;
  double assignment_delay_s = protocol::kAssignmentDelaySeconds;
  int seed = 1;
  double timeout_s = 60;
  bool as_json = false;
};

nlohmann::ordered_json ToJson(const profiler::Interval& interval) {
  return {{"estimate", interval.estimate}, {"lower", interval.lower}, {"upper", interval.upper}};
}

std::string_view NameOf(profiler::Verdict verdict) {
  constexpr std::string_view kNames[] = {"cannot-tell", "less", "same", "greater"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::string_view NameOf(profiler::Comparison::Outlier::Quantity quantity) {
  return quantity == profiler::Comparison::Outlier::Quantity::kTime ? "time" : "energy";
}

// Returns how many steps are needed, or 0 if the steps of this run are enough.
std::int64_t StepsNeeded(const tuner::Verification& verification) {
  return std::int64_t{2} * verification.comparison.pairs_needed * verification.layout.length;
}

// Returns a text such as "steps 33 to 35 (planned) are an outlier: …".
std::string Describe(const tuner::OutlyingBlock& outlier) {
  return fmt::format(
      "steps {} to {} ({}) are an outlier: they need {:+.1f} % {} compared with the other {} "
      "blocks (their longest step is {}, {:.3f} s). The pair is {:.0f} spreads away from the "
      "others, and counts as {:.0f}\n",
      outlier.steps.first, outlier.steps.last, outlier.is_planned ? "planned" : "baseline",
      100 * outlier.change, NameOf(outlier.quantity), outlier.is_planned ? "planned" : "baseline",
      outlier.longest_step, outlier.longest_step_s, outlier.spreads,
      profiler::SignedRankInterval::kLimit);
}

// The plans that are verified.
struct VerifiedPlans {
  plan_file::PlanFile plan;
  std::string text;  // The file of `plan`.
  // The plans of pipelines that do not follow `plan`, by dp_rank, and their files.
  std::map<int, plan_file::PlanFile> faster;
  std::map<int, std::string> texts_of_faster;
  int pipelines = 1;
  tuner::JobPromise Promise() const { return tuner::PromiseOf(plan, pipelines, faster); }
};

nlohmann::ordered_json ToJson(const profiler::Comparison& comparison) {
  return {{"level", comparison.level},
          {"saving", ToJson(comparison.saving)},
          {"slowdown", ToJson(comparison.slowdown)},
          {"saves", NameOf(comparison.saves)},
          {"slows", NameOf(comparison.slows)}};
}

std::string FormatJson(const tuner::Verification& verification, const VerifiedPlans& plans) {
  const profiler::Comparison& comparison = verification.comparison;
  const tuner::JobPromise promise = plans.Promise();
  nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
  for (const profiler::BlockPair& pair : verification.pairs) {
    const tuner::Verification::PairSteps& steps = verification.steps[pairs.size()];
    pairs.push_back({{"baseline_time_s", pair.baseline_time_s},
                     {"baseline_energy_j", pair.baseline_energy_j},
                     {"planned_time_s", pair.planned_time_s},
                     {"planned_energy_j", pair.planned_energy_j},
                     {"baseline_steps", {steps.baseline.first, steps.baseline.last}},
                     {"planned_steps", {steps.planned.first, steps.planned.last}}});
  }
  nlohmann::ordered_json outliers = nlohmann::ordered_json::array();
  for (const tuner::OutlyingBlock& outlier : verification.outliers) {
    outliers.push_back({{"pair", outlier.pair},
                        {"block", outlier.is_planned ? "planned" : "baseline"},
                        {"steps", {outlier.steps.first, outlier.steps.last}},
                        {"quantity", NameOf(outlier.quantity)},
                        {"change", outlier.change},
                        {"spreads", outlier.spreads},
                        {"longest_step", outlier.longest_step},
                        {"longest_step_s", outlier.longest_step_s}});
  }
  const bool is_decidable = comparison.pairs_needed < profiler::kMostPairs;
  const auto or_null = [&](std::int64_t count) {
    return is_decidable ? nlohmann::ordered_json(count) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json json = ToJson(comparison);
  json.update(nlohmann::ordered_json{{"pairs_needed", or_null(comparison.pairs_needed)},
                                     {"steps_needed", or_null(StepsNeeded(verification))},
                                     {"promised_saving", promise.saving()},
                                     {"promised_slowdown", promise.slowdown()},
                                     {"baseline_step_noise", verification.baseline_step_noise},
                                     {"planned_step_noise", verification.planned_step_noise},
                                     {"steps_of_a_block", verification.layout.length},
                                     {"pairs_left_out", verification.left_out},
                                     {"ended_early", verification.ended_early},
                                     {"outliers", std::move(outliers)},
                                     {"pairs", std::move(pairs)}});
  return JsonText(json, 2) + "\n";
}

std::string FormatText(const tuner::Verification& verification, const VerifiedPlans& plans,
                       const profiler::ComparisonOptions& options) {
  const tuner::JobPromise promise = plans.Promise();
  std::string text = Describe(verification.comparison, options);
  if (!text.empty() && text.back() != '\n') text += '\n';
  if (const std::int64_t steps = StepsNeeded(verification);
      steps > 0 && verification.comparison.pairs_needed < profiler::kMostPairs) {
    text += fmt::format("that takes about {} steps (--steps {})\n", steps, steps);
  }
  for (const tuner::OutlyingBlock& outlier : verification.outliers) text += Describe(outlier);
  text += fmt::format(
      "the plan promises {} of the energy at {} more time ({} pairs of blocks of {} steps)\n",
      FormatPercent(promise.saving()), FormatPercent(promise.slowdown()), verification.pairs.size(),
      verification.layout.length);
  text += fmt::format(
      "the time of a step varies by {:.2f} % without the plan, and by {:.2f} % with it\n",
      100 * verification.baseline_step_noise, 100 * verification.planned_step_noise);
  if (verification.left_out > 0) {
    text += fmt::format("{} pairs were left out: {}\n", verification.left_out,
                        verification.left_out_reason);
  }
  if (!verification.ended_early.empty()) {
    text += fmt::format("the run ended after {} of {} pairs: {}\n", verification.pairs.size(),
                        verification.layout.pairs, verification.ended_early);
  }
  return text;
}

Result<plan_file::PlanFile> ReadPlan(const std::string& path, std::string& text) {
  PERSEUS_ASSIGN_OR_RETURN(text, ReadFile(path));
  PERSEUS_ASSIGN_OR_RETURN(auto plan, plan_file::ParsePlan(text, path));
  if (plan.job.IsGeneralGraph()) {
    return Fail(
        InFile(path),
        "is a plan of a general graph, but a training job needs a plan of a pipeline (make one "
        "with perseus plan --schedule)");
  }
  return plan;
}

// Returns the plan of --plan, or else the plans in force.
Result<VerifiedPlans> PlansToVerify(const VerifyFlags& flags) {
  VerifiedPlans plans;
  const protocol::AssignmentPlaces places = protocol::FindPlaces(flags.directory);
  std::optional<protocol::Assignment> in_force;
  if (flags.plan.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(in_force, protocol::ReadAssignment(places));
    if (!in_force || in_force->plan.empty()) {
      return Fail(InFile(flags.directory),
                  "no plan is in force for the whole job (name the plan with --plan)");
    }
  }
  const auto path_of = [&](const std::string& plan) {
    return (protocol::PlaceOfPlan(places, *in_force, plan) / plan).string();
  };
  PERSEUS_ASSIGN_OR_RETURN(plans.plan,
                           ReadPlan(in_force ? path_of(in_force->plan) : flags.plan, plans.text));
  plans.pipelines = flags.pipelines.value_or(plans.plan.job.pipelines);
  if (!in_force) return plans;
  if (std::ssize(in_force->plans) > plans.pipelines) {
    return Fail("--pipelines {} is less than the {} pipelines with plans of their own",
                plans.pipelines, in_force->plans.size());
  }
  for (const auto& [dp_rank, plan] : in_force->plans) {
    PERSEUS_ASSIGN_OR_RETURN(plans.faster[dp_rank],
                             ReadPlan(path_of(plan), plans.texts_of_faster[dp_rank]));
  }
  return plans;
}

profiler::ComparisonOptions ComparisonOf(const VerifyFlags& flags) {
  return {.level = flags.level_percent / 100, .slowdown_tolerance = flags.tolerance_percent / 100};
}

std::string FormatJson(const tuner::RunComparison& compared) {
  nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
  for (const profiler::BlockPair& pair : compared.pairs) {
    pairs.push_back({{"baseline_time_s", pair.baseline_time_s},
                     {"baseline_energy_j", pair.baseline_energy_j},
                     {"time_s", pair.planned_time_s},
                     {"energy_j", pair.planned_energy_j}});
  }
  nlohmann::ordered_json json = ToJson(compared.comparison);
  json.update(nlohmann::ordered_json{{"steps_of_a_block", compared.block_length},
                                     {"first_step", compared.first_step},
                                     {"first_step_of_baseline", compared.first_step_against},
                                     {"pairs", std::move(pairs)}});
  return JsonText(json, 2) + "\n";
}

// Compares the records of two runs.
Result<void> RunAgainst(const Streams& streams, const VerifyFlags& flags) {
  if (!flags.plan.empty()) {
    return Fail("--against compares what two jobs ran, without a plan file (remove --plan)");
  }
  const tuner::RunsToCompare runs{
      .directory = flags.directory,
      .against = flags.against,
      .steps = flags.steps,
      .counter_period_s = flags.counter_period_ms / kMillisecondsPerSecond,
      .comparison = ComparisonOf(flags)};
  PERSEUS_ASSIGN_OR_RETURN(const auto compared, tuner::CompareRuns(runs));
  if (flags.as_json) return streams.Print(FormatJson(compared));
  std::string text = Describe(compared.comparison, runs.comparison);
  if (!text.empty() && text.back() != '\n') text += '\n';
  return streams.Print(fmt::format(
      "{}{} compared with {}: {} pairs of blocks of {} steps. The interval covers noise within the "
      "runs, not what differs between them, such as temperature and nodes.\n",
      text, flags.directory, flags.against, compared.pairs.size(), compared.block_length));
}

Result<void> RunVerify(const Streams& streams, const VerifyFlags& flags) {
  if (!flags.against.empty()) return RunAgainst(streams, flags);
  PERSEUS_ASSIGN_OR_RETURN(auto signals, EndSignals::Take());
  PERSEUS_ASSIGN_OR_RETURN(const VerifiedPlans plans, PlansToVerify(flags));
  tuner::VerificationOptions options;
  options.job_directory = flags.directory;
  options.plan = plans.text;
  options.plans = plans.texts_of_faster;
  options.ranks = tuner::RanksOf(plans.pipelines, static_cast<int>(plans.plan.pp_ranks.size()),
                                 plans.plan.job.model.gpus_per_stage);
  options.steps = flags.steps;
  options.counter_period_s = flags.counter_period_ms / kMillisecondsPerSecond;
  options.assignment_delay_s = flags.assignment_delay_s;
  options.comparison = ComparisonOf(flags);
  options.seed = static_cast<std::uint64_t>(flags.seed);
  options.timeout = ToNanoseconds(flags.timeout_s);
  options.should_end = [&] { return signals.HaveCome(); };
  PERSEUS_ASSIGN_OR_RETURN(const auto clock, virtual_gpu::OpenClockOfJob(flags.directory));
  const auto taking_part = clock->TakePart(Clock::Part::kPeriodic);
  std::optional<tuner::Verification> verification;
  {
    RowBlock block(streams.err);
    block.Begin("verify");
    options.progress = [&](double part) { block.Update(part); };
    options.say = [&](std::string_view line) { block.Say(fmt::format("perseus: {}", line)); };
    PERSEUS_ASSIGN_OR_RETURN(verification, tuner::Verify(options, *clock));
  }
  return streams.Print(flags.as_json ? FormatJson(*verification, plans)
                                     : FormatText(*verification, plans, options.comparison));
}

}  // namespace

Verb AddVerifyVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<VerifyFlags>(program, "verify", kVerifyAbout, kVerifyExamples);
  AddJobDirectory(add, flags->directory)->required();
  add("--plan", flags->plan, "FILE", "The plan to verify (default: the one in force)", InputFile());
  add("--against", flags->against, "JOBDIR",
      "The directory of another run: compare the last steps of both", JobDirectory());
  add("--steps", flags->steps, "N",
      "Steps to take, baseline and planned together; with --against, of each run (default: 100)",
      WholeNumberIn({1, 10'000'000}));
  add("--pipelines", flags->pipelines, "N",
      "Data-parallel pipelines of the job (default: those of the plan)",
      WholeNumberIn({1, 1'000'000}));
  add("--confidence", flags->level_percent, "PCT",
      "Level of the confidence intervals (default: 95)", NumberIn({51, 99.9, "percent"}));
  add("--tolerance", flags->tolerance_percent, "PCT",
      "Slowdown that still counts as none (default: 0.2)", NumberIn({0, 100, "percent"}));
  add("--counter-period", flags->counter_period_ms, "MS",
      "Time between two updates of the energy counters of GPUs (default: 100)",
      NumberIn({1, 10'000, "milliseconds"}));
  add("--assignment-delay", flags->assignment_delay_s, "SECONDS",
      "Time until every rank has read an assignment (default: 1)",
      NumberIn({0.1, 600, "in seconds"}));
  add("--seed", flags->seed, "N", "Seed of the random order (default: 1)",
      WholeNumberIn({0, 1'000'000'000}));
  add("--timeout", flags->timeout_s, "SECONDS", "How long a rank may be silent (default: 60)",
      NumberIn({0.1, 86'400, "in seconds"}));
  verb->add_flag("--json", flags->as_json, "Print JSON instead of text");
  return {verb, [flags = flags](const Streams& streams) { return RunVerify(streams, *flags); }};
}

}  // namespace perseus::cli

// `perseus tune` is the coordinator of a training job.
#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/flags/switch_flags.h"
#include "perseus/cli/flags/target_flags.h"
#include "perseus/cli/terminal/signals.h"
#include "perseus/cli/verbs/results.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/job/job.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/runtime/tuner/pace_keeping.h"
#include "perseus/runtime/tuner/ran_schedule.h"
#include "perseus/runtime/tuner/rank_memory.h"
#include "perseus/runtime/tuner/tuning.h"
#include "perseus/simulation/virtual_gpu/shared_clock.h"

namespace perseus::cli {
namespace {

constexpr const char* kTuneAbout =
    "Profile a job while it trains, make a plan, and activate it. The ranks of the job use\n"
    "the client library with JOBDIR as PERSEUS_JOB_DIR. The sweep runs a few steps at each of a "
    "few clocks, which it chooses by their effect on the plan. Then the job follows the plan, and "
    "tune measures it and makes a better plan. If tune ends early, the next tune continues "
    "(JOBDIR/tuner.json). Without a schedule in the job file or the flags, tune takes the order of "
    "instructions that the job runs (JOBDIR/schedule.csv).";
constexpr const char* kTuneExamples =
    "  perseus tune run -o tuned\n"
    "  perseus tune run --job job.toml --budget-steps 80 --budget-slowdown 20 \\\n"
    "      -o tuned\n"
    "  perseus tune run --keep-pace\n"
    "  perseus tune run --give-back\n"
    "\n"
    "DIR then contains plan.json and three profiles: profile.csv (the measurements,\n"
    "with confidence intervals), planned.csv (the options of the plan, with clocks\n"
    "that only a fitted model knows), and options.csv (the best profile for other\n"
    "plans: give it to perseus job register).";

struct TuneFlags {
  job::JobSettings job;
  TargetFlags targets;
  std::string directory;
  std::string output;
  profiler::SweepBudget budget;
  double slowdown_percent = 25;
  double least_gain_percent = 0.02;
  double assignment_delay_s = 1;
  int steps_followed = 12;
  double timeout_s = 60;
  std::optional<double> start_timeout_s;
  bool restores = false;
  bool gives_back = false;
  bool keeps_pace = false;
  bool as_json = false;
};

nlohmann::ordered_json ToJson(const tuner::PromiseRange& range) {
  return {{"estimate", range.estimate}, {"lower", range.lower}, {"upper", range.upper}};
}

std::string FormatJson(const tuner::TuningResult& result, const job::UsedFacts& facts) {
  nlohmann::ordered_json json{{"rounds", result.rounds},
                              {"steps_spent", result.spent.steps},
                              {"steps_taken", result.steps_taken},
                              {"seconds_spent", result.spent.seconds},
                              {"slowdown_spent", result.slowdown_spent},
                              {"frequencies", result.frequencies},
                              {"reason", result.reason},
                              {"blocking_power_w", result.blocking_power_w},
                              {"p2p_s", ToSeconds(result.plan.job.model.fixed.p2p)},
                              {"target", result.plan.target},
                              {"time_s", result.promise.time_s},
                              {"energy_j", result.promise.energy_j},
                              {"baseline_time_s", result.promise.baseline_time_s},
                              {"baseline_energy_j", result.promise.baseline_energy_j},
                              {"pipelines_with_faster_plans", result.faster_plans.size()},
                              {"saving", result.promise.saving()}};
  if (result.seen) {
    json["saving_interval"] = ToJson(tuner::RangeOfSaving(result.promise.saving(), *result.seen));
    json["slowdown_interval"] =
        ToJson(tuner::RangeOfSlowdown(result.promise.slowdown(), *result.seen));
    json["seen"] = {{"time_s", result.seen->time_s},
                    {"energy_j", result.seen->energy_j},
                    {"baseline_time_s", result.seen->baseline_time_s},
                    {"baseline_energy_j", result.seen->baseline_energy_j},
                    {"saving", result.seen->saving()},
                    {"slowdown", result.seen->slowdown()},
                    {"overlap_s", result.seen->overlap_s}};
  }
  if (const auto& noise = result.noise) {
    json["noise"] = {{"independent", noise->noise.independent},
                     {"independent_ci", noise->independent_ci},
                     {"common", noise->noise.common},
                     {"common_ci", noise->common_ci}};
  }
  if (const auto& expected = result.expected) {
    json["optimism"] = expected->optimism;
    json["left"] = expected->left;
    json["left_with_twice_the_steps"] = expected->left - expected->twice;
  }
  json["edge_microbatches"] = nlohmann::ordered_json::array();
  for (const tuner::EdgeDifference& one : result.edges) {
    json["edge_microbatches"].push_back(
        {{"pp_rank", one.group.pp_rank},
         {"chunk", one.group.chunk},
         {"kind", Name(one.group.kind)},
         {"edge", one.group.edge == tuner::Edge::kFirst ? "first" : "last"},
         {"relative", one.relative},
         {"difference_s", one.difference_s},
         {"samples", one.samples}});
  }
  for (const auto& [kind, range] : result.reached) {
    json["reached_mhz"][std::string(Name(kind))] = {range.lowest_mhz, range.highest_mhz};
  }
  for (const tuner::OutlookRow& row : result.outlook) {
    json["outlook"].push_back({{"slowdown_percent", row.slowdown_percent}, {"saving", row.saving}});
  }
  if (!facts.path.empty()) json["facts"] = facts.path;
  json["assignment_version"] = result.version;
  json["plan_from_step"] = result.version == 0 ? nlohmann::ordered_json()
                                               : nlohmann::ordered_json(result.plan_from_step);
  return JsonText(json, 2) + "\n";
}

// Smaller values are not named, because they are within the error of these numbers.
constexpr double kLeastNamed = 0.001;

std::string WhatIsLeft(const std::optional<tuner::Expectation>& expected) {
  if (!expected) return "";
  if (expected->left < kLeastNamed) {
    return "exact measurements would save hardly more (less than 0.1 % of the energy)\n";
  }
  return fmt::format(
      "exact measurements would save about {:.1f} % of the energy more, and twice as many steps "
      "(--budget-steps) about {:.1f} %\n",
      expected->left * 100, expected->twice * 100);
}

std::string FormatMeasuredNoise(const std::optional<profiler::MeasuredNoise>& noise) {
  if (!noise)
    return "the noise of instructions is unknown (too few steps or instructions were measured)\n";
  return fmt::format(
      "the time of an instruction varies by {:.2f} ± {:.2f} % on its own, and by {:.2f} ± {:.2f} % "
      "together with its rank\n",
      100 * noise->noise.independent, 100 * noise->independent_ci, 100 * noise->noise.common,
      100 * noise->common_ci);
}

std::string FormatEdges(const std::vector<tuner::EdgeDifference>& edges) {
  return edges.empty() ? "" : tuner::DescribeEdges(edges) + "\n";
}

std::string FormatTunedProfile(const profile::Profile& profile,
                               const std::optional<profiler::MeasuredNoise>& noise,
                               const std::optional<tuner::RankMemory>& memory) {
  const std::string rows =
      noise ? profile::FormatProfile(profile, noise->noise) : profile::FormatProfile(profile);
  return memory ? profile::AddMemory(profile, rows, memory->stages) : rows;
}

// Returns the GPU memory that ranks have measured. A plan does not need this number, so an error is
// only a warning.
std::optional<tuner::RankMemory> MemoryOfRanks(const Streams& streams,
                                               const std::string& job_directory) {
  auto memory = tuner::ReadRankMemory(job_directory);
  if (memory) return *std::move(memory);
  streams.Warn(memory.error().Message() + "; the profile has no memory");
  return std::nullopt;
}

std::string FormatMemory(const std::optional<tuner::RankMemory>& memory) {
  if (!memory) return "";
  constexpr double kGibibyte = 1 << 30;
  std::int64_t activations = 0;
  std::int64_t model = 0;
  for (const profile::StageMemory::Part& part : memory->stages.parts) {
    activations = std::max(activations, part.activation_bytes.value_or(0));
    model = std::max(model, part.model_bytes.value_or(0));
  }
  return fmt::format(
      "memory as torch measured it: activations of a microbatch take up to {:.3g} GiB on a GPU, "
      "the model up to {:.3g} GiB, and all together at most {:.3g} GiB\n",
      static_cast<double>(activations) / kGibibyte, static_cast<double>(model) / kGibibyte,
      static_cast<double>(memory->peak_bytes) / kGibibyte);
}

std::string FormatSeen(const tuner::TuningResult& result, const tuner::SeenSteps& seen) {
  const tuner::PromiseRange saving = tuner::RangeOfSaving(result.promise.saving(), seen);
  const tuner::PromiseRange slowdown = tuner::RangeOfSlowdown(result.promise.slowdown(), seen);
  return fmt::format(
      "measured in whole steps: {} of the energy saved at {} more time\n"
      "so expect {} to {} of the energy saved, at {} to {} more time\n",
      FormatPercent(seen.saving()), FormatPercent(seen.slowdown()), FormatPercent(saving.lower),
      FormatPercent(saving.upper), FormatPercent(slowdown.lower), FormatPercent(slowdown.upper));
}

std::string FormatReached(const tuner::ReachedRanges& reached) {
  if (reached.empty()) return "";
  return fmt::format("compared with steps at the highest clocks that the power limit permits: {}\n",
                     Describe(reached));
}

std::string FormatOutlook(const std::vector<tuner::OutlookRow>& rows) {
  return rows.empty() ? "" : tuner::Describe(rows) + "\n";
}

// `blocking_power` and `p2p` say where the values come from: "given" or "measured".
std::string FormatText(const tuner::TuningResult& result, std::string_view blocking_power,
                       std::string_view p2p) {
  const plan_file::PlanFile& plan = result.plan;
  return fmt::format(
      "measured at most {} clocks of an instruction, in {} rounds: {} steps, {:.1f} s, {} "
      "slower on average (tune took {} steps in all)\n"
      "stopped because {}\n"
      "a GPU that waits draws {:.1f} W ({})\n"
      "a message from one pp_rank to the next takes {:.3g} ms ({})\n"
      "{}{}"
      "{}: {} of the energy saved at {} more time, by measurements {}\n"
      "{}{}{}{}{}\n",
      result.frequencies, result.rounds, result.spent.steps, result.spent.seconds,
      FormatPercent(result.slowdown_spent), result.steps_taken, result.reason,
      result.blocking_power_w, blocking_power, ToMilliseconds(plan.job.model.fixed.p2p), p2p,
      FormatMeasuredNoise(result.noise), FormatEdges(result.edges), plan.target,
      FormatPercent(result.promise.saving()), FormatPercent(result.promise.slowdown()),
      result.version == 0
          ? result.expected
                ? fmt::format("before the plan ran (expect {:.2f} percentage points less)",
                              result.expected->optimism * 100)
                : "before the plan ran (expect less: noise makes its options look good)"
          : "while the plan ran",
      FormatReached(result.reached), result.seen ? FormatSeen(result, *result.seen) : "",
      WhatIsLeft(result.expected), FormatOutlook(result.outlook),
      result.version == 0
          ? "the clocks are restored"
          : fmt::format("all ranks follow the plan from step {} on (assignment {}); perseus verify "
                        "measures its real saving",
                        result.plan_from_step, result.version));
}

std::string FormatFacts(const tuner::TuningResult& result, const job::UsedFacts& facts) {
  if (!facts.most_changes_per_s) return job::Describe(facts);
  return fmt::format(
      "{}hardware facts: {} allows {:.4g} clock changes per second and GPU, so the plan has at "
      "most {} in an iteration\n",
      job::Describe(facts), facts.path, *facts.most_changes_per_s,
      few_switches::MostChanges(*facts.most_changes_per_s, result.plan.deadline));
}

Result<void> WriteResults(const tuner::TuningResult& result,
                          const std::optional<tuner::RankMemory>& memory,
                          ResultDirectory& directory) {
  const auto format = [&](const profile::Profile& profile) {
    return FormatTunedProfile(profile, result.noise, memory);
  };
  PERSEUS_RETURN_IF_ERROR(
      directory.Stage({{"profile.csv", format(result.profile)},
                       {"planned.csv", format(result.planned)},
                       {"options.csv", format(result.options)},
                       {std::string(kTuningResults.summary), plan_file::FormatPlan(result.plan)}}));
  return directory.Publish();
}

std::string FormatJson(const tuner::KeptPace& kept) {
  return JsonText(nlohmann::ordered_json{{"changes", kept.changes}}, 2) + "\n";
}

std::string FormatText(const tuner::KeptPace& kept) {
  return fmt::format(
      "the plans followed the slowest pipelines: {}; the plans of tune are in force\n",
      Counted(kept.changes, "change"));
}

// Writes an assignment after which each rank follows its own plan, or uses the default clocks.
Result<void> TakePlanBack(const Streams& streams, const TuneFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto now, protocol::ReadAssignment(flags.directory));
  if (!now) {
    return Fail(
        "{} has no assignment, so no plan is in force (give the PERSEUS_JOB_DIR of the job)",
        flags.directory);
  }
  PERSEUS_ASSIGN_OR_RETURN(auto writer, protocol::AssignmentWriter::Open(flags.directory));
  protocol::Assignment own;
  own.own = true;
  PERSEUS_ASSIGN_OR_RETURN(const auto version, writer.Write(std::move(own), 0));
  return streams.Print(
      flags.as_json
          ? JsonText(nlohmann::ordered_json{{"assignment_version", version}}, 2) + "\n"
          : fmt::format("from the next step on, no plan of tune is in force: ranks follow "
                        "their own plan, or use the default clocks (assignment {})\n",
                        version));
}

// Whether neither the flags nor the job file have a schedule. `file` has the keys of the job file.
bool LacksSchedule(const job::JobSettings& flags, const job::Job& file) {
  return flags.schedule.empty() && flags.schedule_file.empty() && flags.graph.empty() &&
         !file.Has("schedule") && !file.Has("schedule_file") && !file.Has("graph");
}

Result<job::Job> ReadJobFile(const std::string& path) {
  if (path.empty()) return job::Job();
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(path));
  return job::ParseJob(text, path);
}

// Loads the job of the flags. If they have no schedule, waits until the job has run some steps, and
// uses the order of these steps.
Result<job::UnprofiledJob> LoadTunedJob(const Streams& streams, const TuneFlags& flags,
                                        const tuner::ShouldEnd& should_end, Clock& clock) {
  PERSEUS_ASSIGN_OR_RETURN(const auto file, ReadJobFile(flags.job.job_file));
  if (!LacksSchedule(flags.job, file)) return job::LoadUnprofiledJob(flags.job);
  streams.Say(fmt::format("waiting for the first steps of the ranks in {}", flags.directory));
  tuner::ScheduleWait wait;
  wait.timeout = ToNanoseconds(flags.start_timeout_s.value_or(flags.timeout_s));
  wait.should_end = should_end;
  PERSEUS_ASSIGN_OR_RETURN(const auto ran, tuner::AwaitRanSchedule(flags.directory, wait, clock));
  std::string text = tuner::Describe(ran);
  streams.Say(text.substr(0, text.find('\n')));
  job::JobSettings job = flags.job;
  const std::filesystem::path path = std::filesystem::path(flags.directory) / "schedule.csv";
  PERSEUS_RETURN_IF_ERROR(protocol::WriteJobFile(flags.directory, path.filename(),
                                                 schedule::FormatSchedule(ran.schedule)));
  job.schedule_file = path.string();
  if (!job.pipelines && !file.Has("pipelines")) job.pipelines = ran.pipelines;
  if (!job.gpus_per_stage && !file.Has("gpus_per_stage")) job.gpus_per_stage = ran.gpus_per_stage;
  PERSEUS_ASSIGN_OR_RETURN(auto loaded, job::LoadUnprofiledJob(job));
  // The name is not the path of a file, so that measurements of the same order stay valid.
  loaded.planned.schedule.name = ran.schedule.name;
  return loaded;
}

Result<void> RunTune(const Streams& streams, const TuneFlags& flags) {
  if (flags.gives_back) return TakePlanBack(streams, flags);
  // Check the target before anything waits for the job.
  PERSEUS_ASSIGN_OR_RETURN(const auto checked, AskedTarget(flags.targets, 1));
  WarnOfLikelyUnits(streams, {checked});
  PERSEUS_ASSIGN_OR_RETURN(auto signals, EndSignals::Take());
  const tuner::ShouldEnd should_end = [&signals] { return signals.HaveCome(); };
  PERSEUS_ASSIGN_OR_RETURN(const auto clock, virtual_gpu::OpenClockOfJob(flags.directory));
  const auto taking_part = clock->TakePart(Clock::Part::kPeriodic);
  // If the results cannot be written, this fails before anything is measured.
  ResultDirectory results(flags.output, kTuningResults);
  if (!flags.output.empty()) PERSEUS_RETURN_IF_ERROR(results.Open());
  PERSEUS_ASSIGN_OR_RETURN(auto job, LoadTunedJob(streams, flags, should_end, *clock));
  const int gpus =
      static_cast<int>(job.planned.schedule.pp_ranks.size()) * job.planned.model.gpus_per_stage;
  PERSEUS_ASSIGN_OR_RETURN(const auto target, AskedTarget(flags.targets, gpus));
  tuner::TuningOptions options;
  options.job_directory = flags.directory;
  options.job = std::move(job.planned);
  options.measures_p2p = !flags.job.p2p_s && options.job.model.fixed.p2p == 0;
  options.facts_gpu_name = job.facts.gpu_name;
  options.changes = flags.job.changes;
  options.change_limit =
      recipe::RulesWith(options.changes, {job.most_switches, job.facts.most_changes_per_s})
          .known_limit();
  // Empty if a limit replaces it.
  job.facts.most_changes_per_s = options.change_limit.changes_per_s;
  options.job.profile = flags.output.empty()
                            ? "planned.csv"
                            : (std::filesystem::path(flags.output) / "planned.csv").string();
  options.target = target;
  options.budget = flags.budget;
  options.budget.slowdown = flags.slowdown_percent / 100;
  options.budget.least_gain = flags.least_gain_percent / 100;
  options.assignment_delay_s = flags.assignment_delay_s;
  options.steps_followed = flags.steps_followed;
  options.leaves_plan_in_force = !flags.restores;
  options.timeout = ToNanoseconds(flags.timeout_s);
  options.should_end = should_end;
  options.say = [&streams](std::string_view text) { streams.Say(text); };
  if (flags.keeps_pace) {
    PERSEUS_ASSIGN_OR_RETURN(const auto kept, tuner::KeepPace(options, *clock));
    return streams.Print(flags.as_json ? FormatJson(kept) : FormatText(kept));
  }
  const char* blocking_power = options.job.model.blocking_power_w > 0 ? "given" : "measured";
  const char* p2p = options.measures_p2p ? "measured" : "given";
  PERSEUS_ASSIGN_OR_RETURN(const auto result, tuner::Tune(options, *clock));
  const auto memory = MemoryOfRanks(streams, flags.directory);
  if (!flags.output.empty()) PERSEUS_RETURN_IF_ERROR(WriteResults(result, memory, results));
  return streams.Print(flags.as_json ? FormatJson(result, job.facts)
                                     : FormatText(result, blocking_power, p2p) +
                                           FormatMemory(memory) + FormatFacts(result, job.facts));
}

}  // namespace

Verb AddTuneVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<TuneFlags>(program, "tune", kTuneAbout, kTuneExamples);
  AddJobDirectory(add, flags->directory)->required();
  CLI::Option* output =
      add("-o,--output", flags->output, "DIR", "Directory for profile.csv, plan.json and others");
  const FlagAdder budget(*verb, "Budget");
  budget("--budget-steps", flags->budget.steps, "N", "Steps to measure in (default: 60)",
         WholeNumberIn({1, 1'000'000}));
  budget("--budget-slowdown", flags->slowdown_percent, "PCT",
         "The largest mean slowdown of these steps (default: 25)", SlowdownUpTo(1'000));
  budget("--frequencies", flags->budget.frequencies, "N",
         "The most clocks of each instruction (default: 10)", WholeNumberIn({2, 1'000}));
  budget("--steps-per-round", flags->budget.steps_per_round, "N",
         "Steps at the same clocks (default: 3)", WholeNumberIn({1, 1'000}));
  budget("--least-gain", flags->least_gain_percent, "PCT",
         "End when further steps promise to save less of the energy than this (default: 0.02)",
         NumberIn({0, 100, "percent"}));
  budget("--follow-steps", flags->steps_followed, "N",
         "Steps in which each of two plans is measured at its own clocks (default: 12)",
         WholeNumberIn({2, 1'000'000}));
  add("--assignment-delay", flags->assignment_delay_s, "SECONDS",
      "Time until every rank has read an assignment (default: 1)",
      NumberIn({0.1, 600, "in seconds"}));
  add("--timeout", flags->timeout_s, "SECONDS", "How long a rank may be silent (default: 60)",
      NumberIn({0.1, 86'400, "in seconds"}));
  add("--start-timeout", flags->start_timeout_s, "SECONDS",
      "How long to wait for the first steps, if no schedule is given (default: --timeout)",
      NumberIn({0.1, 10'000'000, "in seconds"}));
  verb->add_flag("--restore", flags->restores,
                 "Restore the clocks at the end, with no plan in force");
  verb->add_flag("--keep-pace", flags->keeps_pace,
                 "Only follow the slowest pipelines with the plans of an earlier tune, until the "
                 "training ends")
      ->excludes(output);
  verb->add_flag("--give-back", flags->gives_back,
                 "Only end the assignment of the plan of an earlier tune");
  verb->add_flag("--json", flags->as_json, "Print JSON instead of text");
  AddLimitFlags(*verb, flags->job.changes);
  AddTargetFlags(*verb, flags->targets, Targets::kOne);
  AddJobFlags(*verb, flags->job, JobComes::kWithoutProfile);
  flags->job.assumes_switch_cost = false;
  return {verb, [flags = flags](const Streams& streams) { return RunTune(streams, *flags); }};
}

}  // namespace perseus::cli

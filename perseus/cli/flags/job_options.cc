#include "perseus/cli/flags/job_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "perseus/base/wording.h"
#include "perseus/planning/job/plausibility.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::cli {
namespace {

constexpr const char* kGroup = "Job";

// Adds --switch-cost SECONDS[,JOULES].
void AddSwitchCostFlag(CLI::App& verb, job::JobSettings& flags) {
  const auto check = [](std::string& text) -> std::string {
    const std::size_t comma = text.find(',');
    std::string seconds = text.substr(0, comma);
    std::string problem = NumberIn(job::kStallRange)(seconds);
    if (!problem.empty() || comma == std::string::npos) return problem;
    std::string joules = text.substr(comma + 1);
    return NumberIn(job::kSwitchEnergyRange)(joules);
  };
  const auto store = [&flags](const std::string& text) {
    const std::size_t comma = text.find(',');
    schedule::SwitchCost cost{.stall = ToNanoseconds(std::stod(text)), .energy_j = 0};
    if (comma != std::string::npos) cost.energy_j = std::stod(text.substr(comma + 1));
    flags.switch_cost = cost;
  };
  verb.add_option_function<std::string>(
          "--switch-cost", store,
          "What each clock change costs a GPU: it stalls so long, and uses so much energy on top")
      ->type_name("SECONDS[,JOULES]")
      ->group(kGroup)
      ->check(CLI::Validator(check, ""));
}

// Adds the memory flags for a search for a schedule.
void AddMemoryFlags(CLI::App& verb, job::MemorySettings& flags) {
  const FlagAdder add(verb, kGroup);
  add("--activation-memory", flags.activation_mib, "MIB[,MIB...]",
      "What the activations of one microbatch take on a GPU, for all stages or for each (default: "
      "the profile's column activation_bytes)",
      NumberIn(job::kActivationRange))
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--kept-memory", flags.kept_mib, "MIB[,MIB...]",
      "What stays of these activations until a recompute, for all stages or for each: the search "
      "then also chooses what is recomputed",
      NumberIn(job::kKeptRange))
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--memory", flags.gpu_gib, "GIB",
      "The memory of a GPU: a schedule that is searched for has to fit",
      NumberIn(job::kGpuMemoryRange));
  add("--model-memory", flags.model_gib, "GIB[,GIB...]",
      "What weights, gradients and optimizer states take of it, for all pp_ranks or for each "
      "(default: the profile's column model_bytes, or 0)",
      NumberIn(job::kModelMemoryRange))
      ->delimiter(',')
      ->allow_extra_args(false);
}

enum class MaySearch { kNo, kYes };
std::vector<std::string> SchedulesToPlan(MaySearch search) {
  const auto generated = schedule::ScheduleNames();
  std::vector<std::string> names(generated.begin(), generated.end());
  if (search == MaySearch::kYes) names.emplace_back(job::kAutoSchedule);
  return names;
}

}  // namespace

void AddJobFlags(CLI::App& verb, job::JobSettings& flags, JobComes comes) {
  const bool has_profile = comes == JobComes::kWithProfile;
  const bool may_search = comes != JobComes::kWithoutProfile;
  const auto count = WholeNumberIn(job::kCountRange);
  const FlagAdder add(verb, kGroup);
  add("--job", flags.job_file, "FILE", "Job file (TOML); flags override it", InputFile());
  CLI::Option* schedule =
      add("--schedule", flags.schedule, "NAME",
          may_search ? "The order of instructions on each pp_rank; auto searches for the one whose "
                       "plan needs the least energy (docs/schedules.md)"
                     : "The order of instructions on each pp_rank",
          OneOf(SchedulesToPlan(may_search ? MaySearch::kYes : MaySearch::kNo)));
  if (may_search) {
    add("--max-in-flight", flags.max_in_flight, "N[,N...]",
        "Of --schedule auto: the microbatches whose activations a pp_rank may hold, one number for "
        "all or one for each (default: as many as with 1f1b)",
        count)
        ->delimiter(',')
        ->allow_extra_args(false);
    AddMemoryFlags(verb, flags.memory);
    verb.add_flag("--fold", flags.fold,
                  "Of --schedule auto: the stages are in a V on the pp_ranks, as with zb-v and "
                  "dualpipe-v")
        ->group(kGroup);
  }
  CLI::Option* schedule_file =
      add("--schedule-file", flags.schedule_file, "FILE",
          "The schedule as a CSV that torch.distributed.pipelining dumped", InputFile());
  schedule_file->excludes(schedule);
  add("--graph", flags.graph, "FILE",
      "Instructions and dependencies in JSON, for work that is not a pipeline", InputFile())
      ->excludes(schedule)
      ->excludes(schedule_file);
  add("--pp-ranks", flags.pp_ranks, "N",
      has_profile ? "Positions along the pipeline (default: the number that the profile has)"
                  : "Positions along the pipeline (required, unless the job file or a schedule "
                    "file has it)",
      count);
  add("--microbatches", flags.microbatches, "N", "Microbatches of one iteration of one pipeline",
      count);
  add("--chunks", flags.chunks, "N", "Model chunks on each pp_rank (interleaved schedules)", count);
  add("--pipelines", flags.pipelines, "N",
      has_profile ? "Data-parallel pipelines; for totals only" : "Data-parallel pipelines", count);
  AddModelFlags(verb, flags);
}

void AddSchedulesFlag(CLI::App& verb, std::vector<std::string>& schedules) {
  verb.remove_option(verb.get_option("--schedule"));
  CLI::Option* schedule = FlagAdder(verb, kGroup)
                              .Repeatable("--schedule", schedules, "NAME",
                                          "The order of instructions on each pp_rank; may be "
                                          "repeated, or a list, to compare schedules",
                                          OneOf(SchedulesToPlan(MaySearch::kYes)))
                              ->delimiter(',');
  for (const char* other : {"--schedule-file", "--graph"}) {
    schedule->excludes(verb.get_option(other));
  }
}

void AddProfile(const FlagAdder& add, job::JobSettings& flags) {
  add("profile", flags.profile, "PROFILE.csv", "Measured time and energy of each stage (CSV)",
      InputFile());
}

void AddModelFlags(CLI::App& verb, job::JobSettings& flags) {
  const FlagAdder add(verb, kGroup);
  const auto seconds = NumberIn(job::kSecondsRange);
  add("--gpus-per-stage", flags.gpus_per_stage, "N", "GPUs that share a stage (tensor parallel)",
      WholeNumberIn(job::kCountRange));
  add("--facts", flags.facts, "FILE",
      "Hardware facts (TOML) of the GPUs: they give the blocking power and the switch latency, "
      "unless a flag or the job file does, and the greatest rate of clock changes of plans",
      InputFile());
  add("--blocking-power", flags.blocking_power_w, "W", "Power of one GPU while it waits",
      NumberIn(job::kBlockingPowerRange));
  add("--switch-latency", flags.switch_latency_ms, "MS",
      "Time from the request of a clock until the GPU has it", NumberIn(job::kSwitchLatencyRange));
  AddSwitchCostFlag(verb, flags);
  add("--p2p", flags.p2p_s, "S", "Transfer time from one pp_rank to the next", seconds);
  add("--load", flags.load_s, "S", "Time to load a microbatch, on the first stage", seconds);
  add("--all-reduce", flags.all_reduce_s, "S", "Time to reduce gradients, on each pp_rank",
      seconds);
  add("--optimizer", flags.optimizer_s, "S", "Time of the optimizer step, on each pp_rank",
      seconds);
}

Result<job::LoadedJob> LoadJobToPlan(const Streams& streams, const job::JobSettings& flags,
                                     const schedule_search::SearchEffort& search) {
  PERSEUS_ASSIGN_OR_RETURN(auto job, job::LoadJob(flags, search));
  PERSEUS_RETURN_IF_ERROR(WarnIfImplausible(streams, job));
  return job;
}

std::string WithFlagNames(const CLI::App& verb, std::string_view message) {
  constexpr std::pair<std::string_view, const char*> kOthers[] = {
      {"activation_mib", "--activation-memory"},
      {"all_reduce_s", "--all-reduce"},
      {"blocking_power_w", "--blocking-power"},
      {"gpu_gib", "--memory"},
      {"kept_mib", "--kept-memory"},
      {"load_s", "--load"},
      {"model_gib", "--model-memory"},
      {"optimizer_s", "--optimizer"},
      {"p2p_s", "--p2p"}};
  const CLI::Option* job_file = verb.get_option_no_throw("--job");
  const bool has_job_file = job_file != nullptr && !job_file->empty();
  return RenameKeys(message, [&](std::string_view key, std::string_view value) -> std::string {
    std::string flag = fmt::format("--{}", key);
    std::ranges::replace(flag, '_', '-');
    for (const auto& [other, its_flag] : kOthers) {
      if (key == other) flag = its_flag;
    }
    const CLI::Option* option = verb.get_option_no_throw(flag);
    if (option == nullptr) return "";
    if (option->empty() && has_job_file && option->get_group() == kGroup) return "";
    if (value.empty()) return flag;
    const bool is_quoted = value.size() >= 2 && value.starts_with('"');
    return fmt::format("{} {}", flag, is_quoted ? value.substr(1, value.size() - 2) : value);
  });
}

Result<void> WarnIfImplausible(const Streams& streams, const job::LoadedJob& job) {
  PERSEUS_ASSIGN_OR_RETURN(const auto warnings, job::CheckPlausible(job));
  for (const std::string& warning : warnings) streams.Warn(warning);
  return {};
}

}  // namespace perseus::cli

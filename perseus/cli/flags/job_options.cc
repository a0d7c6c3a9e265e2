#include "perseus/cli/flags/job_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/wording.h"
#include "perseus/cli/flags/flag_checks.h"
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
    const NumberRange& stall = job::kStallRange;
    const NumberRange& energy = job::kSwitchEnergyRange;
    std::string problem = NumberIn({stall.least, stall.most}, std::string(stall.unit))(seconds);
    if (!problem.empty() || comma == std::string::npos) return problem;
    std::string joules = text.substr(comma + 1);
    return NumberIn({energy.least, energy.most}, std::string(energy.unit))(joules);
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

// Of a schedule that is searched for.
void AddMemoryFlags(CLI::App& verb, job::MemorySettings& flags) {
  const auto number = [](const NumberRange& range) {
    return NumberIn({range.least, range.most}, std::string(range.unit));
  };
  verb.add_option("--activation-memory", flags.activation_mib,
                  "What the activations of one microbatch take on a GPU, for all stages or for "
                  "each (default: the profile's column activation_bytes)")
      ->type_name("MIB[,MIB...]")
      ->group(kGroup)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(number(job::kActivationRange));
  verb.add_option("--kept-memory", flags.kept_mib,
                  "What stays of these activations until a recompute, for all stages or for each: "
                  "the search then also chooses what is recomputed")
      ->type_name("MIB[,MIB...]")
      ->group(kGroup)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(number(job::kKeptRange));
  verb.add_option("--memory", flags.gpu_gib,
                  "The memory of a GPU: a schedule that is searched for has to fit")
      ->type_name("GIB")
      ->group(kGroup)
      ->check(number(job::kGpuMemoryRange));
  verb.add_option("--model-memory", flags.model_gib,
                  "What weights, gradients and optimizer states take of it, for all pp_ranks or "
                  "for each (default: the profile's column model_bytes, or 0)")
      ->type_name("GIB[,GIB...]")
      ->group(kGroup)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(number(job::kModelMemoryRange));
}

}  // namespace

void AddJobFlags(CLI::App& verb, job::JobSettings& flags, JobComes comes) {
  const bool has_profile = comes == JobComes::kWithProfile;
  const bool may_search = comes != JobComes::kWithoutProfile;
  const auto count = WholeNumberIn({job::kCountRange.least, job::kCountRange.most});
  auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return verb.add_option(name, value, help)->type_name(type)->group(kGroup);
  };
  add("--job", flags.job_file, "FILE", "Job file (TOML); the flags below override it")
      ->check(InputFile());
  CLI::Option* schedule =
      add("--schedule", flags.schedule, "NAME",
          may_search ? "The order of instructions on each pp_rank; auto searches for the one whose "
                       "plan needs the least energy (docs/schedules.md)"
                     : "The order of instructions on each pp_rank");
  const auto generated = schedule::ScheduleNames();
  std::vector<std::string> names(generated.begin(), generated.end());
  if (may_search) {
    names.emplace_back(job::kAutoSchedule);
    add("--max-in-flight", flags.max_in_flight, "N[,N...]",
        "Of --schedule auto: the microbatches whose activations a pp_rank may hold, one number for "
        "all or one for each (default: as many as with 1f1b)")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(count);
    AddMemoryFlags(verb, flags.memory);
    verb.add_flag("--fold", flags.fold,
                  "Of --schedule auto: the stages are in a V on the pp_ranks, as with zb-v and "
                  "dualpipe-v")
        ->group(kGroup);
  }
  schedule->transform(OneOf(names));
  CLI::Option* schedule_file =
      add("--schedule-file", flags.schedule_file, "FILE",
          "The schedule as a CSV that torch.distributed.pipelining dumped");
  schedule_file->check(InputFile())->excludes(schedule);
  add("--graph", flags.graph, "FILE",
      "Instructions and dependencies in JSON, for work that is not a pipeline")
      ->check(InputFile())
      ->excludes(schedule)
      ->excludes(schedule_file);
  add("--pp-ranks", flags.pp_ranks, "N",
      has_profile ? "Positions along the pipeline (default: the number that the profile has)"
                  : "Positions along the pipeline (required, unless the job file or a schedule "
                    "file has it)")
      ->check(count);
  add("--microbatches", flags.microbatches, "N", "Microbatches of one iteration of one pipeline")
      ->check(count);
  add("--chunks", flags.chunks, "N", "Model chunks on each pp_rank (interleaved schedules)")
      ->check(count);
  add("--pipelines", flags.pipelines, "N",
      has_profile ? "Data-parallel pipelines; for totals only" : "Data-parallel pipelines")
      ->check(count);
  AddModelFlags(verb, flags);
}

void AddModelFlags(CLI::App& verb, job::JobSettings& flags) {
  const auto number = [](const NumberRange& range) {
    return NumberIn({range.least, range.most}, std::string(range.unit));
  };
  const auto seconds = number(job::kSecondsRange);
  auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return verb.add_option(name, value, help)->type_name(type)->group("Job");
  };
  add("--gpus-per-stage", flags.gpus_per_stage, "N", "GPUs that share a stage (tensor parallel)")
      ->check(WholeNumberIn({job::kCountRange.least, job::kCountRange.most}));
  add("--facts", flags.facts, "FILE",
      "Hardware facts (TOML) of the GPUs: they give the blocking power and the switch latency, "
      "unless a flag or the job file does, and the greatest rate of clock changes of plans")
      ->check(InputFile());
  add("--blocking-power", flags.blocking_power_w, "W", "Power of one GPU while it waits")
      ->check(number(job::kBlockingPowerRange));
  add("--switch-latency", flags.switch_latency_ms, "MS",
      "Time from the request of a clock until the GPU has it")
      ->check(number(job::kSwitchLatencyRange));
  AddSwitchCostFlag(verb, flags);
  add("--p2p", flags.p2p_s, "S", "Transfer time from one pp_rank to the next")->check(seconds);
  add("--load", flags.load_s, "S", "Time to load a microbatch, on the first stage")->check(seconds);
  add("--all-reduce", flags.all_reduce_s, "S", "Time to reduce gradients, on each pp_rank")
      ->check(seconds);
  add("--optimizer", flags.optimizer_s, "S", "Time of the optimizer step, on each pp_rank")
      ->check(seconds);
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
  for (const std::string& warning : warnings) {
    std::fputs(fmt::format("perseus: warning: {}\n", warning).c_str(), streams.err);
  }
  return {};
}

}  // namespace perseus::cli

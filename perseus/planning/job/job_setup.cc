#include "perseus/planning/job/job_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <system_error>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/units.h"
#include "perseus/planning/hardware_facts/assumed.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"
#include "perseus/planning/job/job.h"
#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/planning/profile/profile.h"

namespace perseus::job {
namespace {

std::string ScheduleList() {
  std::string list;
  for (std::string_view name : schedule::ScheduleNames()) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  }
  return list;
}

// Reads the job file, and makes its paths relative to the working directory. Without a file, the
// job is empty.
Result<Job> ReadJobFile(const std::string& path) {
  if (path.empty()) return Job();
  PERSEUS_ASSIGN_OR_RETURN(auto text, ReadFile(path));
  auto job = ParseJob(text, path);
  if (!job) return job;
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  for (std::string* file :
       {&job->profile_path, &job->schedule_path, &job->graph_path, &job->facts_path}) {
    if (!file->empty()) *file = (directory / *file).string();
  }
  return job;
}

// If the power of a waiting GPU is given, all pp_ranks wait at this power.
void UseOnePower(const std::optional<double>& given_w, schedule::PipelineModel& model) {
  if (!given_w) return;
  model.blocking_power_w = *given_w;
  model.has_power_of_stages = false;
}

// `described` is a Job or a PlannedJob.
template <typename Described>
void OverrideModel(Described& described, const JobSettings& settings) {
  schedule::PipelineModel& model = described.model;
  auto override_time = [](Nanoseconds& time, const std::optional<double>& seconds) {
    if (seconds) time = ToNanoseconds(*seconds);
  };
  model.gpus_per_stage = settings.gpus_per_stage.value_or(model.gpus_per_stage);
  UseOnePower(settings.blocking_power_w, model);
  override_time(model.fixed.p2p, settings.p2p_s);
  override_time(model.fixed.load.time, settings.load_s);
  override_time(model.fixed.all_reduce.time, settings.all_reduce_s);
  override_time(model.fixed.optimizer.time, settings.optimizer_s);
  if (settings.switch_latency_ms) {
    described.switch_latency = FromMilliseconds(*settings.switch_latency_ms);
  }
  described.switch_cost = settings.switch_cost.value_or(described.switch_cost);
}

// The memory is given either in microbatches or in bytes. So a setting of one kind also replaces
// the other kind in the file.
void OverrideMemory(Job& job, const JobSettings& settings) {
  if (!settings.max_in_flight.empty()) {
    job.max_in_flight = settings.max_in_flight;
    job.memory.gpu_gib.reset();
    job.memory.model_gib.clear();
  }
  if (settings.memory.gpu_gib) {
    job.memory.gpu_gib = settings.memory.gpu_gib;
    job.max_in_flight = settings.max_in_flight;
  }
  if (!settings.memory.activation_mib.empty())
    job.memory.activation_mib = settings.memory.activation_mib;
  if (!settings.memory.kept_mib.empty()) job.memory.kept_mib = settings.memory.kept_mib;
  if (!settings.memory.model_gib.empty()) job.memory.model_gib = settings.memory.model_gib;
}

// The caller of the library may give any number. A negative power would give wrong energies without
// an error.
Result<void> CheckRanges(const JobSettings& settings) {
  const auto as_number = [](const std::optional<int>& count) {
    return count ? std::optional<double>(*count) : std::nullopt;
  };
  const struct {
    std::string_view key;
    std::optional<double> value;
    const NumberRange& range;
  } settings_with_range[] = {
      {"pp_ranks", as_number(settings.pp_ranks), kCountRange},
      {"microbatches", as_number(settings.microbatches), kCountRange},
      {"chunks", as_number(settings.chunks), kCountRange},
      {"pipelines", as_number(settings.pipelines), kCountRange},
      {"gpus_per_stage", as_number(settings.gpus_per_stage), kCountRange},
      {"blocking_power_w", settings.blocking_power_w, kBlockingPowerRange},
      {"switch_latency_ms", settings.switch_latency_ms, kSwitchLatencyRange},
      {"p2p_s", settings.p2p_s, kSecondsRange},
      {"load_s", settings.load_s, kSecondsRange},
      {"all_reduce_s", settings.all_reduce_s, kSecondsRange},
      {"optimizer_s", settings.optimizer_s, kSecondsRange},
  };
  for (const auto& [key, value, range] : settings_with_range) {
    if (!value || range.Holds(*value)) continue;
    return Fail("{} is {} (give `{}` from {} to {}, in {})", key, *value, key, range.least,
                range.most, range.unit);
  }
  return {};
}

void Override(Job& job, const JobSettings& settings) {
  if (!settings.profile.empty()) job.profile_path = settings.profile;
  // Only one of these three describes the work. So if a setting gives one of them, it replaces any
  // of them in the file.
  if (!settings.schedule.empty() || !settings.schedule_file.empty() || !settings.graph.empty()) {
    job.schedule.name = settings.schedule;
    job.schedule_path = settings.schedule_file;
    job.graph_path = settings.graph;
  }
  job.schedule.pp_ranks = settings.pp_ranks.value_or(job.schedule.pp_ranks);
  job.schedule.microbatches = settings.microbatches.value_or(job.schedule.microbatches);
  job.schedule.chunks = settings.chunks.value_or(job.schedule.chunks);
  if (!settings.facts.empty()) job.facts_path = settings.facts;
  OverrideMemory(job, settings);
  job.pipelines = settings.pipelines.value_or(job.pipelines);
  OverrideModel(job, settings);
}

// Returns all values that hardware facts have for a job. Without a path, the result has no values.
Result<UsedFacts> ReadFacts(const std::string& path) {
  if (path.empty()) return UsedFacts();
  PERSEUS_ASSIGN_OR_RETURN(const auto facts, hardware_facts::Read(path));
  UsedFacts values{path,
                   facts.gpu_name,
                   {},
                   hardware_facts::SwitchLatencyForPlanning(facts),
                   hardware_facts::SwitchStallForPlanning(facts),
                   hardware_facts::MostChangesOfGpu(facts)};
  if (const auto power = hardware_facts::BlockingPower(facts)) {
    values.blocking_power_w = power->value;
  }
  return values;
}

// Gives the job the latency and the cost of a clock change: those of the hardware facts, or else
// the assumed ones. A setting or the job file replaces them. Nothing is assumed for a clock for
// each instruction, because no GPU follows such plans, and for a general graph, because its
// resources need not be GPUs.
void UseSwitchFacts(const JobSettings& settings, UsedFacts& facts, Job& job) {
  const bool assumes =
      settings.changes.limit != recipe::ChangeRules::Limit::kNone && job.graph_path.empty();
  if (settings.switch_latency_ms || job.Has("switch_latency_ms")) {
    facts.switch_latency.reset();
  } else if (!facts.switch_latency && assumes) {
    facts.switch_latency = hardware_facts::kAssumedSwitchLatency;
    facts.assumes_latency = true;
  }
  if (settings.switch_cost || job.Has("switch_stall_s") || job.Has("switch_energy_j")) {
    facts.switch_stall.reset();
  } else if (!facts.switch_stall && assumes && settings.assumes_switch_cost) {
    facts.switch_stall = hardware_facts::kAssumedSwitchStall;
    facts.assumes_stall = true;
  }
  job.switch_latency = facts.switch_latency.value_or(job.switch_latency);
  job.switch_cost.stall = facts.switch_stall.value_or(job.switch_cost.stall);
}

// A job that combines the settings, the job file and the hardware facts.
struct DescribedJob {
  Job job;
  std::optional<double> blocking_power_w;  // nullopt if not given.
  UsedFacts facts;
};

Result<DescribedJob> Describe(const JobSettings& settings) {
  PERSEUS_RETURN_IF_ERROR(CheckRanges(settings));
  PERSEUS_ASSIGN_OR_RETURN(auto job, ReadJobFile(settings.job_file));
  Override(job, settings);
  PERSEUS_ASSIGN_OR_RETURN(auto facts, ReadFacts(job.facts_path));
  UseSwitchFacts(settings, facts, job);
  // Override has already written the setting into the model.
  const bool has_power = settings.blocking_power_w || job.Has("blocking_power_w");
  if (has_power || !job.graph_path.empty()) facts.blocking_power_w.reset();
  DescribedJob described{std::move(job), facts.blocking_power_w, std::move(facts)};
  if (has_power) {
    described.blocking_power_w = described.job.model.blocking_power_w;
  } else if (described.job.graph_path.empty()) {
    described.job.model.blocking_power_w = described.blocking_power_w.value_or(0);
  }
  return described;
}

// `asked` are the rules of the settings, and `most_switches` is the limit of the job file.
Result<LoadedJob> WithFacts(Result<LoadedJob> job, const UsedFacts& facts,
                            const recipe::ChangeRules& asked = {},
                            const std::optional<int>& most_switches = {}) {
  if (!job) return job;
  job->facts = facts;
  job->changes =
      recipe::RulesFor(asked, {most_switches, facts.most_changes_per_s}, job->planned, job->graph);
  return job;
}

Result<profile::Profile> LoadProfile(const std::string& path, const JobSettings& settings) {
  if (settings.profile_text) return profile::ParseProfile(*settings.profile_text, path);
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(path));
  return profile::ParseProfile(text, path);
}

// Checks that the sizes from the settings and the job file match the schedule file.
Result<void> CheckSizes(const Job& job, const JobSettings& settings,
                        const schedule::Schedule& schedule) {
  struct Size {
    std::string_view name;
    bool is_given;
    int given;
    int actual;
  };
  const Size sizes[] = {
      {"pp_ranks", job.schedule.pp_ranks != 0, job.schedule.pp_ranks,
       static_cast<int>(schedule.pp_ranks.size())},
      {"microbatches", job.schedule.microbatches != 0, job.schedule.microbatches,
       schedule.microbatches},
      {"chunks", settings.chunks || job.Has("chunks"), job.schedule.chunks,
       1 + *std::max_element(schedule.chunk_of_stage.begin(), schedule.chunk_of_stage.end())}};
  for (const Size& size : sizes) {
    if (!size.is_given || size.given == size.actual) continue;
    return Fail(InFile(job.schedule_path),
                "has {} {}, not {} (remove {} from the description of the job)", size.actual,
                size.name, size.given, size.name);
  }
  return {};
}

Result<void> CheckMicrobatches(const Job& job) {
  if (job.schedule.microbatches != 0) return {};
  return Fail("the number of microbatches is missing (add `microbatches = 96`, for example)");
}

// `pp_ranks` is the number of pp_ranks if neither settings nor file give it.
Result<schedule::Schedule> LoadSchedule(const Job& job, const JobSettings& settings, int pp_ranks) {
  if (!job.schedule_path.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(auto text, ReadFile(job.schedule_path));
    auto schedule = schedule::ParseSchedule(text, job.schedule_path);
    if (!schedule) return schedule;
    PERSEUS_RETURN_IF_ERROR(CheckSizes(job, settings, *schedule));
    return schedule;
  }
  if (job.schedule.name.empty()) {
    return Fail("the schedule is missing (add `schedule` with one of {}; or add `schedule_file`)",
                ScheduleList());
  }
  PERSEUS_RETURN_IF_ERROR(CheckMicrobatches(job));
  schedule::ScheduleSpec spec = job.schedule;
  if (spec.pp_ranks == 0) spec.pp_ranks = pp_ranks;
  return schedule::GenerateSchedule(spec);
}

Result<LoadedJob> LayOut(plan_file::PlannedJob planned, const profile::Profile& profile) {
  PERSEUS_ASSIGN_OR_RETURN(
      auto graph, schedule::BuildInstructionGraph(planned.schedule, profile, planned.model));
  LoadedJob job{.planned = std::move(planned), .graph = std::move(graph), .model = {}};
  job.model = plan::ModelOf(job.planned);
  job.noise = profile.noise();
  job.profile_doubt = profile.doubt();
  job.activations = ActivationsOf(profile, job.planned.schedule);
  return job;
}

// `planned.profile` is the file of the graph. `blocking_power_w`, if given, replaces the blocking
// power of the file.
Result<LoadedJob> LayOutGraph(plan_file::PlannedJob planned,
                              const std::optional<double>& blocking_power_w) {
  PERSEUS_ASSIGN_OR_RETURN(auto text, ReadFile(planned.profile));
  PERSEUS_ASSIGN_OR_RETURN(
      auto file, schedule::ParseInstructionGraph(text, planned.profile, blocking_power_w));
  planned.model.gpus_per_stage = 1;
  planned.model.blocking_power_w = file.blocking_power_w;
  LoadedJob job{.planned = std::move(planned), .graph = std::move(file.graph), .model = {}};
  job.model = plan::ModelOf(job.planned);
  return job;
}

plan_file::PlannedJob Planned(const Job& job) {
  return {.profile = job.profile_path,
          .schedule = {},
          .pipelines = job.pipelines,
          .model = job.model,
          .switch_latency = job.switch_latency,
          .switch_cost = job.switch_cost};
}

// Checks that a pipeline has a profile and a blocking power.
Result<void> CheckComplete(const DescribedJob& described) {
  if (described.job.profile_path.empty()) {
    return Fail(
        "the profile is missing (give the path of a CSV, write profile = \"...\" in the job file, "
        "or make one with perseus synth)");
  }
  if (described.job.profile_path.ends_with(".toml")) {
    return Fail("{0}: is a job file, not a profile (give it as `job = {0}`)",
                described.job.profile_path);
  }
  return {};
}

// Makes the model use the blocking powers of the profile: one for each stage.
void UsePowerOfStages(const profile::Profile& profile, schedule::PipelineModel& model) {
  model.has_power_of_stages = true;
  model.blocking_power_w = profile.mean_blocking_power_w().value_or(model.blocking_power_w);
}

Result<void> SetBlockingPower(const DescribedJob& described, const profile::Profile& profile,
                              schedule::PipelineModel& model) {
  if (described.blocking_power_w) {
    UseOnePower(described.blocking_power_w, model);
    return {};
  }
  if (profile.mean_blocking_power_w()) {
    UsePowerOfStages(profile, model);
    return {};
  }
  return Fail(
      "the blocking power is missing (add `blocking_power_w`, or `facts` with a measured one: the "
      "power that one GPU draws while it waits, in watts; with 0, waiting uses no energy)");
}

Result<UnscheduledJob> Unscheduled(const DescribedJob& described, const JobSettings& settings) {
  const Job& job = described.job;
  PERSEUS_RETURN_IF_ERROR(CheckComplete(described));
  PERSEUS_RETURN_IF_ERROR(CheckMicrobatches(job));
  PERSEUS_ASSIGN_OR_RETURN(auto profile, LoadProfile(job.profile_path, settings));
  const auto placement = settings.fold || job.is_folded ? schedule_search::Placement::kV
                                                        : schedule_search::Placement::kLoop;
  PERSEUS_ASSIGN_OR_RETURN(auto memory, MemoryOf(job.memory, profile, profile.memory(), placement));
  if (job.schedule.pp_ranks != 0 && job.schedule.pp_ranks != profile.pp_ranks()) {
    return Fail("{} has {} stages, not {} (remove `pp_ranks`, or profile again)", profile.name(),
                profile.pp_ranks(), job.schedule.pp_ranks);
  }
  if ((settings.chunks || job.Has("chunks")) && job.schedule.chunks != profile.chunks()) {
    return Fail("{} has {} chunks for each stage, not {} (remove `chunks`, or profile again)",
                profile.name(), profile.chunks(), job.schedule.chunks);
  }
  UnscheduledJob unscheduled{.planned = Planned(job),
                             .profile = std::move(profile),
                             .model = {},
                             .microbatches = job.schedule.microbatches,
                             .facts = described.facts,
                             .most_switches = job.most_switches,
                             .max_in_flight = job.max_in_flight,
                             .memory = std::move(memory),
                             .placement = placement,
                             .changes = settings.changes};
  PERSEUS_RETURN_IF_ERROR(
      SetBlockingPower(described, unscheduled.profile, unscheduled.planned.model));
  unscheduled.model = plan::ModelOf(unscheduled.planned);
  return unscheduled;
}

// Searches for the schedule.
Result<LoadedJob> LayOutAuto(UnscheduledJob job, const schedule_search::SearchEffort& search) {
  PERSEUS_ASSIGN_OR_RETURN(
      auto found, FindAutoSchedule(job.search_job(), job.max_in_flight, job.memory, search));
  job.planned.schedule = found.found.candidate.schedule;
  auto loaded = WithFacts(LayOut(std::move(job.planned), job.profile), job.facts, job.changes,
                          job.most_switches);
  if (!loaded) return loaded;
  if (!job.memory.bytes.activations.empty()) loaded->activations = job.memory.bytes.activations;
  found.profile = std::move(job.profile);
  loaded->auto_schedule = std::move(found);
  return loaded;
}

using Given = std::pair<std::string_view, bool>;  // A key, and whether the settings have it.

// Refuses the first key that is given, because it does not apply to `what`.
Result<void> RefuseGiven(std::initializer_list<Given> keys, std::string_view what) {
  for (const auto& [key, is_given] : keys) {
    if (is_given) return Fail("`{}` does not apply to {} (remove it)", key, what);
  }
  return {};
}

// Refuses settings and keys that describe a pipeline, because a general graph is not one.
Result<void> RefuseWithGraph(const JobSettings& settings, const Job& job) {
  constexpr std::string_view kGraph = "a general graph, whose file describes all of it";
  PERSEUS_RETURN_IF_ERROR(RefuseGiven({{"profile", !settings.profile.empty()},
                                       {"pp_ranks", settings.pp_ranks.has_value()},
                                       {"microbatches", settings.microbatches.has_value()},
                                       {"chunks", settings.chunks.has_value()},
                                       {"gpus_per_stage", settings.gpus_per_stage.has_value()},
                                       {"p2p_s", settings.p2p_s.has_value()},
                                       {"load_s", settings.load_s.has_value()},
                                       {"all_reduce_s", settings.all_reduce_s.has_value()},
                                       {"optimizer_s", settings.optimizer_s.has_value()}},
                                      kGraph));
  for (const std::string_view key :
       {"profile", "pp_ranks", "microbatches", "chunks", "gpus_per_stage", "fixed"}) {
    if (job.Has(key)) {
      return Fail(InFile(settings.job_file), "{} does not apply to {} (remove it)", key, kGraph);
    }
  }
  return {};
}

// Refuses the settings of a search for a schedule if no search is requested.
Result<void> RefuseSearchSettings(const JobSettings& settings) {
  if (settings.max_in_flight.empty() && settings.memory.IsEmpty() && !settings.fold) return {};
  return Fail("{} is for a schedule that is searched for (add `schedule = \"auto\"`)",
              settings.fold                    ? "`fold`"
              : settings.max_in_flight.empty() ? "the memory of GPUs"
                                               : "`max_in_flight`");
}

}  // namespace

std::string Describe(const UsedFacts& facts) {
  std::vector<std::string> given;
  std::vector<std::string> assumed;
  if (facts.blocking_power_w) {
    given.push_back(fmt::format("the blocking power ({:.4g} W)", *facts.blocking_power_w));
  }
  if (facts.switch_latency) {
    (facts.assumes_latency ? assumed : given)
        .push_back(
            fmt::format("the switch latency ({:.4g} ms)", ToMilliseconds(*facts.switch_latency)));
  }
  if (facts.switch_stall) {
    (facts.assumes_stall ? assumed : given)
        .push_back(fmt::format("the switch cost ({:.4g} ms)", ToMilliseconds(*facts.switch_stall)));
  }
  std::string text;
  if (!facts.path.empty()) {
    text = fmt::format("hardware facts: {} gives {}\n", facts.path,
                       given.empty() ? "no blocking power, switch latency or switch cost"
                                     : fmt::format("{}", fmt::join(given, ", ")));
  }
  if (!assumed.empty()) {
    text += fmt::format("assumed without facts: {}\n", fmt::join(assumed, ", "));
  }
  return text;
}

int LoadedJob::gpus() const {
  return static_cast<int>(graph.pp_rank_orders.size()) * planned.model.gpus_per_stage;
}

recipe::Wishes LoadedJob::wishes(const std::optional<plan::Target>& target) const {
  const plan::Target by_default = auto_schedule ? auto_schedule->default_target() : plan::Target();
  recipe::Wishes wishes{
      .targets = {target.value_or(by_default)}, .changes = changes, .noise = noise};
  wishes.targets.front().gpus = gpus();
  return wishes;
}

schedule_search::SearchJob UnscheduledJob::search_job() const {
  const recipe::ChangeRules rules =
      recipe::RulesWith(changes, {most_switches, facts.most_changes_per_s});
  return {.profile = profile,
          .model = planned.model,
          .execution = model,
          .pp_ranks = profile.pp_ranks(),
          .microbatches = microbatches,
          .changes = rules.known_limit(),
          .placement = placement};
}

Result<LoadedJob> LoadJob(const JobSettings& settings,
                          const schedule_search::SearchEffort& search) {
  PERSEUS_ASSIGN_OR_RETURN(const auto described, Describe(settings));
  const Job& job = described.job;
  if (job.schedule.name == kAutoSchedule && job.schedule_path.empty() && job.graph_path.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(auto unscheduled, Unscheduled(described, settings));
    return LayOutAuto(std::move(unscheduled), search);
  }
  PERSEUS_RETURN_IF_ERROR(RefuseSearchSettings(settings));
  plan_file::PlannedJob planned = Planned(job);
  if (!job.graph_path.empty()) {
    PERSEUS_RETURN_IF_ERROR(RefuseWithGraph(settings, job));
    planned.profile = job.graph_path;
    return WithFacts(LayOutGraph(std::move(planned), described.blocking_power_w), described.facts,
                     settings.changes, job.most_switches);
  }
  PERSEUS_RETURN_IF_ERROR(CheckComplete(described));
  PERSEUS_ASSIGN_OR_RETURN(const auto profile, LoadProfile(planned.profile, settings));
  PERSEUS_RETURN_IF_ERROR(SetBlockingPower(described, profile, planned.model));
  PERSEUS_ASSIGN_OR_RETURN(auto schedule, LoadSchedule(job, settings, profile.pp_ranks()));
  planned.schedule = std::move(schedule);
  return WithFacts(LayOut(std::move(planned), profile), described.facts, settings.changes,
                   job.most_switches);
}

Result<UnscheduledJob> LoadUnscheduledJob(const JobSettings& settings) {
  PERSEUS_ASSIGN_OR_RETURN(const auto described, Describe(settings));
  if (!settings.schedule_file.empty() || !settings.graph.empty() ||
      (!settings.schedule.empty() && settings.schedule != kAutoSchedule)) {
    return Fail(
        "the schedule is searched for (remove `schedule`, `schedule_file` and `graph`, which give "
        "one)");
  }
  return Unscheduled(described, settings);
}

Result<LoadedJob> LayOutReference(const UnscheduledJob& job) {
  PERSEUS_ASSIGN_OR_RETURN(
      auto reference,
      schedule_search::FindReference(job.search_job(), schedule_search::LimitOf(job.memory.bytes)));
  plan_file::PlannedJob planned = job.planned;
  planned.schedule = std::move(reference.schedule);
  return WithFacts(LayOut(std::move(planned), job.profile), job.facts, job.changes,
                   job.most_switches);
}

namespace {

Result<UnprofiledJob> SearchUnprofiled(const DescribedJob& described, const JobSettings& settings) {
  PERSEUS_ASSIGN_OR_RETURN(auto unscheduled, Unscheduled(described, settings));
  PERSEUS_ASSIGN_OR_RETURN(auto loaded, LayOutAuto(std::move(unscheduled), {}));
  return UnprofiledJob{std::move(loaded.planned), described.facts, described.job.most_switches,
                       std::move(loaded.auto_schedule)};
}

}  // namespace

Result<UnprofiledJob> LoadUnprofiledJob(const JobSettings& settings) {
  PERSEUS_ASSIGN_OR_RETURN(const auto described, Describe(settings));
  const Job& job = described.job;
  if (!job.graph_path.empty()) {
    return Fail("{} is a general graph, but a training job needs a schedule (add `schedule`)",
                job.graph_path);
  }
  if (job.schedule.name == kAutoSchedule && job.schedule_path.empty()) {
    if (!settings.profile.empty()) return SearchUnprofiled(described, settings);
    return Fail(
        "the schedule auto needs a profile, which this verb does not have yet (write a schedule "
        "with perseus schedule search PROFILE.csv -o DIR, and give it as `schedule_file`)");
  }
  PERSEUS_RETURN_IF_ERROR(RefuseSearchSettings(settings));
  int pp_ranks = job.schedule.pp_ranks;
  if (pp_ranks == 0 && !settings.profile.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(const auto profile, LoadProfile(settings.profile, settings));
    pp_ranks = profile.pp_ranks();
  }
  if (pp_ranks == 0 && job.schedule_path.empty()) {
    return Fail("the number of pp_ranks is missing (add `pp_ranks = 8`, for example)");
  }
  PERSEUS_ASSIGN_OR_RETURN(auto schedule, LoadSchedule(job, settings, pp_ranks));
  plan_file::PlannedJob planned = Planned(job);
  planned.schedule = std::move(schedule);
  return UnprofiledJob{std::move(planned), described.facts, job.most_switches};
}

Result<LoadedJob> LoadPlannedJob(const plan_file::PlanFile& plan, std::string_view plan_path,
                                 const JobSettings& settings) {
  const bool is_graph = plan.job.IsGeneralGraph();
  std::error_code error;
  if ((is_graph ? settings.graph : settings.profile).empty() && !settings.profile_text &&
      !std::filesystem::exists(plan.job.profile, error)) {
    return FailAs(ErrorKind::kFile, InFile(plan_path),
                  "its {} {} does not exist (give its path with `{}`)",
                  is_graph ? "graph" : "profile", plan.job.profile, is_graph ? "graph" : "profile");
  }
  plan_file::PlannedJob planned = plan.job;
  PERSEUS_RETURN_IF_ERROR(CheckRanges(settings));
  PERSEUS_ASSIGN_OR_RETURN(auto facts, ReadFacts(settings.facts));
  if (settings.switch_latency_ms) facts.switch_latency.reset();
  if (settings.switch_cost) facts.switch_stall.reset();
  if (settings.blocking_power_w || planned.IsGeneralGraph()) facts.blocking_power_w.reset();
  planned.switch_latency = facts.switch_latency.value_or(planned.switch_latency);
  if (facts.switch_stall) planned.switch_cost = {.stall = *facts.switch_stall, .energy_j = 0};
  UseOnePower(facts.blocking_power_w, planned.model);
  OverrideModel(planned, settings);
  if (planned.IsGeneralGraph()) {
    PERSEUS_RETURN_IF_ERROR(RefuseWithGraph(settings, Job()));
    if (!settings.graph.empty()) planned.profile = settings.graph;
    const double blocking_power_w = planned.model.blocking_power_w;
    return WithFacts(LayOutGraph(std::move(planned), blocking_power_w), facts);
  }
  if (!settings.graph.empty()) {
    return Fail("the plan is for a pipeline, not for a general graph (remove `graph`)");
  }
  if (!settings.profile.empty()) planned.profile = settings.profile;
  PERSEUS_ASSIGN_OR_RETURN(const auto profile, LoadProfile(planned.profile, settings));
  if (planned.model.has_power_of_stages) UsePowerOfStages(profile, planned.model);
  auto job = LayOut(std::move(planned), profile);
  if (!job) return Fail(job, InFile(plan_path));
  return WithFacts(std::move(job), facts);
}

}  // namespace perseus::job

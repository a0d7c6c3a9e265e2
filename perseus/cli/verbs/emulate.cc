// `perseus emulate` runs a whole job iteration by iteration, with events such as stragglers.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/flags/noise_flags.h"
#include "perseus/cli/flags/switch_flags.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/named_plans.h"
#include "perseus/cli/verbs/results.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/noise/noisy_execution.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/recipe/recipe.h"
#include "perseus/planning/report/trace.h"
#include "perseus/simulation/baselines/policy.h"
#include "perseus/simulation/emulator/emulation.h"
#include "perseus/simulation/emulator/event_file.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kEmulateAbout =
    "Emulate a whole job without a GPU: all its pipelines, iteration by iteration, with\n"
    "stragglers, power caps and plans that come and go (--events), noise, and switch latency.\n"
    "Prints the time, energy and power of the job, and those of the same job at maximum\n"
    "frequency. That job has the same stragglers, but ignores plans and power caps. An event at a\n"
    "time (from_s) occurs at the same time in both jobs, and so possibly in different iterations.";
constexpr const char* kEmulateExamples =
    "  perseus emulate profile.csv --schedule 1f1b --microbatches 96 \\\n"
    "      --blocking-power 83.64 --gpus-per-stage 8 --pipelines 16 \\\n"
    "      --iterations 1000 --events events.toml --follow 1 -o out\n"
    "  perseus emulate --job job.toml --plan out/plans/slowdown-5.json --noise 1";

// The names of the policies, in the order of AllPolicies. Perseus is the last one.
constexpr std::array<std::string_view, 6> kPolicies = {
    "allmax", "zeus-global", "zeus-per-stage", "envpipe", "perseus-published", "perseus"};

// Chooses the clocks of all pipelines by a policy: Perseus, or a published baseline. Keeps a
// reference to the planner. Not thread safe.
class Chooser {
 public:
  // `unit` is the unit of time of the policy perseus-published. `wishes` apply to the plans of
  // Perseus. Fails if the policy has no plan for this job.
  static Result<Chooser> Create(const plan::Planner& planner, const std::string& policy,
                                Nanoseconds unit, recipe::Wishes wishes) {
    const auto number = static_cast<std::size_t>(
        std::find(kPolicies.begin(), kPolicies.end(), policy) - kPolicies.begin());
    const auto policies = baselines::AllPolicies(unit, wishes);
    Chooser chooser(planner, std::move(wishes));
    chooser.name_ = policies[number]->name();
    chooser.is_ours_ = number + 1 == kPolicies.size();
    if (chooser.is_ours_) return chooser;
    PERSEUS_ASSIGN_OR_RETURN(chooser.offered_, policies[number]->Points(planner, {}));
    return chooser;
  }

  // Returns the plan without events. It has no slowdown, or the least slowdown of the policy.
  Result<std::vector<int>> NoSlowdown() {
    const Nanoseconds time = planner_->baseline().time;
    if (!is_ours_) return baselines::ChooseFor(time, offered_.points, *planner_).options;
    recipe::Progress silent;
    PERSEUS_ASSIGN_OR_RETURN(const auto plans, recipe::PlanJob(*planner_, wishes_, silent));
    const plan::Plan& plan = plans.Find(wishes_.targets.front())->plan;
    usual_ = plan.evaluation;
    return plan.options;
  }

  // Returns the plan while a straggler's iteration takes the time `straggler`.
  Result<std::vector<int>> Beside(Nanoseconds straggler) {
    if (!is_ours_) return baselines::ChooseFor(straggler, offered_.points, *planner_).options;
    if (!usual_) PERSEUS_RETURN_IF_ERROR(NoSlowdown());
    PERSEUS_ASSIGN_OR_RETURN(auto plan, recipe::PlanForStraggler(*planner_, wishes_.changes,
                                                                 *usual_, straggler, "straggler"));
    return std::move(plan.options);
  }

  // Returns for each cap the fastest plan with at most this mean power of all pipelines. If none
  // exists, it is the plan of least power. Perseus makes all plans together, because most of the
  // work is the same for all of them.
  Result<std::vector<std::vector<int>>> WithinPower(const std::vector<emulator::PowerCap>& caps,
                                                    int pipelines) {
    std::vector<std::vector<int>> options;
    if (caps.empty()) return options;
    if (!is_ours_) {
      for (const emulator::PowerCap& cap : caps) {
        options.push_back(OfferedWithin(cap.watts / pipelines).options);
      }
      return options;
    }
    recipe::Wishes wishes = wishes_;
    wishes.targets.clear();
    for (const emulator::PowerCap& cap : caps) {
      wishes.targets.push_back({.kind = plan::Target::Kind::kPowerCap,
                                .value = cap.watts / pipelines,
                                .or_nearest = true});
    }
    recipe::Progress silent;
    PERSEUS_ASSIGN_OR_RETURN(const auto plans, recipe::PlanJob(*planner_, wishes, silent));
    for (const plan::Target& target : wishes.targets) {
      options.push_back(plans.Find(target)->plan.options);
    }
    return options;
  }

  const std::string& name() const { return name_; }
  const std::string& note() const { return offered_.note; }

 private:
  Chooser(const plan::Planner& planner, recipe::Wishes wishes)
      : planner_(&planner), wishes_(std::move(wishes)) {}

  // Returns the first plan of a published baseline with at most this power, or the one of least
  // power.
  const baselines::OperatingPoint& OfferedWithin(double most_w) const {
    const auto power_of = [](const baselines::OperatingPoint& point) {
      return point.evaluation.average_power_w();
    };
    for (const baselines::OperatingPoint& point : offered_.points) {
      if (power_of(point) <= most_w) return point;
    }
    return *std::ranges::min_element(offered_.points, {}, power_of);
  }

  const plan::Planner* planner_;
  recipe::Wishes wishes_;
  std::string name_;
  bool is_ours_ = true;
  baselines::PolicyPoints offered_;        // The plans of a published baseline.
  std::optional<plan::Evaluation> usual_;  // For Perseus: the plan with no slowdown.
};

// Reads the options of a plan file.
Result<std::vector<int>> ReadOptions(const std::string& path,
                                     const schedule::InstructionGraph& graph) {
  PERSEUS_ASSIGN_OR_RETURN(const auto plan, ReadPlan(path));
  return plan_file::FindOptions(plan, graph, path);
}

// Warns of a straggler that takes more than 3 times as long: a flag would take this number as
// percent.
void WarnIfLikelyPercent(const Streams& streams, double times_as_long) {
  constexpr double kLargestLikely = 3;
  if (times_as_long <= kLargestLikely) return;
  streams.Warn(fmt::format(
      "slowdown = {0:g} means {0:g} times as long (for {0:g} % longer, give slowdown = {1:g})",
      times_as_long, 1 + times_as_long / 100));
}

// Adds the events of a file to `spec`. The number of pipelines in `spec` must already be set.
// Errors have the file and the line of the event.
Result<emulator::EmulationSpec> WithEvents(const Streams& streams, emulator::EmulationSpec spec,
                                           const std::string& event_file,
                                           const schedule::InstructionGraph& graph,
                                           Chooser& chooser) {
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(event_file));
  PERSEUS_ASSIGN_OR_RETURN(auto events, emulator::ParseEvents(text, event_file));
  spec.disturbances = std::move(events.disturbances);
  for (const emulator::Disturbance& slow : spec.disturbances) {
    if (slow.kind == emulator::Disturbance::Kind::kSlow) WarnIfLikelyPercent(streams, slow.value);
  }
  for (const emulator::Events::PushedPlan& pushed : events.plans) {
    const std::string path =
        (std::filesystem::path(event_file).parent_path() / pushed.file).string();
    auto options = ReadOptions(path, graph);
    if (!options) return Fail(options, pushed.where);
    spec.changes.push_back({pushed.from, *std::move(options), pushed.where});
  }
  spec.power_caps = std::move(events.power_caps);
  auto options = chooser.WithinPower(spec.power_caps, spec.pipelines);
  if (!options) return Fail(options, event_file);
  for (std::size_t i = 0; i < spec.power_caps.size(); ++i) {
    spec.power_caps[i].options = std::move((*options)[i]);
  }
  return spec;
}

struct EmulateFlags {
  job::JobSettings job;
  std::string plan;
  std::string policy = "perseus";
  double unit_ms = 1;
  std::string events;
  int iterations = 100;
  std::optional<int> follow;
  NoiseFlags noise;
  double latency_spread = 0;
  std::uint64_t seed = 1;
  std::optional<int> traced;
  std::string directory;
  bool as_json = false;
};

std::string FormatIterations(const emulator::Emulation& emulation) {
  std::string text = "iteration,time,energy,average_power,peak_power,slowest_dp_rank,switches\n";
  for (std::size_t i = 0; i < emulation.iterations.size(); ++i) {
    const emulator::EmulatedIteration& iteration = emulation.iterations[i];
    text += fmt::format("{},{:.9f},{},{},{},{},{}\n", i, ToSeconds(iteration.time),
                        iteration.energy_j, iteration.average_power_w(), iteration.peak_power_w,
                        iteration.slowest_dp_rank, iteration.switches);
  }
  return text;
}

std::string FormatRanks(const emulator::Emulation& emulation, int gpus_per_stage) {
  std::string text = "dp_rank,pp_rank,gpus,busy,computing_energy,waiting_energy,switches\n";
  for (std::size_t pipeline = 0; pipeline < emulation.pp_ranks.size(); ++pipeline) {
    for (std::size_t rank = 0; rank < emulation.pp_ranks[pipeline].size(); ++rank) {
      const emulator::RankTotals& totals = emulation.pp_ranks[pipeline][rank];
      text += fmt::format("{},{},{},{},{},{},{}\n", pipeline, rank, gpus_per_stage, totals.busy_s,
                          totals.instruction_energy_j, totals.blocking_energy_j, totals.switches);
    }
  }
  return text;
}

// Returns a text such as "dp_rank 3" or "dp_ranks 0, 1, 2 and 13 more".
std::string NameOf(const std::vector<int>& pipelines) {
  constexpr std::size_t kNamed = 3;
  std::string name = pipelines.size() == 1 ? "dp_rank " : "dp_ranks ";
  for (std::size_t i = 0; i < std::min(kNamed, pipelines.size()); ++i) {
    name += fmt::format("{}{}", i == 0 ? "" : ", ", pipelines[i]);
  }
  if (pipelines.size() > kNamed) name += fmt::format(" and {} more", pipelines.size() - kNamed);
  return name;
}

Result<std::string> TraceOf(const plan::Planner& planner, const emulator::EmulationSpec& spec,
                            const emulator::Emulation& emulation, int iteration) {
  PERSEUS_ASSIGN_OR_RETURN(auto runs,
                           emulator::RunsInIteration(planner, spec, emulation, iteration));
  Nanoseconds slowest = 0;
  for (const emulator::RunOfPipelines& run : runs)
    slowest = std::max(slowest, run.run.evaluation.time);
  std::vector<report::Timeline> timelines;
  for (emulator::RunOfPipelines& run : runs) {
    timelines.push_back({NameOf(run.pipelines), std::move(run.run.options),
                         std::move(run.run.evaluation), slowest});
  }
  return report::FormatTrace(planner.graph(), planner.model().blocking_power_w, timelines);
}

struct Results {
  job::UsedFacts facts;
  std::string policy;
  std::vector<std::string> remarks;
  emulator::Emulation planned;
  emulator::Emulation all_max;
};

noise::Executions ExecutionsOf(const emulator::Emulation& emulation) {
  noise::Executions executions;
  for (const emulator::EmulatedIteration& iteration : emulation.iterations) {
    executions.times_s.push_back(ToSeconds(iteration.time));
    executions.energies_j.push_back(iteration.energy_j);
  }
  return executions;
}

// Returns the difference between two jobs over the iterations, which have the same noise in both
// jobs. Returns nullopt without noise, because then nothing varies by chance.
std::optional<noise::NoisyDifference> DifferenceOf(const emulator::EmulationSpec& spec,
                                                   const Results& results) {
  if (spec.noise == noise::Noise{} && spec.latency_spread == 0) return std::nullopt;
  return noise::Compare(ExecutionsOf(results.planned), ExecutionsOf(results.all_max));
}

ordered_json Describe(const emulator::Emulation& emulation) {
  return {{"time_s", ToSeconds(emulation.time)},
          {"energy_j", emulation.energy_j},
          {"average_power_w", emulation.energy_j / ToSeconds(emulation.time)},
          {"peak_power_w", emulation.peak_power_w()},
          {"executions", emulation.executions}};
}

// Formats the summary. `files` are the other files of the run.
std::string FormatJson(const emulator::EmulationSpec& spec, const Results& results,
                       const std::vector<std::string>& files) {
  ordered_json object{{"format", kEmulationResults.format},
                      {"version", 1},
                      {"pipelines", spec.pipelines},
                      {"iterations", spec.iterations},
                      {"policy", results.policy}};
  if (!results.facts.path.empty()) object["facts"] = results.facts.path;
  object.update(ordered_json{
      {"emulated", Describe(results.planned)},
      {"maximum_frequency", Describe(results.all_max)},
      {"saving", 1 - results.planned.energy_j / results.all_max.energy_j},
      {"slowdown", ToSeconds(results.planned.time) / ToSeconds(results.all_max.time) - 1},
      {"remarks", results.remarks},
      {"files", files}});
  if (const auto difference = DifferenceOf(spec, results)) {
    object["noise"] = {{"independent", spec.noise.independent},  {"common", spec.noise.common},
                       {"latency_spread", spec.latency_spread},  {"slowdown", difference->slowdown},
                       {"slowdown_ci", difference->slowdown_ci}, {"saving", difference->saving},
                       {"saving_ci", difference->saving_ci}};
  }
  // Remarks contain names of files, which may have bytes that are not UTF-8.
  return JsonText(object, 2) + "\n";
}

std::string FormatTable(const emulator::EmulationSpec& spec, const Results& results,
                        std::int64_t gpus) {
  Table table({"", "time", "energy", "power", "peak"});
  const auto add = [&](const std::string& name, const emulator::Emulation& emulation) {
    table.AddRow({name, FormatQuantity(ToSeconds(emulation.time), "s"),
                  FormatQuantity(emulation.energy_j, "J"),
                  FormatQuantity(emulation.energy_j / ToSeconds(emulation.time), "W"),
                  FormatQuantity(emulation.peak_power_w(), "W")});
  };
  add("maximum frequency", results.all_max);
  add(results.policy == "Perseus" ? "emulated" : results.policy, results.planned);
  std::string text = fmt::format(
      "{} of {} ({}): {} less energy than at maximum frequency, {} slower.\n",
      Counted(spec.iterations, "iteration"), Counted(spec.pipelines, "pipeline"),
      Counted(gpus, "GPU"), FormatPercent(1 - results.planned.energy_j / results.all_max.energy_j),
      FormatPercent(ToSeconds(results.planned.time) / ToSeconds(results.all_max.time) - 1));
  text += job::Describe(results.facts);
  if (const auto difference = DifferenceOf(spec, results)) {
    text += fmt::format(
        "Under noise, the mean iteration saves {:.2f} ± {:.2f} % of the energy and takes {:+.3f} ± "
        "{:.3f} % more time than at maximum frequency with the same noise (95 % confidence).\n",
        100 * difference->saving, 100 * difference->saving_ci, 100 * difference->slowdown,
        100 * difference->slowdown_ci);
  }
  for (const std::string& remark : results.remarks) text += fmt::format("\n{}.\n", remark);
  return table.Format() + "\n" + Wrapped(text);
}

// Makes the result files. The last one is the summary.
Result<std::vector<ResultFile>> MakeFiles(const EmulateFlags& flags, const plan::Planner& planner,
                                          const emulator::EmulationSpec& spec,
                                          const Results& results, int gpus_per_stage) {
  PERSEUS_ASSIGN_OR_RETURN(auto trace,
                           TraceOf(planner, spec, results.planned, flags.traced.value_or(0)));
  std::vector<ResultFile> files{{"iterations.csv", FormatIterations(results.planned)},
                                {"pp_ranks.csv", FormatRanks(results.planned, gpus_per_stage)},
                                {"trace.json", std::move(trace)}};
  std::vector<std::string> names;
  for (const ResultFile& file : files) names.push_back(file.name);
  files.push_back({std::string(kEmulationResults.summary), FormatJson(spec, results, names)});
  return files;
}

// `chooser` must outlive the returned value.
Result<emulator::EmulationSpec> SpecOf(const Streams& streams, const EmulateFlags& flags,
                                       const plan::Planner& planner, const job::LoadedJob& job,
                                       Chooser& chooser) {
  const auto noise = NoiseOf(flags.noise, job.noise);
  emulator::EmulationSpec spec{
      .pipelines = job.planned.pipelines,
      .iterations = flags.iterations,
      .options = {},
      .changes = {},
      .disturbances = {},
      .reaction = flags.follow ? emulator::Reaction::kFollow : emulator::Reaction::kNone,
      .delay = flags.follow.value_or(0),
      .plan_beside = [&chooser](Nanoseconds time) { return chooser.Beside(time); },
      .noise = noise.value_or(noise::Noise{}),
      .latency_spread = flags.latency_spread,
      .seed = flags.seed};
  PERSEUS_ASSIGN_OR_RETURN(auto options, flags.plan.empty()
                                             ? chooser.NoSlowdown()
                                             : ReadOptions(flags.plan, planner.graph()));
  spec.options = std::move(options);
  if (flags.events.empty()) return spec;
  return WithEvents(streams, std::move(spec), flags.events, planner.graph(), chooser);
}

// Returns a job with the same stragglers and noise, but with all instructions at maximum frequency.
emulator::EmulationSpec Unplanned(emulator::EmulationSpec spec,
                                  const schedule::InstructionGraph& graph) {
  spec.options = schedule::BaselineOptions(graph);
  spec.changes.clear();
  spec.power_caps.clear();
  spec.reaction = emulator::Reaction::kNone;
  return spec;
}

Result<void> RunEmulate(const Streams& streams, const EmulateFlags& flags) {
  if (flags.traced && *flags.traced >= flags.iterations) {
    return Fail("--trace {} is not one of the iterations (use 0 to {})", *flags.traced,
                flags.iterations - 1);
  }
  if (flags.traced && flags.directory.empty()) {
    return Fail("--trace needs a directory for trace.json (add -o DIR)");
  }
  PERSEUS_RETURN_IF_ERROR(CheckNoise(flags.noise));
  ResultDirectory directory(flags.directory, kEmulationResults);
  if (!flags.directory.empty()) {
    if (auto opened = directory.Open(); !opened) return opened;
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto job, LoadJobToPlan(streams, flags.job));
  if (flags.latency_spread > 0 && job.model.switch_latency == 0) {
    return Fail(
        "--latency-spread needs a switch latency, but the job has none (add --switch-latency MS)");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, plan::Planner::Create(job.graph, job.model));

  recipe::Wishes wishes = job.wishes();
  wishes.noise = NoiseOf(flags.noise, job.noise);
  PERSEUS_ASSIGN_OR_RETURN(auto chooser, Chooser::Create(planner, flags.policy,
                                                         FromMilliseconds(flags.unit_ms), wishes));
  PERSEUS_ASSIGN_OR_RETURN(const auto spec, SpecOf(streams, flags, planner, job, chooser));
  PERSEUS_ASSIGN_OR_RETURN(auto planned, emulator::Emulate(planner, spec));
  PERSEUS_ASSIGN_OR_RETURN(auto all_max,
                           emulator::Emulate(planner, Unplanned(spec, planner.graph())));

  std::vector<std::string> remarks = planned.remarks;
  if (!chooser.note().empty()) {
    remarks.push_back(fmt::format("{}: {}", chooser.name(), chooser.note()));
  }
  const Results results{job.facts, chooser.name(), std::move(remarks), std::move(planned),
                        std::move(all_max)};
  std::vector<std::string> names;
  if (!flags.directory.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(
        auto files, MakeFiles(flags, planner, spec, results, job.planned.model.gpus_per_stage));
    if (auto staged = directory.Stage(files); !staged) return staged;
    for (const ResultFile& file : files) names.push_back(file.name);
    names.pop_back();  // The summary does not list itself.
  }
  const std::int64_t gpus = static_cast<std::int64_t>(spec.pipelines) * job.gpus();
  // If the answer cannot be printed, the results of an earlier run stay.
  auto printed = streams.Print(flags.as_json ? FormatJson(spec, results, names)
                                             : FormatTable(spec, results, gpus));
  if (!printed) return printed;
  return directory.Publish();
}

}  // namespace

Verb AddEmulateVerb(CLI::App& program) {
  auto [verb, add, flags] =
      AddVerb<EmulateFlags>(program, "emulate", kEmulateAbout, kEmulateExamples);
  AddProfile(add, flags->job);
  AddJobFlags(*verb, flags->job);
  verb->get_option("--pipelines")
      ->description("Data-parallel pipelines, which wait for the slowest");
  add("--iterations", flags->iterations, "N", "Number of iterations (default: 100)",
      WholeNumberIn({1, 100'000'000}));
  CLI::Option* plan = add("--plan", flags->plan, "PLAN.json",
                          "The plan that pipelines follow (JSON; default: that of perseus plan "
                          "without a target)",
                          InputFile());
  add("--policy", flags->policy, "NAME",
      "The policy that chooses the clocks: allmax, zeus-global, zeus-per-stage, envpipe, "
      "perseus-published or perseus (default: perseus)",
      OneOf({kPolicies.begin(), kPolicies.end()}))
      ->excludes(plan);
  add("--unit", flags->unit_ms, "MS",
      "Of --policy perseus-published: it rounds times to this (default: 1)",
      NumberIn({1e-3, 1e6, "milliseconds"}));
  add("--events", flags->events, "FILE", "Events: stragglers, plans and power caps (TOML)",
      InputFile());
  add("--follow", flags->follow, "ITERATIONS",
      "Pipelines that wait for a straggler slow down, too, this many iterations after it begins "
      "(0: at once, because a forecast announced it)",
      WholeNumberIn({0, 1'000'000}));
  AddLimitFlags(*verb, flags->job.changes);
  AddNoiseFlags(*verb, flags->noise, "Vary the times");
  add("--latency-spread", flags->latency_spread, "X",
      "Relative spread of the switch latency (0.01 means 1 %)", NumberIn({0, 3, "a fraction"}));
  add("--seed", flags->seed, "N", "Seed of the noise (default: 1)", WholeNumberIn({0, 1e15}));
  add("--trace", flags->traced, "N",
      "The iteration that trace.json shows, without noise (default: 0)",
      WholeNumberIn({0, 100'000'000}));
  add("-o,--output", flags->directory, "DIR",
      "Directory for iterations.csv, pp_ranks.csv, trace.json and emulation.json");
  verb->add_flag("--json", flags->as_json, "Print JSON instead of the table");
  return {verb, [flags = flags](const Streams& streams) { return RunEmulate(streams, *flags); }};
}

}  // namespace perseus::cli

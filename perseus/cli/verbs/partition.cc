// `perseus partition` splits a model into stages.
#include "perseus/planning/partition/partition.h"
#include "perseus/base/json_text.h"
#include "perseus/base/limits.h"
#include "perseus/base/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"
#include "perseus/planning/profile/layer_profile.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPartitionAbout =
    "Split a model into pipeline stages, from the measured time and energy of each layer. Shows\n"
    "three splits: the one with the most equal stage times (balanced), the one with the shortest\n"
    "iteration (fastest), and the one whose plan needs the least energy and is as fast as the\n"
    "fastest split (energy). Imbalance is the time of the longest stage divided by that of the\n"
    "shortest, at maximum frequency.";
constexpr const char* kPartitionExamples =
    "  perseus partition layers.csv --stages 4 --schedule 1f1b --microbatches 32 \\\n"
    "      --blocking-power 83.64 -o profile.csv    # and prints how to plan it";

constexpr const char* kBalanced = "balanced";
constexpr const char* kFastest = "fastest";
constexpr const char* kEnergy = "energy";

struct PartitionFlags {
  std::string layers;
  std::string schedule = "1f1b";
  int stages = 0;
  int microbatches = 0;
  std::optional<double> blocking_power_w;
  std::string facts;
  int gpus_per_stage = 1;
  std::string split = kEnergy;
  std::string profile;
  bool as_json = false;
};

double SavingOf(const partition::Partition& partition, const partition::PlannedSplit& split) {
  return 1 - split.plan.evaluation.energy_j / partition.fastest.baseline.energy_j;
}

ordered_json SplitJson(const partition::Partition& partition,
                       const partition::PlannedSplit& split) {
  ordered_json stage_times = ordered_json::array();
  for (const Nanoseconds time : split.stage_times) stage_times.push_back(ToSeconds(time));
  return {{"boundaries", split.boundaries},
          {"stage_times_s", std::move(stage_times)},
          {"imbalance", partition::ImbalanceRatio(split.stage_times)},
          {"baseline",
           {{"time_s", ToSeconds(split.baseline.time)}, {"energy_j", split.baseline.energy_j}}},
          {"plan",
           {{"deadline_s", ToSeconds(split.plan.deadline)},
            {"time_s", ToSeconds(split.plan.evaluation.time)},
            {"energy_j", split.plan.evaluation.energy_j},
            {"lower_bound_j", split.plan.lower_bound_j},
            {"saving", SavingOf(partition, split)}}}};
}

// Formats the result. `facts` is the file that gave the blocking power, or empty. `command` is the
// command that plans the split of the written profile. It is empty if no profile was written.
std::string FormatJson(const partition::Partition& partition, const std::string& facts,
                       const std::string& command) {
  ordered_json json{{"format", "perseus-partition"},
                    {"version", 1},
                    {kBalanced, SplitJson(partition, partition.balanced)},
                    {kFastest, SplitJson(partition, partition.fastest)},
                    {kEnergy, SplitJson(partition, partition.least_energy)},
                    {"candidates", partition.candidates},
                    {"bounded", partition.bounded},
                    {"tried_all", partition.tried_all}};
  if (partition.tried_all) {
    json["lower_bound_j"] = partition.lower_bound_j;
    json["gap"] = partition.gap();
  }
  if (!facts.empty()) json["facts"] = facts;
  if (!command.empty()) json["plan_command"] = command;
  return JsonText(json, 2) + "\n";
}

// Says how much the split of least energy saves, and whether a better split may exist.
std::string FormatVerdict(const partition::Partition& partition) {
  const double fastest_j = partition.fastest.plan.evaluation.energy_j;
  const double least_j = partition.least_energy.plan.evaluation.energy_j;
  const bool is_better = partition.least_energy.boundaries != partition.fastest.boundaries;
  const std::string gained =
      is_better ? fmt::format(
                      "The plan of the energy split needs {} less energy than the plan of the "
                      "fastest split, and is no slower than the fastest split at maximum frequency",
                      FormatPercent(1 - least_j / fastest_j))
                : "No other split was found that is as fast as the fastest one and needs less "
                  "energy";
  if (!partition.tried_all) {
    return fmt::format(
        "{}. {} of {}{} splits that may be as fast were tried, so a better one may exist.\n",
        gained, partition.bounded, partition.counts_all() ? "" : "more than ",
        partition.candidates);
  }
  return fmt::format(
      "{}. All {} splits that may be as fast were tried, and no plan of any of them needs more "
      "than {:.3f} % less energy.\n",
      gained, partition.candidates, std::max(0.0, 1 - partition.lower_bound_j / least_j) * 100);
}

std::string FormatTable(const partition::Partition& partition) {
  Table table({"split", "imbalance", "time", "energy", "plan time", "plan energy", "saving",
               "cut at layers"});
  for (const auto& [name, split] :
       {std::pair(kBalanced, &partition.balanced), std::pair(kFastest, &partition.fastest),
        std::pair(kEnergy, &partition.least_energy)}) {
    table.AddRow({name, fmt::format("{:.3f}", partition::ImbalanceRatio(split->stage_times)),
                  FormatQuantity(ToSeconds(split->baseline.time), "s"),
                  FormatQuantity(split->baseline.energy_j, "J"),
                  FormatQuantity(ToSeconds(split->plan.evaluation.time), "s"),
                  FormatQuantity(split->plan.evaluation.energy_j, "J"),
                  FormatPercent(SavingOf(partition, *split)),
                  fmt::format("{}", fmt::join(split->boundaries, ","))});
  }
  return table.Format() + "\n" + Wrapped(FormatVerdict(partition));
}

// Quotes a text so that a shell reads it as one word.
std::string Quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Returns the command that plans the split of the written profile.
std::string NextCommand(const PartitionFlags& flags, double blocking_power_w,
                        const partition::PlannedSplit& split) {
  std::string command =
      fmt::format("perseus plan {} --schedule {} --microbatches {} --blocking-power {}",
                  Quoted(flags.profile), flags.schedule, flags.microbatches, blocking_power_w);
  if (flags.gpus_per_stage > 1)
    command += fmt::format(" --gpus-per-stage {}", flags.gpus_per_stage);
  // Nine decimals keep every nanosecond.
  return command +
         fmt::format(" --per-instruction --deadline {:.9f}", ToSeconds(split.plan.deadline));
}

// Returns the blocking power from the flag. Without the flag, returns the value in the hardware
// facts.
Result<double> BlockingPowerOf(const PartitionFlags& flags) {
  if (flags.blocking_power_w) return *flags.blocking_power_w;
  if (flags.facts.empty()) {
    return Fail(
        "the blocking power is missing (add --blocking-power, or --facts with a measured "
        "one)");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto facts, hardware_facts::Read(flags.facts));
  const auto power = hardware_facts::BlockingPower(facts);
  if (power) return power->value;
  return Fail(InFile(flags.facts),
              "has no blocked_w (measure again with perseus qualify, or add --blocking-power)");
}

Result<void> RunPartition(const Streams& streams, const PartitionFlags& flags,
                          bool is_split_given) {
  if (is_split_given && flags.profile.empty()) {
    return Fail("--split needs a file for the profile (add -o PROFILE.csv)");
  }
  PERSEUS_RETURN_IF_ERROR(CheckReplacesNoInput(flags.profile, {flags.layers, flags.facts}));
  PERSEUS_ASSIGN_OR_RETURN(const double blocking_power_w, BlockingPowerOf(flags));
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(flags.layers));
  PERSEUS_ASSIGN_OR_RETURN(auto layers, profile::ParseLayers(text, flags.layers));
  PERSEUS_ASSIGN_OR_RETURN(auto schedule, schedule::GenerateSchedule({flags.schedule, flags.stages,
                                                                      flags.microbatches, 1}));
  partition::PartitionJob job{
      .layers = std::move(layers), .schedule = std::move(schedule), .model = {}};
  job.model.blocking_power_w = blocking_power_w;
  job.model.gpus_per_stage = flags.gpus_per_stage;
  const auto partition = partition::PartitionLayers(job);
  if (!partition) return Fail(partition);
  std::string table = FormatTable(*partition);
  const std::string facts = flags.blocking_power_w ? "" : flags.facts;
  if (!facts.empty()) {
    table += fmt::format("hardware facts: {} gives the blocking power ({:.4g} W)\n", facts,
                         blocking_power_w);
  }
  if (flags.profile.empty()) {
    return streams.Print(flags.as_json ? FormatJson(*partition, facts, "") : table);
  }
  const partition::PlannedSplit& split = flags.split == kBalanced  ? partition->balanced
                                         : flags.split == kFastest ? partition->fastest
                                                                   : partition->least_energy;
  const std::string profile =
      profile::FormatProfile(profile::StageProfile(job.layers, split.boundaries));
  if (auto written = WriteFileAtomically(flags.profile, profile); !written) return written;
  const std::string command = NextCommand(flags, blocking_power_w, split);
  if (flags.as_json) return streams.Print(FormatJson(*partition, facts, command));
  return streams.Print(
      fmt::format("{}\n{} has the stages of the {} split. To plan them as above:\n  {}\n", table,
                  flags.profile, flags.split, command));
}

}  // namespace

Verb AddPartitionVerb(CLI::App& program) {
  auto [verb, add, flags] =
      AddVerb<PartitionFlags>(program, "partition", kPartitionAbout, kPartitionExamples);
  const auto count = WholeNumberIn({1, kMostMicrobatches});
  add("layers", flags->layers, "LAYERS.csv", "Measured time and energy of each layer (CSV)",
      InputFile())
      ->required();
  add("--stages", flags->stages, "N", "Number of stages", count)->required();
  const auto names = schedule::ScheduleNames();
  add("--schedule", flags->schedule, "NAME", "The order of instructions on each pp_rank",
      OneOf(std::vector<std::string>(names.begin(), names.end())))
      ->capture_default_str();
  add("--microbatches", flags->microbatches, "N", "Microbatches of one iteration of one pipeline",
      count)
      ->required();
  add("--blocking-power", flags->blocking_power_w, "W", "Power of one GPU while it waits",
      NumberIn({0, kMostWatts, "watts"}));
  add("--facts", flags->facts, "FILE",
      "Hardware facts (TOML) of the GPUs: they give the blocking power, unless a flag does",
      InputFile());
  add("--gpus-per-stage", flags->gpus_per_stage, "N", "GPUs that share a stage (tensor parallel)",
      count)
      ->capture_default_str();
  CLI::Option* split = add("--split", flags->split, "NAME", "The split whose profile is written",
                           OneOf({kBalanced, kFastest, kEnergy}))
                           ->capture_default_str();
  add("-o,--output", flags->profile, "PROFILE.csv",
      "Write the profile of the stages of a split, for perseus plan");
  verb->add_flag("--json", flags->as_json, "Print JSON instead of the table");
  return {verb, [flags = flags, split](const Streams& streams) {
            return RunPartition(streams, *flags, split->count() > 0);
          }};
}

}  // namespace perseus::cli

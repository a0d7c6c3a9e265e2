#include "perseus/planning/job/job.h"

#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "perseus/base/excerpt.h"
#include "perseus/base/limits.h"
#include "perseus/base/toml_file.h"
#include "perseus/base/units.h"
#include "perseus/base/wording.h"
#include "perseus/planning/job/auto_schedule.h"

namespace perseus::job {
namespace {

using toml_file::TableReader;

constexpr std::string_view kRootKeys[] = {"profile", "pipeline", "gpu", "memory", "fixed"};
constexpr std::string_view kPipelineKeys[] = {"schedule", "schedule_file", "graph",
                                              "pp_ranks", "microbatches",  "chunks",
                                              "fold",     "pipelines"};
constexpr std::string_view kGpuKeys[] = {
    "blocking_power_w", "gpus_per_stage", "switch_latency_ms", "switch_stall_s", "switch_energy_j",
    "max_switches",     "facts"};
constexpr std::string_view kMemoryKeys[] = {"gpu_gib", "activation_mib", "kept_mib", "model_gib",
                                            "max_in_flight"};
// The keys of each table, for messages about a key in the wrong table.
constexpr TableReader::TableKeys kTables[] = {
    {"[pipeline]", kPipelineKeys}, {"[gpu]", kGpuKeys}, {"[memory]", kMemoryKeys}};

class JobReader {
 public:
  JobReader(const toml::table& root, std::string_view name)
      : root_(root), name_(name), file_(root, name) {}

  Result<Job> Read() {
    TableReader reader(root_, name_, "the job file", kRootKeys, kTables);
    KeepKeys(root_);
    job_.profile_path = reader.Text("profile");
    file_.Keep(reader);
    file_.ReadTable("pipeline", [this](const toml::table& table) { ReadPipeline(table); });
    file_.ReadTable("gpu", [this](const toml::table& table) { ReadGpu(table); });
    file_.ReadTable("memory", [this](const toml::table& table) { ReadMemory(table); });
    file_.ReadTables("fixed", [this](const toml::table& table) { ReadFixedInstruction(table); });
    if (file_.error()) return tl::unexpected<Error>(*file_.error());
    return std::move(job_);
  }

 private:
  void KeepKeys(const toml::table& table) {
    for (const auto& [key, value] : table) job_.keys.emplace_back(key.str());
  }

  void ReadPipeline(const toml::table& table) {
    TableReader reader(table, name_, "[pipeline]", kPipelineKeys, kTables);
    KeepKeys(table);
    job_.schedule.name = reader.Text("schedule");
    job_.schedule_path = reader.Text("schedule_file");
    job_.graph_path = reader.Text("graph");
    job_.schedule.pp_ranks = reader.Count("pp_ranks", kMostPpRanks, 0);
    job_.schedule.microbatches = reader.Count("microbatches", kMostMicrobatches, 0);
    job_.schedule.chunks = reader.Count("chunks", kMostChunks, 1);
    job_.is_folded = reader.Flag("fold");
    job_.pipelines = reader.Count("pipelines", kMostPipelines, 1);
    const auto generated = schedule::ScheduleNames();
    std::vector<std::string_view> names(generated.begin(), generated.end());
    names.push_back(kAutoSchedule);
    if (!job_.schedule.name.empty() &&
        std::find(names.begin(), names.end(), job_.schedule.name) == names.end()) {
      reader.FailAt("schedule", "unknown schedule {} ({})", Excerpt(job_.schedule.name),
                    DidYouMean(job_.schedule.name, names));
    }
    if (reader.Has("schedule") + reader.Has("schedule_file") + reader.Has("graph") > 1) {
      reader.FailHere(
          "[pipeline] has more than one of schedule, schedule_file and graph (keep one of them)");
    }
    file_.Keep(reader);
  }

  void ReadGpu(const toml::table& table) {
    TableReader reader(table, name_, "[gpu]", kGpuKeys, kTables);
    KeepKeys(table);
    job_.model.blocking_power_w = reader.Number("blocking_power_w", kMostWatts, 0);
    job_.model.gpus_per_stage = reader.Count("gpus_per_stage", kMostGpusPerStage, 1);
    job_.switch_latency = FromMilliseconds(reader.Number("switch_latency_ms", kLongestSwitchMs, 0));
    job_.switch_cost.stall = ToNanoseconds(
        reader.Number("switch_stall_s", kLongestSwitchMs / kMillisecondsPerSecond, 0));
    job_.switch_cost.energy_j = reader.Number("switch_energy_j", kMostJoules, 0);
    if (reader.Has("max_switches")) {
      job_.most_switches = reader.CountFrom("max_switches", 0, kMostSwitches, 8);
    }
    job_.facts_path = reader.Text("facts");
    file_.Keep(reader);
  }

  void ReadMemory(const toml::table& table) {
    TableReader reader(table, name_, "[memory]", kMemoryKeys, kTables);
    KeepKeys(table);
    if (reader.Has("gpu_gib")) {
      job_.memory.gpu_gib =
          reader.NumberFrom("gpu_gib", kGpuMemoryRange.least, kGpuMemoryRange.most, 0);
    }
    const auto numbers = [&reader](std::string_view key, const NumberRange& range) {
      return reader.Numbers(key, range.least, range.most);
    };
    job_.memory.activation_mib = numbers("activation_mib", kActivationRange);
    job_.memory.kept_mib = numbers("kept_mib", kKeptRange);
    job_.memory.model_gib = numbers("model_gib", kModelMemoryRange);
    for (const double count : reader.Numbers("max_in_flight", 1, kMostMicrobatches)) {
      job_.max_in_flight.push_back(static_cast<int>(count));
      if (job_.max_in_flight.back() != count) {
        reader.FailAt("max_in_flight", "max_in_flight has a number that is not whole");
      }
    }
    file_.Keep(reader);
  }

  void ReadFixedInstruction(const toml::table& table) {
    constexpr std::array<std::string_view, 3> kKeys{"kind", "time_s", "energy_j"};
    constexpr std::array<std::string_view, 4> kKinds{"load", "p2p", "all_reduce", "optimizer"};
    TableReader reader(table, name_, "[[fixed]]", kKeys);
    const std::string kind = reader.Text("kind");
    const schedule::FixedInstructions::Cost cost{
        ToNanoseconds(reader.Number("time_s", kLongestSeconds, 0)),
        reader.Number("energy_j", kMostJoules, -1)};
    if (!reader.Has("kind")) {
      reader.FailHere("[[fixed]] has no kind (for example, write kind = \"load\")");
    } else if (!reader.Has("time_s")) {
      reader.FailHere("[[fixed]] {} has no time_s (for example, write time_s = 0.001)",
                      Excerpt(kind));
    }
    const auto known = std::find(kKinds.begin(), kKinds.end(), kind);
    if (reader.Has("kind") && known == kKinds.end()) {
      reader.FailAt("kind", "unknown fixed instruction {} ({})", Excerpt(kind),
                    DidYouMean(kind, kKinds));
    }
    if (kind == "p2p" && reader.Has("energy_j")) {
      reader.FailAt("energy_j",
                    "p2p has no energy_j, because it only delays the next pp_rank (remove it)");
    }
    if (!file_.Keep(reader)) return;

    bool& seen = seen_[static_cast<std::size_t>(known - kKinds.begin())];
    if (seen) reader.FailAt("kind", "[[fixed]] {} appears twice (keep one)", kind);
    seen = true;
    schedule::FixedInstructions& fixed = job_.model.fixed;
    if (kind == "p2p") {
      fixed.p2p = cost.time;
    } else if (kind == "load") {
      fixed.load = cost;
    } else if (kind == "all_reduce") {
      fixed.all_reduce = cost;
    } else {
      fixed.optimizer = cost;
    }
    file_.Keep(reader);
  }

  const toml::table& root_;
  std::string_view name_;
  Job job_;
  std::array<bool, 4> seen_{};  // Which kinds of fixed instructions the file has so far.
  toml_file::FileReader file_;
};

}  // namespace

Result<Job> ParseJob(std::string_view text, std::string_view name) {
  PERSEUS_ASSIGN_OR_RETURN(const auto root, toml_file::Parse(text, name));
  return JobReader(root, name).Read();
}

}  // namespace perseus::job

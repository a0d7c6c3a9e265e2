// ParsePlan reads a plan from JSON (plan_file.h).
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_file.h"
#include "perseus/base/limits.h"
#include "perseus/base/units.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::plan_file {
namespace {

using json_file::Node;
using json_file::Throw;

// The deepest value is in file -> pp_ranks -> rank -> instructions -> instruction -> knobs ->
// value.
constexpr int kMaxDepth = 7;
// These ranges fit any job, and they are narrow enough to reveal a wrong unit.
constexpr int kMostCount = 10'000'000;
// An iteration may be longer than an instruction. Up to here, a double holds every nanosecond.
constexpr double kLongestIterationSeconds = 4e6;
constexpr double kMostIterationJoules = 1e18;
constexpr double kMostKnob = 1e15;

Node Member(const Node& node, std::string_view key) {
  return node.Member(key, "make the plan again, or add it");
}

Nanoseconds Seconds(const Node& node, double most) {
  return ToNanoseconds(node.Number(0, most, "seconds"));
}

int Count(const Node& node, int least, std::string_view unit) {
  return node.Count(least, kMostCount, unit);
}

class PlanReader {
 public:
  PlanFile Read(const Node& file) {
    CheckVersion(file);
    file.RequireObject({"format", "version", "job", "target", "deadline_s", "time_s", "energy_j",
                        "gap", "switches", "lower_bound_j", "pp_ranks", "average_power_w",
                        "baseline"});
    ReadJob(Member(file, "job"));
    plan_.target = Member(file, "target").Text();
    plan_.deadline = Seconds(Member(file, "deadline_s"), kLongestIterationSeconds);
    plan_.time = Seconds(Member(file, "time_s"), kLongestIterationSeconds);
    if (plan_.time < 1) Throw("time_s is less than a nanosecond (expected seconds)");
    plan_.energy_j = Member(file, "energy_j").Number(0, kMostIterationJoules, "joules");
    plan_.lower_bound_j = ReadBound(Member(file, "lower_bound_j"));
    plan_.switches = Count(Member(file, "switches"), 0, "how often a clock changes");
    ReadBaseline(Member(file, "baseline"));
    ReadRanks(Member(file, "pp_ranks"));
    if (!is_general_graph_) FinishSchedule();
    return std::move(plan_);
  }

 private:
  static void CheckVersion(const Node& file) {
    if (!file.value.is_object() || !file.Has("format") || file.value["format"] != "perseus-plan") {
      Throw("is not a plan of Perseus (expected \"format\": \"perseus-plan\")");
    }
    if (Member(file, "version").value != 1) {
      Throw("version is not 1, the version that this program reads (make the plan again with it)");
    }
  }

  static double ReadBound(const Node& node) {
    const double bound_j = node.Number(0, kMostIterationJoules, "joules");
    if (bound_j == 0) Throw("{} is 0 (expected joules above 0)", node.path);
    return bound_j;
  }

  void ReadJob(const Node& node) {
    node.RequireObject({"profile", "graph", "schedule", "pp_ranks", "microbatches", "chunks",
                        "pipelines", "gpus_per_stage", "fixed", "knobs", "knob_labels",
                        "blocking_power_w", "has_power_of_stages", "switch_latency_ms",
                        "switch_cost"});
    PlannedJob& job = plan_.job;
    is_general_graph_ = node.Has("graph");
    job.profile = Member(node, is_general_graph_ ? "graph" : "profile").Text();
    if (!is_general_graph_) {
      job.schedule.name = Member(node, "schedule").Text();
      job.schedule.microbatches = Count(Member(node, "microbatches"), 1, "a count");
      if (node.Has("pp_ranks")) pp_ranks_ = Count(Member(node, "pp_ranks"), 1, "a count");
      if (node.Has("chunks")) chunks_ = Count(Member(node, "chunks"), 1, "a count");
    }
    job.pipelines = Count(Member(node, "pipelines"), 1, "a count");
    job.model.gpus_per_stage = Count(Member(node, "gpus_per_stage"), 1, "a count");
    job.model.blocking_power_w = Member(node, "blocking_power_w").Number(0, kMostWatts, "watts");
    if (node.Has("has_power_of_stages")) {
      job.model.has_power_of_stages = Member(node, "has_power_of_stages").Flag();
    }
    job.switch_latency = FromMilliseconds(
        Member(node, "switch_latency_ms").Number(0, kLongestSwitchMs, "milliseconds"));
    if (node.Has("switch_cost")) ReadSwitchCost(Member(node, "switch_cost"), job.switch_cost);
    ReadFixed(Member(node, "fixed"));
    if (!node.Has("knobs")) return;
    const Node knobs = Member(node, "knobs");
    for (std::size_t i = 0; i < knobs.ListSize(); ++i) {
      plan_.other_knob_names.push_back(knobs[i].Text());
    }
    if (node.Has("knob_labels")) ReadKnobLabels(Member(node, "knob_labels"));
  }

  void ReadKnobLabels(const Node& node) {
    plan_.knob_labels.resize(plan_.other_knob_names.size());
    for (std::size_t i = 0; i < plan_.other_knob_names.size(); ++i) {
      if (!node.Has(plan_.other_knob_names[i])) continue;
      const Node texts = Member(node, plan_.other_knob_names[i]);
      for (std::size_t j = 0; j < texts.ListSize(); ++j) {
        plan_.knob_labels[i].push_back(texts[j].Text());
      }
    }
  }

  void ReadSwitchCost(const Node& node, schedule::SwitchCost& cost) {
    node.RequireObject({"stall_s", "energy_j"});
    cost.stall = ToNanoseconds(
        Member(node, "stall_s").Number(0, kLongestSwitchMs / kMillisecondsPerSecond, "seconds"));
    cost.energy_j = Member(node, "energy_j").Number(0, kMostJoules, "joules");
  }

  void ReadFixed(const Node& node) {
    node.RequireObject({"p2p", "load", "all_reduce", "optimizer"});
    schedule::FixedInstructions& fixed = plan_.job.model.fixed;
    if (node.Has("p2p")) fixed.p2p = ReadCost(Member(node, "p2p")).time;
    if (node.Has("load")) fixed.load = ReadCost(Member(node, "load"));
    if (node.Has("all_reduce")) fixed.all_reduce = ReadCost(Member(node, "all_reduce"));
    if (node.Has("optimizer")) fixed.optimizer = ReadCost(Member(node, "optimizer"));
  }

  static schedule::FixedInstructions::Cost ReadCost(const Node& node) {
    node.RequireObject({"time_s", "energy_j"});
    schedule::FixedInstructions::Cost cost;
    cost.time = Seconds(Member(node, "time_s"), kLongestSeconds);
    if (node.Has("energy_j")) {
      cost.energy_j = Member(node, "energy_j").Number(0, kMostJoules, "joules");
    }
    return cost;
  }

  void ReadBaseline(const Node& node) {
    node.RequireObject({"time_s", "energy_j"});
    plan_.baseline_time = Seconds(Member(node, "time_s"), kLongestIterationSeconds);
    plan_.baseline_energy_j = Member(node, "energy_j").Number(0, kMostIterationJoules, "joules");
  }

  void ReadRanks(const Node& node) {
    const std::size_t count = node.ListSize();
    if (count == 0) Throw("{} is empty (expected an entry for each pp_rank)", node.path);
    for (std::size_t rank = 0; rank < count; ++rank) {
      const Node listed = node[rank];
      listed.RequireObject({"pp_rank", "name", "cut", "instructions"});
      const Node number = Member(listed, "pp_rank");
      if (number.Number(0, kMostCount, "a pp_rank") != static_cast<double>(rank)) {
        Throw("{} is not {} (list the pp_ranks in order, from 0)", number.path, rank);
      }
      plan_.pp_ranks.push_back({.name = Member(listed, "name").Text(),
                                .instructions = {},
                                .is_cut = listed.Has("cut") && listed.Member("cut").Flag()});
      if (!is_general_graph_) plan_.job.schedule.pp_ranks.emplace_back();
      const Node instructions = Member(listed, "instructions");
      for (std::size_t i = 0; i < instructions.ListSize(); ++i) {
        ReadInstruction(instructions[i], static_cast<int>(rank));
      }
    }
  }

  void ReadInstruction(const Node& node, int pp_rank) {
    node.RequireObject({"kind", "name", "stage", "chunk", "frequency", "microbatch", "duration_s",
                        "knobs", "start_s", "energy_j"});
    PlannedInstruction read;
    read.kind = ReadKind(Member(node, "kind"));
    if (node.Has("microbatch")) read.microbatch = Count(Member(node, "microbatch"), 0, "a count");
    if (is_general_graph_) read.name = Member(node, "name").Text();
    if (IsComputation(read.kind)) {
      // The next three values give the position of the instruction in the schedule.
      read.microbatch = Count(Member(node, "microbatch"), 0, "a count");
      read.stage = Count(Member(node, "stage"), 0, "a stage, numbered over all pp_ranks");
      read.chunk = Count(Member(node, "chunk"), 0, "a chunk of its pp_rank");
      Place(node, read, pp_rank);
    }
    if (node.Has("frequency") || IsComputation(read.kind)) {
      read.frequency_mhz = Member(node, "frequency").Megahertz();
    }
    if (IsPlanned(read.kind) && !plan_.other_knob_names.empty()) {
      ReadKnobs(Member(node, "knobs"), read.knobs);
    }
    read.start = Seconds(Member(node, "start_s"), kLongestIterationSeconds);
    read.duration = Seconds(Member(node, "duration_s"), kLongestIterationSeconds);
    read.energy_j = Member(node, "energy_j").Number(0, kMostIterationJoules, "joules");
    plan_.pp_ranks.back().instructions.push_back(std::move(read));
  }

  InstructionKind ReadKind(const Node& node) const {
    const std::string name = node.Text();
    const std::optional<InstructionKind> kind = ParseInstructionKind(name);
    if (!kind) {
      Throw("{}: unknown kind of instruction {} (expected forward, backward, ...)", node.path,
            Excerpt(name));
    }
    if ((*kind == InstructionKind::kGeneric) != is_general_graph_) {
      Throw("{}: {} (expected {})", node.path, Excerpt(name),
            is_general_graph_ ? "generic, because the job is a general graph"
                              : "an instruction of a pipeline, because the job is a pipeline");
    }
    return *kind;
  }

  void ReadKnobs(const Node& node, std::vector<double>& knobs) const {
    const std::vector<std::string_view> names(plan_.other_knob_names.begin(),
                                              plan_.other_knob_names.end());
    node.RequireObject(names);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Node value = Member(node, names[i]);
      const bool has_texts = i < plan_.knob_labels.size() && !plan_.knob_labels[i].empty();
      knobs.push_back(has_texts ? value.Count(0, static_cast<int>(plan_.knob_labels[i].size()) - 1,
                                              "the number of a text in knob_labels")
                                : value.Number(-kMostKnob, kMostKnob, "a knob of the profile"));
    }
  }

  // Adds an instruction to the schedule. Stages may come in any order. FinishSchedule checks them.
  void Place(const Node& node, const PlannedInstruction& read, int pp_rank) {
    const auto [home, is_new] = homes_.try_emplace(read.stage, Home{pp_rank, read.chunk});
    if (home->second.pp_rank != pp_rank || home->second.chunk != read.chunk) {
      Throw(
          "{}.stage: stage {} is chunk {} of pp_rank {} elsewhere (keep each stage on one pp_rank)",
          node.path, read.stage, home->second.chunk, home->second.pp_rank);
    }
    plan_.job.schedule.pp_ranks.back().push_back({read.kind, read.stage, read.microbatch});
  }

  // First checks that stages have no gaps, and then makes the tables of stages. Without this check,
  // a large number in the file would make huge tables.
  void FinishSchedule() {
    schedule::Schedule& schedule = plan_.job.schedule;
    std::set<std::pair<int, int>> places;
    for (const auto& [stage, home] : homes_) {
      if (stage != schedule.stages()) {
        Throw(
            "pp_ranks: stage {} exists, but stage {} does not (number stages from 0 without gaps)",
            stage, schedule.stages());
      }
      if (!places.emplace(home.pp_rank, home.chunk).second) {
        Throw("pp_ranks[{}]: two stages have the chunk {} (number the chunks of a pp_rank from 0)",
              home.pp_rank, home.chunk);
      }
      schedule.pp_rank_of_stage.push_back(home.pp_rank);
      schedule.chunk_of_stage.push_back(home.chunk);
    }
    if (homes_.empty()) Throw("pp_ranks: no instructions (expected a forward and a backward)");
    if (pp_ranks_ > 0 && static_cast<std::size_t>(pp_ranks_) != plan_.pp_ranks.size()) {
      Throw("job.pp_ranks is {}, but pp_ranks lists {} (make the plan again)", pp_ranks_,
            plan_.pp_ranks.size());
    }
    const int chunks = 1 + *std::ranges::max_element(schedule.chunk_of_stage);
    if (chunks_ > 0 && chunks_ != chunks) {
      Throw("job.chunks is {}, but pp_ranks has {} on a pp_rank (make the plan again)", chunks_,
            chunks);
    }
  }

  struct Home {
    int pp_rank;
    int chunk;
  };

  PlanFile plan_;
  bool is_general_graph_ = false;
  int pp_ranks_ = 0;           // The pp_ranks of the job. 0 if the file does not say it.
  int chunks_ = 0;             // The same.
  std::map<int, Home> homes_;  // By stage.
};

// Whether the first line is a header of a CSV: names and commas.
bool IsCsv(std::string_view text) {
  const std::string_view header = text.substr(0, text.find('\n'));
  return header.find(',') != std::string_view::npos &&
         header.find_first_of("{}[]()") == std::string_view::npos;
}

}  // namespace

Result<PlanFile> ParsePlan(std::string_view text, std::string_view name) {
  if (IsCsv(text)) {
    return Fail(InFile(name),
                "is not a plan, but a CSV such as a profile (perseus plan makes plans from it)");
  }
  return json_file::Read(text, name, kMaxDepth,
                         [](const Node& file) { return PlanReader().Read(file); });
}

}  // namespace perseus::plan_file

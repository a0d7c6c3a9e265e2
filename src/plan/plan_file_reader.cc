// ParsePlan: a plan back from JSON (plan_file.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "perseus/pipeline/wording.h"
#include "perseus/plan/option_lookup.h"
#include "perseus/plan/plan_file.h"
#include "perseus/profile/excerpt.h"

namespace perseus {
namespace {

using nlohmann::json;

// file -> stages -> stage -> instructions -> instruction -> knobs -> value: nothing lies deeper.
constexpr int kDeepest = 7;
// Ranges generous enough for any job, and narrow enough that a slip of units shows.
constexpr double kMostCount = 10'000'000;
constexpr double kMostWatts = 100'000;
constexpr double kHighestFrequencyMhz = 1e6;
constexpr double kLongestSwitchMs = 60'000;
constexpr double kMillisecondsPerSecond = 1e3;
// An iteration sums many instructions; up to here a double tells nanoseconds apart.
constexpr double kLongestIterationSeconds = 4e6;
constexpr double kMostIterationJoules = 1e18;
constexpr double kMostKnob = 1e15;

// Thrown inside, turned into an Error by ParsePlan.
struct PlanFileError {
  std::string message;
};

template <typename... Args>
[[noreturn]] void Throw(fmt::format_string<Args...> format, Args&&... args) {
  throw PlanFileError{fmt::format(format, std::forward<Args>(args)...)};
}

// The library keeps the last of two equal keys and would follow nesting to any depth; neither is
// wanted.
json ParseStrictly(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // Of every object that is open.
  auto check = [&](int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (depth > kDeepest) Throw("nested too deeply (see docs/formats.md for what goes where)");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second) {
      Throw("key {} stands twice in one object (remove one)", Excerpt(parsed.get<std::string>()));
    }
    return true;
  };
  return json::parse(text, check);
}

// A value of the file and how messages call it: `stages[2].instructions[5]`.
struct Node {
  const json& value;
  std::string path;

  Node operator[](std::size_t index) const {
    return {value[index], fmt::format("{}[{}]", path, index)};
  }
  bool Has(std::string_view key) const { return value.contains(key); }

  Node Member(std::string_view key) const {
    const std::string member = path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
    const auto found = value.find(key);
    if (found == value.end()) Throw("{}: is missing (make the plan again, or add it)", member);
    return {*found, member};
  }

  void RequireObject(std::span<const std::string_view> known_keys) const {
    const std::string_view where = path.empty() ? "the file" : std::string_view(path);
    if (!value.is_object()) Throw("{}: is not an object (write {{...}})", where);
    for (const auto& [key, ignored] : value.items()) {
      if (std::find(known_keys.begin(), known_keys.end(), key) == known_keys.end()) {
        Throw("{}: has no key {}{}", where, Excerpt(key), DidYouMean(key, known_keys));
      }
    }
  }

  std::size_t ListSize() const {
    if (!value.is_array()) Throw("{}: is not a list (write [...])", path);
    return value.size();
  }

  std::string Text() const {
    if (!value.is_string()) Throw("{}: is not a text (write it in quotes)", path);
    return value.get<std::string>();
  }

  // JSON has no NaN or infinity, but 1e999 overflows to one.
  double Number(double least, double most, std::string_view unit) const {
    const double number =
        value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(number >= least && number <= most)) {
      Throw("{}: is not a number from {} to {} (expected {})", path, least, most, unit);
    }
    return number;
  }
  int Count(int least, std::string_view unit) const {
    const double number = Number(least, kMostCount, unit);
    if (!value.is_number_integer()) Throw("{}: is not a whole number (expected {})", path, unit);
    return static_cast<int>(number);
  }
  Nanoseconds Seconds(double most) const { return ToNanoseconds(Number(0, most, "seconds")); }
};

class PlanReader {
 public:
  PlanFile Read(const json& root) {
    constexpr std::array<std::string_view, 13> kKeys{
        "format", "version",  "job",           "target", "deadline_s",      "time_s",   "energy_j",
        "gap",    "switches", "lower_bound_j", "stages", "average_power_w", "baseline",
    };
    const Node file{root, ""};
    CheckVersion(file);
    file.RequireObject(kKeys);
    ReadJob(file.Member("job"));
    plan_.target = file.Member("target").Text();
    plan_.deadline = file.Member("deadline_s").Seconds(kLongestIterationSeconds);
    plan_.time = file.Member("time_s").Seconds(kLongestIterationSeconds);
    if (plan_.time < 1) Throw("time_s: is less than a nanosecond (expected seconds)");
    plan_.energy_j = file.Member("energy_j").Number(0, kMostIterationJoules, "joules");
    plan_.lower_bound_j = ReadBound(file.Member("lower_bound_j"));
    plan_.switches = file.Member("switches").Count(0, "how often a clock changes");
    ReadBaseline(file.Member("baseline"));
    ReadRanks(file.Member("stages"));
    if (!is_general_graph_) FinishSchedule();
    return std::move(plan_);
  }

 private:
  static void CheckVersion(const Node& file) {
    if (!file.value.is_object() || !file.Has("format") || file.value["format"] != "perseus-plan") {
      Throw("is not a plan of perseus (expected \"format\": \"perseus-plan\")");
    }
    if (file.Member("version").value != 1) {
      Throw("version: is not 1, which is what this perseus reads (make the plan again with it)");
    }
  }

  static double ReadBound(const Node& node) {
    const double bound_j = node.Number(0, kMostIterationJoules, "joules");
    if (bound_j == 0) Throw("{}: is 0 (expected joules above 0)", node.path);
    return bound_j;
  }

  void ReadJob(const Node& node) {
    constexpr std::array<std::string_view, 12> kKeys{
        "profile",      "graph",  "schedule",         "stages",
        "microbatches", "chunks", "pipelines",        "gpus_per_stage",
        "fixed",        "knobs",  "blocking_power_w", "switch_latency_ms"};
    node.RequireObject(kKeys);
    PlannedJob& job = plan_.job;
    is_general_graph_ = node.Has("graph");
    job.profile = node.Member(is_general_graph_ ? "graph" : "profile").Text();
    if (!is_general_graph_) {
      job.schedule.name = node.Member("schedule").Text();
      job.schedule.microbatches = node.Member("microbatches").Count(1, "a count");
    }
    job.pipelines = node.Member("pipelines").Count(1, "a count");
    job.model.gpus_per_stage = node.Member("gpus_per_stage").Count(1, "a count");
    job.model.blocking_power_w = node.Member("blocking_power_w").Number(0, kMostWatts, "watts");
    job.switch_latency =
        ToNanoseconds(node.Member("switch_latency_ms").Number(0, kLongestSwitchMs, "milliseconds") /
                      kMillisecondsPerSecond);
    ReadFixed(node.Member("fixed"));
    if (!node.Has("knobs")) return;
    const Node knobs = node.Member("knobs");
    for (std::size_t i = 0; i < knobs.ListSize(); ++i) {
      plan_.other_knob_names.push_back(knobs[i].Text());
    }
  }

  void ReadFixed(const Node& node) {
    constexpr std::array<std::string_view, 4> kKeys{"p2p", "load", "all_reduce", "optimizer"};
    node.RequireObject(kKeys);
    FixedOperations& fixed = plan_.job.model.fixed;
    if (node.Has("p2p")) fixed.p2p = ReadCost(node.Member("p2p")).time;
    if (node.Has("load")) fixed.load = ReadCost(node.Member("load"));
    if (node.Has("all_reduce")) fixed.all_reduce = ReadCost(node.Member("all_reduce"));
    if (node.Has("optimizer")) fixed.optimizer = ReadCost(node.Member("optimizer"));
  }

  static FixedOperations::Cost ReadCost(const Node& node) {
    constexpr std::array<std::string_view, 2> kKeys{"time_s", "energy_j"};
    node.RequireObject(kKeys);
    FixedOperations::Cost cost;
    cost.time = node.Member("time_s").Seconds(kLongestSeconds);
    if (node.Has("energy_j")) {
      cost.energy_j = node.Member("energy_j").Number(0, kMostJoules, "joules");
    }
    return cost;
  }

  void ReadBaseline(const Node& node) {
    constexpr std::array<std::string_view, 2> kKeys{"time_s", "energy_j"};
    node.RequireObject(kKeys);
    plan_.baseline_time = node.Member("time_s").Seconds(kLongestIterationSeconds);
    plan_.baseline_energy_j = node.Member("energy_j").Number(0, kMostIterationJoules, "joules");
  }

  void ReadRanks(const Node& node) {
    constexpr std::array<std::string_view, 3> kKeys{"rank", "name", "instructions"};
    const std::size_t count = node.ListSize();
    if (count == 0) Throw("{}: is empty (expected one for each rank)", node.path);
    for (std::size_t rank = 0; rank < count; ++rank) {
      const Node listed = node[rank];
      listed.RequireObject(kKeys);
      const Node number = listed.Member("rank");
      if (number.Number(0, kMostCount, "a rank") != static_cast<double>(rank)) {
        Throw("{}: is not {} (list ranks in order, from 0)", number.path, rank);
      }
      plan_.ranks.push_back({listed.Member("name").Text(), {}});
      if (!is_general_graph_) plan_.job.schedule.ranks.emplace_back();
      const Node instructions = listed.Member("instructions");
      for (std::size_t i = 0; i < instructions.ListSize(); ++i) {
        ReadInstruction(instructions[i], static_cast<int>(rank));
      }
    }
  }

  void ReadInstruction(const Node& node, int rank) {
    constexpr std::array<std::string_view, 10> kKeys{
        "kind",       "name",       "stage", "chunk",   "frequency",
        "microbatch", "duration_s", "knobs", "start_s", "energy_j"};
    node.RequireObject(kKeys);
    PlannedInstruction read;
    read.kind = ReadKind(node.Member("kind"));
    if (node.Has("microbatch")) read.microbatch = node.Member("microbatch").Count(0, "a count");
    if (is_general_graph_) read.name = node.Member("name").Text();
    if (IsComputation(read.kind)) {
      // Of a computation, these say where in the schedule it stands.
      read.microbatch = node.Member("microbatch").Count(0, "a count");
      read.stage = node.Member("stage").Count(0, "a stage over all ranks");
      read.chunk = node.Member("chunk").Count(0, "a chunk of its rank");
      Place(node, read, rank);
    }
    if (node.Has("frequency") || IsComputation(read.kind)) {
      const Node frequency = node.Member("frequency");
      read.frequency_mhz = frequency.Number(0, kHighestFrequencyMhz, "MHz, such as 1410");
    }
    if (IsPlanned(read.kind) && !plan_.other_knob_names.empty()) {
      ReadKnobs(node.Member("knobs"), read.knobs);
    }
    read.start = node.Member("start_s").Seconds(kLongestIterationSeconds);
    read.duration = node.Member("duration_s").Seconds(kLongestIterationSeconds);
    read.energy_j = node.Member("energy_j").Number(0, kMostIterationJoules, "joules");
    plan_.ranks.back().instructions.push_back(std::move(read));
  }

  InstructionKind ReadKind(const Node& node) const {
    const std::string name = node.Text();
    const std::optional<InstructionKind> kind = ParseInstructionKind(name);
    if (!kind) {
      Throw("{}: no instruction is called {} (expected forward, backward, ...)", node.path,
            Excerpt(name));
    }
    if ((*kind == InstructionKind::kOperation) != is_general_graph_) {
      Throw("{}: {} (expected {})", node.path, Excerpt(name),
            is_general_graph_ ? "operation, since the job is a general graph"
                              : "an instruction of a pipeline, since the job is none");
    }
    return *kind;
  }

  void ReadKnobs(const Node& node, std::vector<double>& knobs) const {
    const std::vector<std::string_view> names(plan_.other_knob_names.begin(),
                                              plan_.other_knob_names.end());
    node.RequireObject(names);
    for (std::string_view name : names) {
      knobs.push_back(node.Member(name).Number(-kMostKnob, kMostKnob, "a knob of the profile"));
    }
  }

  // Adds a computation to the schedule. Stages may come in any order, and are checked at the end.
  void Place(const Node& node, const PlannedInstruction& read, int rank) {
    const auto [home, is_new] = homes_.try_emplace(read.stage, Home{rank, read.chunk});
    if (home->second.rank != rank || home->second.chunk != read.chunk) {
      Throw("{}.stage: stage {} is chunk {} of rank {} elsewhere (keep a stage in one place)",
            node.path, read.stage, home->second.chunk, home->second.rank);
    }
    plan_.job.schedule.ranks.back().push_back({read.kind, read.stage, read.microbatch});
  }

  // Only now is the number of stages known to be no larger than that of instructions.
  void FinishSchedule() {
    Schedule& schedule = plan_.job.schedule;
    std::set<std::pair<int, int>> places;
    for (const auto& [stage, home] : homes_) {
      if (stage != schedule.stages()) {
        Throw("stages: stage {} is there, but stage {} is nowhere (number stages from 0)", stage,
              schedule.stages());
      }
      if (!places.emplace(home.rank, home.chunk).second) {
        Throw("stages[{}]: chunk {} is two stages (number the chunks of a rank)", home.rank,
              home.chunk);
      }
      schedule.rank_of_stage.push_back(home.rank);
      schedule.chunk_of_stage.push_back(home.chunk);
    }
    if (homes_.empty()) Throw("stages: nothing to compute (expected a forward and a backward)");
  }

  struct Home {
    int rank;
    int chunk;
  };

  PlanFile plan_;
  bool is_general_graph_ = false;
  std::map<int, Home> homes_;  // By stage.
};

// What the library says after its own preamble: "[json.exception...] parse error at line 1, ...: ".
std::string_view Explanation(std::string_view what) {
  const std::size_t column = what.find("column");
  const std::size_t end =
      column == std::string_view::npos ? what.find("] ") : what.find(": ", column);
  return end == std::string_view::npos ? what : what.substr(end + 2);
}

}  // namespace

Result<PlanFile> ParsePlan(std::string_view text, std::string_view name) {
  try {
    return PlanReader().Read(ParseStrictly(text));
  } catch (const PlanFileError& error) {
    return Fail("{}: {}", name, error.message);
  } catch (const json::parse_error& error) {
    const auto upto = text.substr(0, std::min(error.byte, text.size()));
    return Fail("{}:{}: not JSON: {} (see docs/formats.md)", name,
                1 + std::count(upto.begin(), upto.end(), '\n'),
                Explained(Explanation(error.what())));
  } catch (const json::exception& error) {
    return Fail("{}: not JSON: {} (see docs/formats.md)", name,
                Explained(Explanation(error.what())));
  }
}

}  // namespace perseus

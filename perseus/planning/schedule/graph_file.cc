// ParseInstructionGraph reads a general graph from JSON (instruction_graph.h). Each resource of the
// file becomes a pp_rank of the graph.
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_file.h"
#include "perseus/base/limits.h"
#include "perseus/base/units.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::schedule {
namespace {

using json_file::Node;
using json_file::Throw;

// The deepest value is in file -> instructions -> instruction -> options -> option.
constexpr int kMaxDepth = 5;

Node RequireMember(const Node& node, std::string_view key, std::string_view example) {
  return node.Member(key, fmt::format("write \"{}\": {}", key, example));
}

std::string ReadName(const Node& node) {
  std::string name = node.Text();
  if (name.empty()) Throw("{} is empty (give it a name)", node.path);
  return name;
}

profile::Option ReadOption(const Node& node, bool is_only_option) {
  node.RequireObject({"frequency", "time", "energy"});
  profile::Option option;
  // If an instruction has only one option, it has no choice of a frequency, so the frequency may be
  // absent.
  if (node.Has("frequency") || !is_only_option) {
    option.frequency_mhz = RequireMember(node, "frequency", "1410").Megahertz();
  }
  const Node time = RequireMember(node, "time", "0.05");
  option.time = ToNanoseconds(time.Number(0, kLongestSeconds, "seconds"));
  if (option.time < 1) Throw("{} is less than a nanosecond (expected seconds)", time.path);
  const Node energy = RequireMember(node, "energy", "23.8");
  option.energy_j = energy.Number(0, kMostJoules, "joules");
  if (option.energy_j <= 0) Throw("{} is not positive (expected joules)", energy.path);
  return option;
}

// Returns the options with the highest frequency first, as in a profile.
std::vector<profile::Option> ReadOptions(const Node& node) {
  const std::size_t count = node.ListSize();
  if (count == 0) Throw("{} is empty (give at least one way to run the instruction)", node.path);
  std::vector<profile::Option> options;
  options.reserve(count);
  for (std::size_t i = 0; i < count; ++i) options.push_back(ReadOption(node[i], count == 1));
  std::stable_sort(options.begin(), options.end(),
                   [](const profile::Option& left, const profile::Option& right) {
                     return left.frequency_mhz > right.frequency_mhz;
                   });
  const auto twice =
      std::adjacent_find(options.begin(), options.end(),
                         [](const profile::Option& left, const profile::Option& right) {
                           return left.SameKnobs(right);
                         });
  if (twice != options.end()) {
    Throw("{} has frequency {} twice (keep one)", node.path, twice->frequency_mhz);
  }
  return options;
}

class GraphReader {
 public:
  GraphReader(std::string_view name, std::optional<double> blocking_power_w)
      : is_power_given_(blocking_power_w.has_value()) {
    file_.graph.name = name;
    file_.blocking_power_w = blocking_power_w.value_or(0);
  }

  // Returns the graph in the order of the file. The caller sorts it topologically.
  GraphFile Read(const Node& file) {
    file.RequireObject({"instructions", "dependencies", "blocking_power"});
    if (file.Has("blocking_power")) {
      const double of_file = file.Member("blocking_power").Number(0, kMostWatts, "watts");
      if (!is_power_given_) file_.blocking_power_w = of_file;
    }
    const Node instructions = RequireMember(file, "instructions", "[...]");
    const std::size_t count = instructions.ListSize();
    if (count == 0) Throw("instructions is empty (give at least one)");
    if (count > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
      Throw("{} instructions are too many", count);
    }
    for (std::size_t i = 0; i < count; ++i) ReadInstruction(instructions[i]);
    if (file.Has("dependencies")) {
      const Node dependencies = file.Member("dependencies");
      for (std::size_t i = 0; i < dependencies.ListSize(); ++i) {
        ReadDependency(dependencies[i]);
      }
    }
    MergeDependencies();
    return std::move(file_);
  }

 private:
  void ReadInstruction(const Node& node) {
    node.RequireObject({"name", "resource", "options"});
    InstructionGraph& graph = file_.graph;
    const int instruction = static_cast<int>(graph.instructions.size());
    std::string name = ReadName(RequireMember(node, "name", "\"a\""));
    if (const auto [same, is_new] = instruction_of_name_.emplace(name, instruction); !is_new) {
      Throw("{}.name {} is also the name of instructions[{}] (rename one)", node.path,
            Excerpt(name), same->second);
    }
    const int pp_rank =
        node.Has("resource") ? RankOf(ReadName(node.Member("resource"))) : OwnRank(node.path, name);
    std::vector<profile::Option> options = ReadOptions(RequireMember(node, "options", "[...]"));
    graph.option_sets.push_back({.name = std::move(name),
                                 .kind = InstructionKind::kGeneric,
                                 .pp_rank = pp_rank,
                                 .chunk = 0,
                                 .options = std::move(options),
                                 .baseline = 0});
    graph.instructions.push_back({.option_set = instruction, .pp_rank = pp_rank});
    std::vector<int>& order = graph.pp_rank_orders[static_cast<std::size_t>(pp_rank)];
    if (!order.empty()) graph.dependencies.push_back({order.back(), instruction, 0});
    order.push_back(instruction);
  }

  int RankOf(const std::string& resource) {
    const auto [known, is_new] = rank_of_resource_.emplace(resource, pp_ranks());
    if (is_new) AddRank(resource);
    return known->second;
  }

  int OwnRank(const std::string& path, const std::string& name) {
    if (file_.blocking_power_w > 0) {
      Throw(
          "{} {} has no resource, but a blocking power needs one: the resource draws it while it "
          "waits (name the resource, or leave the blocking power out)",
          path, Excerpt(name));
    }
    AddRank(name);
    return pp_ranks() - 1;
  }

  void AddRank(const std::string& name) {
    file_.graph.pp_rank_names.push_back(name);
    file_.graph.pp_rank_orders.emplace_back();
  }

  void ReadDependency(const Node& node) {
    node.RequireObject({"from", "to", "delay"});
    Dependency dependency{.from = InstructionNamed(RequireMember(node, "from", "\"a\"")),
                          .to = InstructionNamed(RequireMember(node, "to", "\"b\""))};
    if (node.Has("delay")) {
      dependency.delay = ToNanoseconds(node.Member("delay").Number(0, kLongestSeconds, "seconds"));
    }
    file_.graph.dependencies.push_back(dependency);
  }

  int InstructionNamed(const Node& node) const {
    const std::string name = ReadName(node);
    const auto found = instruction_of_name_.find(name);
    if (found == instruction_of_name_.end()) {
      Throw("{}: no instruction has the name {} (use a name that is in instructions)", node.path,
            Excerpt(name));
    }
    return found->second;
  }

  // The file may have a dependency twice, or a dependency that the order on a resource already
  // implies. If several dependencies have the same instructions, only the one with the longest
  // delay remains.
  void MergeDependencies() {
    std::vector<Dependency>& dependencies = file_.graph.dependencies;
    std::sort(dependencies.begin(), dependencies.end(),
              [](const Dependency& left, const Dependency& right) {
                return std::tie(left.from, left.to, right.delay) <
                       std::tie(right.from, right.to, left.delay);
              });
    const auto end = std::unique(dependencies.begin(), dependencies.end(),
                                 [](const Dependency& left, const Dependency& right) {
                                   return left.from == right.from && left.to == right.to;
                                 });
    dependencies.erase(end, dependencies.end());
  }

  int pp_ranks() const { return static_cast<int>(file_.graph.pp_rank_names.size()); }

  GraphFile file_;
  bool is_power_given_;
  std::unordered_map<std::string, int> instruction_of_name_;
  std::unordered_map<std::string, int> rank_of_resource_;
};

}  // namespace

Result<GraphFile> ParseInstructionGraph(std::string_view text, std::string_view name,
                                        std::optional<double> blocking_power_w) {
  auto file = json_file::Read(text, name, kMaxDepth, [&](const Node& root) {
    return GraphReader(name, blocking_power_w).Read(root);
  });
  if (!file) return file;
  PERSEUS_ASSIGN_OR_RETURN(auto sorted, SortTopologically(std::move(file->graph)));
  PERSEUS_RETURN_IF_ERROR(CheckDurations(sorted));
  file->graph = std::move(sorted);
  return file;
}

}  // namespace perseus::schedule

// ParseOperationGraph: a general graph from JSON (operation_graph.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>

#include "perseus/pipeline/operation_graph.h"
#include "perseus/pipeline/wording.h"
#include "perseus/profile/excerpt.h"

namespace perseus {
namespace {

using nlohmann::json;

// operations -> operation -> options -> option: nothing in the format lies deeper.
constexpr int kDeepest = 5;
constexpr double kMostBlockingPowerW = 100'000;
constexpr double kHighestFrequencyMhz = 1e6;

// Thrown inside, turned into an Error by ParseOperationGraph.
struct GraphFileError {
  std::string message;
};

template <typename... Args>
[[noreturn]] void Throw(fmt::format_string<Args...> format, Args&&... args) {
  throw GraphFileError{fmt::format(format, std::forward<Args>(args)...)};
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

// A value of the file and how messages call it: `operations[3].options[0]`.
struct Node {
  const json& value;
  std::string path;

  Node operator[](std::size_t index) const {
    return {value[index], fmt::format("{}[{}]", path, index)};
  }
  Node Member(const char* key) const {
    return {value.at(key), path.empty() ? key : fmt::format("{}.{}", path, key)};
  }
  bool Has(const char* key) const { return value.contains(key); }
};

void CheckObject(const Node& node, std::span<const std::string_view> known_keys) {
  const std::string_view where = node.path.empty() ? "the file" : std::string_view(node.path);
  if (!node.value.is_object()) Throw("{} is not an object (write {{...}})", where);
  for (const auto& [key, value] : node.value.items()) {
    if (std::find(known_keys.begin(), known_keys.end(), key) == known_keys.end()) {
      Throw("{} has no key {}{}", where, Excerpt(key), DidYouMean(key, known_keys));
    }
  }
}

Node RequireMember(const Node& node, const char* key, std::string_view example) {
  if (!node.Has(key)) {
    Throw("{}{}{} is missing (write \"{}\": {})", node.path, node.path.empty() ? "" : ".", key, key,
          example);
  }
  return node.Member(key);
}

std::string ReadName(const Node& node) {
  if (!node.value.is_string() || node.value.get_ref<const std::string&>().empty()) {
    Throw("{} is not a name (write a text in quotes)", node.path);
  }
  return node.value.get<std::string>();
}

double ReadNumber(const Node& node, double most, std::string_view unit) {
  // JSON has no NaN or infinity, but 1e999 overflows to one.
  const double number =
      node.value.is_number() ? node.value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(number >= 0 && number <= most)) {
    Throw("{} is not a number from 0 to {} ({})", node.path, most, unit);
  }
  return number;
}

const Node& RequireList(const Node& node) {
  if (!node.value.is_array()) Throw("{} is not a list (write [...])", node.path);
  return node;
}

Option ReadOption(const Node& node, bool is_only_option) {
  constexpr std::array<std::string_view, 3> kKeys{"frequency", "time", "energy"};
  CheckObject(node, kKeys);
  Option option;
  // An operation with one option has nothing to choose, and needs no name for it.
  if (node.Has("frequency") || !is_only_option) {
    option.frequency_mhz =
        ReadNumber(RequireMember(node, "frequency", "1410"), kHighestFrequencyMhz, "MHz");
  }
  const Node time = RequireMember(node, "time", "0.05");
  option.time = ToNanoseconds(ReadNumber(time, kLongestSeconds, "seconds"));
  if (option.time < 1) Throw("{} is less than a nanosecond (expected seconds)", time.path);
  const Node energy = RequireMember(node, "energy", "23.8");
  option.energy_j = ReadNumber(energy, kMostJoules, "joules");
  if (option.energy_j <= 0) Throw("{} is not positive (expected joules)", energy.path);
  return option;
}

// Highest frequency first, as in a profile.
std::vector<Option> ReadOptions(const Node& node) {
  const std::size_t count = RequireList(node).value.size();
  if (count == 0) Throw("{} is empty (give at least one way to run the operation)", node.path);
  std::vector<Option> options;
  options.reserve(count);
  for (std::size_t i = 0; i < count; ++i) options.push_back(ReadOption(node[i], count == 1));
  std::stable_sort(options.begin(), options.end(), [](const Option& left, const Option& right) {
    return left.frequency_mhz > right.frequency_mhz;
  });
  const auto twice = std::adjacent_find(
      options.begin(), options.end(),
      [](const Option& left, const Option& right) { return left.SameKnobs(right); });
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

  // Before sorting.
  GraphFile Read(const json& root) {
    constexpr std::array<std::string_view, 3> kKeys{"operations", "dependencies", "blocking_power"};
    const Node file{root, ""};
    CheckObject(file, kKeys);
    if (file.Has("blocking_power")) {
      const double of_file =
          ReadNumber(file.Member("blocking_power"), kMostBlockingPowerW, "watts");
      if (!is_power_given_) file_.blocking_power_w = of_file;
    }
    const Node operations = RequireMember(file, "operations", "[...]");
    const std::size_t count = RequireList(operations).value.size();
    if (count == 0) Throw("operations is empty (give at least one)");
    if (count > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
      Throw("{} operations are too many", count);
    }
    for (std::size_t i = 0; i < count; ++i) ReadOperation(operations[i]);
    if (file.Has("dependencies")) {
      const Node dependencies = file.Member("dependencies");
      for (std::size_t i = 0; i < RequireList(dependencies).value.size(); ++i) {
        ReadDependency(dependencies[i]);
      }
    }
    MergeDependencies();
    return std::move(file_);
  }

 private:
  void ReadOperation(const Node& node) {
    constexpr std::array<std::string_view, 3> kKeys{"name", "resource", "options"};
    CheckObject(node, kKeys);
    OperationGraph& graph = file_.graph;
    const int operation = static_cast<int>(graph.operations.size());
    std::string name = ReadName(RequireMember(node, "name", "\"a\""));
    if (const auto [same, is_new] = operation_of_name_.emplace(name, operation); !is_new) {
      Throw("{}.name {} is also the name of operations[{}] (rename one)", node.path, Excerpt(name),
            same->second);
    }
    const int rank =
        node.Has("resource") ? RankOf(ReadName(node.Member("resource"))) : OwnRank(node.path, name);
    std::vector<Option> options = ReadOptions(RequireMember(node, "options", "[...]"));
    graph.option_sets.push_back({.name = std::move(name),
                                 .kind = InstructionKind::kOperation,
                                 .stage = rank,
                                 .chunk = 0,
                                 .options = std::move(options),
                                 .baseline = 0});
    graph.operations.push_back({.option_set = operation, .rank = rank});
    std::vector<int>& order = graph.rank_orders[static_cast<std::size_t>(rank)];
    if (!order.empty()) graph.dependencies.push_back({order.back(), operation, 0});
    order.push_back(operation);
  }

  int RankOf(const std::string& resource) {
    const auto [known, is_new] = rank_of_resource_.emplace(resource, ranks());
    if (is_new) AddRank(resource);
    return known->second;
  }

  int OwnRank(const std::string& path, const std::string& name) {
    if (file_.blocking_power_w > 0) {
      Throw(
          "{} {} has no resource, so what would draw the blocking power while it waits is unknown "
          "(name its resource, or leave the blocking power out)",
          path, Excerpt(name));
    }
    AddRank(name);
    return ranks() - 1;
  }

  void AddRank(const std::string& name) {
    file_.graph.rank_names.push_back(name);
    file_.graph.rank_orders.emplace_back();
  }

  void ReadDependency(const Node& node) {
    constexpr std::array<std::string_view, 3> kKeys{"from", "to", "delay"};
    CheckObject(node, kKeys);
    Dependency dependency{.from = OperationNamed(RequireMember(node, "from", "\"a\"")),
                          .to = OperationNamed(RequireMember(node, "to", "\"b\""))};
    if (node.Has("delay")) {
      dependency.delay =
          ToNanoseconds(ReadNumber(node.Member("delay"), kLongestSeconds, "seconds"));
    }
    file_.graph.dependencies.push_back(dependency);
  }

  int OperationNamed(const Node& node) const {
    const std::string name = ReadName(node);
    const auto found = operation_of_name_.find(name);
    if (found == operation_of_name_.end()) {
      Throw("{}: there is no operation {} (name one of those in operations)", node.path,
            Excerpt(name));
    }
    return found->second;
  }

  // A dependency may repeat what the order on a resource says already, or one above it: the longest
  // delay says it all.
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

  int ranks() const { return static_cast<int>(file_.graph.rank_names.size()); }

  GraphFile file_;
  bool is_power_given_;
  std::unordered_map<std::string, int> operation_of_name_;
  std::unordered_map<std::string, int> rank_of_resource_;
};

// What the library says after its own preamble: "[json.exception...] parse error at line 1, ...: ".
std::string_view Explanation(std::string_view what) {
  const std::size_t column = what.find("column");
  const std::size_t end =
      column == std::string_view::npos ? what.find("] ") : what.find(": ", column);
  return end == std::string_view::npos ? what : what.substr(end + 2);
}

}  // namespace

Result<GraphFile> ParseOperationGraph(std::string_view text, std::string_view name,
                                      std::optional<double> blocking_power_w) {
  try {
    GraphFile file = GraphReader(name, blocking_power_w).Read(ParseStrictly(text));
    auto sorted = SortTopologically(std::move(file.graph));
    if (!sorted) return Fail(sorted);
    if (auto fits = CheckDurations(*sorted); !fits) return Fail(fits);
    file.graph = *std::move(sorted);
    return file;
  } catch (const GraphFileError& error) {
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

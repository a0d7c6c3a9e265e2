// Reads and writes the hardware facts file. Visit() names the keys of each table in their order,
// with their ranges. A visitor is called with each key, the field, its range, and what an error
// names.
#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/limits.h"
#include "perseus/base/toml_file.h"
#include "perseus/base/units.h"
#include "perseus/base/wording.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"

namespace perseus::hardware_facts {
namespace {

constexpr std::string_view kFormat = "perseus-hardware-facts";
constexpr int kVersion = 1;
constexpr std::string_view kDirections[] = {"up", "down"};
// Earlier versions measured the last kind. Its rows are checked, and then ignored.
constexpr std::string_view kKinds[] = {"launch", "kernel", "copy", "collective", "host_function"};
constexpr std::string_view kRetiredKind = kKinds[4];

// These ranges fit any node, and they are narrow enough to reveal a wrong unit. A fraction below -1
// would be a time or an energy below 0.
struct Range {
  double least = 0;
  double most = 0;
};
constexpr Range kMs{0, kLongestSwitchMs}, kJoules{0, 1'000'000}, kWatts{0, kMostWatts},
    kPerSecond{0, 1'000'000}, kFraction{-1, 1'000};
constexpr int kMostGpus = 1'000;
constexpr int kMostNodes = 1'000'000;

template <typename Visitor>
void Visit(Visitor& visit, SwitchFacts& facts) {
  visit("direction", facts.direction);
  visit("far", facts.is_far);
  visit("all_gpus", facts.all_gpus);
  visit("latency_ms", facts.latency_ms, kMs);
  visit("p95_latency_ms", facts.p95_latency_ms, kMs, 20);
  visit("call_ms", facts.call_ms, kMs);
  visit("stall_ms", facts.stall_ms, kMs);
}

template <typename Visitor>
void Visit(Visitor& visit, PowerFacts& facts) {
  visit("sm_clock_mhz", facts.sm_clock_mhz, kHighestFrequencyMhz, 1410);
  visit("idle_w", facts.idle_w, kWatts);
  visit("blocked_w", facts.blocked_w, kWatts);
  visit("busy_w", facts.busy_w, kWatts);
}

template <typename Visitor>
void Visit(Visitor& visit, EnergyCounterFacts& facts) {
  visit("period_ms", facts.period_ms, kMs);
  visit("resolution_j", facts.resolution_j, kJoules, 0.001);
  visit("bias", facts.bias, kFraction);
}

template <typename Visitor>
void Visit(Visitor& visit, InterferenceFacts& facts) {
  visit("kind", facts.kind, kKinds, "kind of work");
  visit("changes_per_s", facts.changes_per_s, kPerSecond, 10);
  visit("reads_per_s", facts.reads_per_s, kPerSecond, 0);
  visit("slowdown", facts.slowdown, kFraction);
}

template <typename Visitor>
void Visit(Visitor& visit, HardwareFacts& facts) {
  std::string format(kFormat);
  int version = kVersion;
  visit("format", format, kFormat);
  visit("version", version, kVersion, kVersion);
  visit("host", facts.host, "node-1");
  visit("gpu_name", facts.gpu_name, "NVIDIA A100-SXM4-80GB");
  visit("driver_version", facts.driver_version, "570.124.06");
  visit("measured_at", facts.measured_at, "2026-02-22T17:05:00Z");
  visit("perseus_version", facts.perseus_version, "0.1.0");
  visit("gpu_count", facts.gpu_count, kMostGpus, 8);
  visit("nodes", facts.nodes, kMostNodes);
  visit("max_changes_per_s", facts.max_changes_per_s, kPerSecond);
  visit("range_lock_saves", facts.range_lock_saves);
  visit("limits", facts.limits);
  visit("switch", facts.switches, "direction, far and all_gpus");
  visit("power", facts.power, "sm_clock_mhz");
  visit("energy_counter", facts.energy_counter);
  visit("interference", facts.interference, "kind, changes_per_s and reads_per_s");
}

struct Keys {
  void operator()(std::string_view key, const auto&... /*field, range, example*/) {
    all.push_back(key);
  }
  std::vector<std::string_view> all;
};

template <typename Facts>
std::vector<std::string_view> KeysOf(Facts facts) {
  Keys keys;
  Visit(keys, facts);
  return keys.all;
}

// Whether the text is like "2026-02-22T17:05:00Z".
bool IsUtcTime(std::string_view text) {
  constexpr std::string_view kPattern = "0000-00-00T00:00:00Z";
  if (text.size() != kPattern.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_digit = text[i] >= '0' && text[i] <= '9';
    if (kPattern[i] == '0' ? !is_digit : text[i] != kPattern[i]) return false;
  }
  const auto number = [&](std::size_t at) { return (text[at] - '0') * 10 + (text[at + 1] - '0'); };
  return number(5) >= 1 && number(5) <= 12 && number(8) >= 1 && number(8) <= 31 &&
         number(11) <= 23 && number(14) <= 59 && number(17) <= 60;
}

// Reads the keys of one table into the facts. A key with an example is required, unless the field
// is optional.
class Reader : public toml_file::TableReader {
 public:
  template <typename Facts>
  Reader(const toml::table& table, std::string_view title, std::string_view name,
         toml_file::FileReader& file, Facts& facts)
      : TableReader(table, name, title, KeysOf(facts)), table_(table), name_(name), file_(file) {
    Visit(*this, facts);
  }

  // A text of one printable line.
  void operator()(std::string_view key, std::string& text, std::string_view example) {
    Require(key, fmt::format("{} = \"{}\"", key, example));
    text = Text(key);
    if (!IsPrintable(text)) FailAt(key, "{} has invisible characters (remove them)", key);
  }
  void operator()(std::string_view key, std::string& word, std::span<const std::string_view> known,
                  std::string_view what) {
    (*this)(key, word, known.front());
    if (!Has(key) || std::ranges::count(known, word) > 0) return;
    FailAt(key, "unknown {} {} ({})", what, Excerpt(word), DidYouMean(word, known));
  }
  void operator()(std::string_view key, Direction& direction) {
    std::string word;
    (*this)(key, word, kDirections, key);
    direction = word == kDirections[0] ? Direction::kUp : Direction::kDown;
  }
  void operator()(std::string_view key, bool& flag) {
    Require(key, fmt::format("{} = true", key));
    flag = Flag(key);
  }
  void operator()(std::string_view key, std::optional<bool>& flag) {
    if (Has(key)) flag = Flag(key);
  }
  void operator()(std::string_view key, int& count, int most) { count = Count(key, most, 1); }
  void operator()(std::string_view key, int& count, int most, int example) {
    Require(key, fmt::format("{} = {}", key, example));
    (*this)(key, count, most);
  }
  void operator()(std::string_view key, double& number, const Range& range, double example) {
    Require(key, fmt::format("{} = {}", key, example));
    number = NumberFrom(key, range.least, range.most, range.least);
  }
  void operator()(std::string_view key, std::vector<std::string>& sentences) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    bool is_good = list != nullptr;
    for (std::size_t i = 0; is_good && i < list->size(); ++i) {
      sentences.push_back((*list)[i].value_exact<std::string>().value_or(""));
      is_good = !sentences.back().empty() && IsPrintable(sentences.back());
    }
    if (is_good) return;
    FailAt(key, "limits is not a list of sentences (write limits = [\"...\"])");
  }
  void operator()(std::string_view key, Estimate& estimate, const Range& range) {
    Require(key, fmt::format("{} = {}", key, kExampleEstimate));
    std::optional<Estimate> found;
    (*this)(key, found, range);
    estimate = found.value_or(Estimate());
  }
  void operator()(std::string_view key, std::optional<Estimate>& estimate, const Range& range) {
    static constexpr std::string_view kKeys[] = {"value", "low", "high", "samples"};
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    const toml::table* table = node->as_table();
    if (table == nullptr) {
      file_.FailAt(*node, "{} is not a value with its interval (write {} = {})", key, key,
                   kExampleEstimate);
      return;
    }
    TableReader reader(*table, name_, key, kKeys);
    const auto number = [&](std::string_view part) {
      reader.Require(part, fmt::format("{} = 2", part));
      return reader.NumberFrom(part, range.least, range.most, range.least);
    };
    const double value = number("value"), low = number("low"), high = number("high");
    reader.Require("samples", "samples = 40");
    estimate = Estimate{value, low, high, reader.Count("samples", kMostSamples, 1)};
    if (!(low <= value && value <= high)) {
      reader.FailHere(
          "{} has a value of {} outside of its interval, {} to {} (low <= value <= high must hold)",
          key, value, low, high);
    }
    file_.Keep(reader);
  }
  template <typename Facts>
  void operator()(std::string_view key, std::optional<Facts>& facts) {
    file_.Keep(*this);
    file_.ReadTable(key, [&](const toml::table& table) {
      const std::string title = fmt::format("[{}]", key);
      file_.Keep(Reader(table, title, name_, file_, facts.emplace()));
    });
  }
  // `same` names the keys that differ from table to table.
  template <typename Facts>
  void operator()(std::string_view key, std::vector<Facts>& list, std::string_view same) {
    file_.Keep(*this);
    file_.ReadTables(key, [&](const toml::table& table) {
      const std::string title = fmt::format("[[{}]]", key);
      Facts facts;
      Reader reader(table, title, name_, file_, facts);
      if (std::ranges::count(list, facts.key(), &Facts::key) > 0) {
        reader.FailHere("another {} has the same {} (keep one of them)", title, same);
      }
      list.push_back(std::move(facts));
      file_.Keep(reader);
    });
  }

 private:
  static constexpr std::string_view kExampleEstimate =
      "{value = 2, low = 1.8, high = 2.3, samples = 40}";
  const toml::table& table_;
  std::string_view name_;
  toml_file::FileReader& file_;
};

// Returns the line as a TOML string. Without control characters, only " and \ have to be escaped.
std::string Quoted(std::string_view line) {
  std::string quoted = "\"";
  for (const char letter : line) {
    if (letter == '"' || letter == '\\') quoted += '\\';
    quoted += letter;
  }
  return quoted + '"';
}

std::string TomlOf(const std::string& line) { return Quoted(line); }
std::string TomlOf(Direction direction) {
  return Quoted(direction == Direction::kUp ? kDirections[0] : kDirections[1]);
}
std::string TomlOf(bool flag) { return flag ? "true" : "false"; }
std::string TomlOf(int count) { return std::to_string(count); }
// The shortest text that reads back as the same number. TOML has no -0 as a whole number.
std::string TomlOf(double number) { return fmt::format("{}", number == 0 ? 0 : number); }
std::string TomlOf(const Estimate& estimate) {
  return fmt::format("{{value = {}, low = {}, high = {}, samples = {}}}", TomlOf(estimate.value),
                     TomlOf(estimate.low), TomlOf(estimate.high), estimate.samples);
}

struct Writer {
  template <typename Field>
  void operator()(std::string_view key, Field& field, const auto&... /*range, example*/) {
    text += fmt::format("{} = {}\n", key, TomlOf(field));
  }
  template <typename Field>
  void operator()(std::string_view key, std::optional<Field>& field, const auto&... range) {
    if (!field) return;
    if constexpr (std::is_same_v<Field, EnergyCounterFacts>) {
      text += fmt::format("\n[{}]\n", key);
      Visit(*this, *field);
    } else {
      (*this)(key, *field, range...);
    }
  }
  template <typename Element>
  void operator()(std::string_view key, std::vector<Element>& list, const auto&... /*same*/) {
    if constexpr (std::is_same_v<Element, std::string>) {
      if (list.empty()) return;
      text += fmt::format("{} = [\n", key);
      for (const std::string& sentence : list) text += fmt::format("  {},\n", Quoted(sentence));
      text += "]\n";
    } else {
      for (Element& element : list) {
        text += fmt::format("\n[[{}]]\n", key);
        Visit(*this, element);
      }
    }
  }
  std::string text;
};

}  // namespace

std::vector<std::string_view> InterferenceKinds() {
  return {std::begin(kKinds), std::end(kKinds) - 1};
}

Result<HardwareFacts> Parse(std::string_view text, std::string_view name) {
  PERSEUS_ASSIGN_OR_RETURN(const auto root, toml_file::Parse(text, name));
  toml_file::FileReader file(root, name);
  // These two come first: another version may have other keys.
  const toml::node* version = root.get("version");
  if (version != nullptr && version->value_exact<std::int64_t>() != kVersion) {
    file.FailAt(*version,
                "version is not {}, the version that this program reads (measure again with its "
                "perseus qualify)",
                kVersion);
  }
  const toml::node* format = root.get("format");
  if (format != nullptr && format->value_exact<std::string>() != kFormat) {
    file.FailAt(*format,
                "this is not a hardware facts file: its format is not \"{}\" (make the file with "
                "perseus qualify)",
                kFormat);
  }
  HardwareFacts facts;
  Reader reader(root, "the hardware facts file", name, file, facts);
  if (reader.Has("measured_at") && !IsUtcTime(facts.measured_at)) {
    reader.FailAt("measured_at",
                  "measured_at {} is not a time in UTC (write measured_at = "
                  "\"2026-02-22T17:05:00Z\")",
                  Excerpt(facts.measured_at));
  }
  file.Keep(reader);
  if (file.error()) return tl::unexpected<Error>(*file.error());
  std::erase_if(facts.interference, [](const auto& row) { return row.kind == kRetiredKind; });
  return facts;
}

std::string Format(const HardwareFacts& facts) {
  Writer writer;
  HardwareFacts copy = facts;  // Visit() takes facts that a reader could change.
  Visit(writer, copy);
  return writer.text;
}

}  // namespace perseus::hardware_facts

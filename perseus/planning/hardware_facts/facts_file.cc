// Reads and writes the hardware facts file.
#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/limits.h"
#include "perseus/base/toml_file.h"
#include "perseus/base/units.h"
#include "perseus/base/wording.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"

namespace perseus::hardware_facts {
namespace {

using toml_file::TableReader;

constexpr std::string_view kFormat = "perseus-hardware-facts";
constexpr int kVersion = 1;
// Earlier versions measured this kind of interference. Its rows are checked, and then ignored.
constexpr std::string_view kRetiredKind = "host_function";

// These ranges fit any node, and they are narrow enough to reveal a wrong unit.
constexpr int kMostGpus = 1'000;
constexpr int kMostNodes = 1'000'000;
constexpr double kMostResolutionJ = 1'000'000;
constexpr double kMostPerSecond = 1'000'000;
// A fraction below -1 would be a time or an energy below 0.
constexpr double kLeastFraction = -1;
constexpr double kMostFraction = 1'000;

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

class FactsReader {
 public:
  FactsReader(const toml::table& root, std::string_view name)
      : root_(root), name_(name), file_(root, name) {}

  Result<HardwareFacts> Read() {
    ReadRoot();
    file_.ReadTables("switch", [this](const toml::table& table) { ReadSwitch(table); });
    file_.ReadTables("power", [this](const toml::table& table) { ReadPower(table); });
    file_.ReadTable("energy_counter",
                    [this](const toml::table& table) { ReadEnergyCounter(table); });
    file_.ReadTables("interference", [this](const toml::table& table) { ReadInterference(table); });
    if (file_.error()) return tl::unexpected<Error>(*file_.error());
    return std::move(facts_);
  }

 private:
  // A text of one printable line.
  static std::string ReadLine(TableReader& reader, std::string_view key, std::string_view example) {
    reader.Require(key, fmt::format("{} = \"{}\"", key, example));
    std::string text = reader.Text(key);
    if (!IsPrintable(text)) {
      reader.FailAt(key, "{} has invisible characters (remove them)", key);
    }
    return text;
  }

  void ReadRoot() {
    static constexpr std::string_view kKeys[] = {
        "format",      "version",          "host",      "gpu_name", "driver_version",
        "measured_at", "perseus_version",  "gpu_count", "nodes",    "max_changes_per_s",
        "limits",      "range_lock_saves", "switch",    "power",    "energy_counter",
        "interference"};
    // The version comes first: another version may have other keys.
    const toml::node* version = root_.get("version");
    if (version != nullptr && version->value_exact<std::int64_t>() != kVersion) {
      file_.FailAt(*version,
                   "version is not {}, the version that this program reads "
                   "(measure again with its perseus qualify)",
                   kVersion);
    }
    TableReader reader(root_, name_, "the hardware facts file", kKeys);
    reader.Require("format", fmt::format("format = \"{}\"", kFormat));
    if (reader.Has("format") && reader.Text("format") != kFormat) {
      reader.FailAt("format",
                    "this is not a hardware facts file: its format is not "
                    "\"{}\" (make the file with perseus qualify)",
                    kFormat);
    }
    reader.Require("version", fmt::format("version = {}", kVersion));
    facts_.host = ReadLine(reader, "host", "node-1");
    facts_.gpu_name = ReadLine(reader, "gpu_name", "NVIDIA A100-SXM4-80GB");
    facts_.driver_version = ReadLine(reader, "driver_version", "570.124.06");
    facts_.measured_at = ReadLine(reader, "measured_at", "2026-02-22T17:05:00Z");
    if (reader.Has("measured_at") && !IsUtcTime(facts_.measured_at)) {
      reader.FailAt("measured_at",
                    "measured_at {} is not a time in UTC (write measured_at = "
                    "\"2026-02-22T17:05:00Z\")",
                    Excerpt(facts_.measured_at));
    }
    facts_.perseus_version = ReadLine(reader, "perseus_version", "0.1.0");
    reader.Require("gpu_count", "gpu_count = 8");
    facts_.gpu_count = reader.Count("gpu_count", kMostGpus, 1);
    facts_.nodes = reader.Count("nodes", kMostNodes, 1);
    facts_.max_changes_per_s = ReadEstimate(root_, "max_changes_per_s", {0, kMostPerSecond});
    if (reader.Has("range_lock_saves")) facts_.range_lock_saves = reader.Flag("range_lock_saves");
    ReadLimits(reader);
    file_.Keep(reader);
  }

  void ReadLimits(TableReader& reader) {
    const toml::node* node = root_.get("limits");
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    bool is_good = list != nullptr;
    for (std::size_t i = 0; is_good && i < list->size(); ++i) {
      const auto sentence = (*list)[i].value_exact<std::string>();
      is_good = sentence && !sentence->empty() && IsPrintable(*sentence);
      if (is_good) facts_.limits.push_back(*sentence);
    }
    if (!is_good) {
      reader.FailAt("limits", "limits is not a list of sentences (write limits = [\"...\"])");
    }
  }

  struct Range {
    double least = 0;
    double most = 0;
  };

  // Reads an estimate. Returns nullopt if the table does not have the key.
  std::optional<Estimate> ReadEstimate(const toml::table& parent, std::string_view key,
                                       const Range& range) {
    static constexpr std::string_view kKeys[] = {"value", "low", "high", "samples"};
    const toml::node* node = parent.get(key);
    if (node == nullptr) return std::nullopt;
    const toml::table* table = node->as_table();
    if (table == nullptr) {
      file_.FailAt(*node,
                   "{} is not a value with its interval (write {} = {{value = 2, low "
                   "= 1.8, high = 2.3, samples = 40}})",
                   key, key);
      return std::nullopt;
    }
    TableReader reader(*table, name_, key, kKeys);
    const auto number = [&](std::string_view part) {
      reader.Require(part, fmt::format("{} = 2", part));
      return reader.NumberFrom(part, range.least, range.most, range.least);
    };
    Estimate estimate{number("value"), number("low"), number("high"), 1};
    reader.Require("samples", "samples = 40");
    estimate.samples = reader.Count("samples", kMostSamples, 1);
    if (!(estimate.low <= estimate.value && estimate.value <= estimate.high)) {
      reader.FailHere(
          "{} has a value of {} outside of its interval, {} to {} (low <= "
          "value <= high must hold)",
          key, estimate.value, estimate.low, estimate.high);
    }
    file_.Keep(reader);
    return estimate;
  }

  Estimate RequireEstimate(TableReader& reader, const toml::table& parent, std::string_view key,
                           const Range& range) {
    reader.Require(key,
                   fmt::format("{} = {{value = 2, low = 1.8, high = 2.3, samples = 40}}", key));
    return ReadEstimate(parent, key, range).value_or(Estimate());
  }

  template <typename Facts>
  static void RefuseTwice(TableReader& reader, const std::vector<Facts>& list, const Facts& facts,
                          std::string_view title, std::string_view same) {
    if (std::ranges::none_of(list, [&](const Facts& one) { return one.key() == facts.key(); })) {
      return;
    }
    reader.FailHere("another {} has the same {} (keep one of them)", title, same);
  }

  void ReadSwitch(const toml::table& table) {
    static constexpr std::string_view kKeys[] = {
        "direction", "far", "all_gpus", "p95_latency_ms", "call_ms", "latency_ms", "stall_ms"};
    static constexpr std::string_view kDirections[] = {"up", "down"};
    TableReader reader(table, name_, "[[switch]]", kKeys);
    SwitchFacts facts;
    const std::string direction = ReadLine(reader, "direction", "up");
    if (reader.Has("direction") && direction != "up" && direction != "down") {
      reader.FailAt("direction", "unknown direction {} ({})", Excerpt(direction),
                    DidYouMean(direction, kDirections));
    }
    facts.direction = direction == "up" ? Direction::kUp : Direction::kDown;
    reader.Require("far", "far = true");
    facts.is_far = reader.Flag("far");
    reader.Require("all_gpus", "all_gpus = true");
    facts.all_gpus = reader.Flag("all_gpus");
    facts.latency_ms = RequireEstimate(reader, table, "latency_ms", {0, kLongestSwitchMs});
    reader.Require("p95_latency_ms", "p95_latency_ms = 20");
    facts.p95_latency_ms = reader.Number("p95_latency_ms", kLongestSwitchMs, 0);
    facts.call_ms = RequireEstimate(reader, table, "call_ms", {0, kLongestSwitchMs});
    facts.stall_ms = ReadEstimate(table, "stall_ms", {0, kLongestSwitchMs});
    RefuseTwice(reader, facts_.switches, facts, "[[switch]]", "direction, far and all_gpus");
    facts_.switches.push_back(facts);
    file_.Keep(reader);
  }

  void ReadPower(const toml::table& table) {
    static constexpr std::string_view kKeys[] = {"sm_clock_mhz", "idle_w", "blocked_w", "busy_w"};
    TableReader reader(table, name_, "[[power]]", kKeys);
    reader.Require("sm_clock_mhz", "sm_clock_mhz = 1410");
    PowerFacts facts;
    facts.sm_clock_mhz = reader.Count("sm_clock_mhz", kHighestFrequencyMhz, 1);
    facts.idle_w = ReadEstimate(table, "idle_w", {0, kMostWatts});
    facts.blocked_w = ReadEstimate(table, "blocked_w", {0, kMostWatts});
    facts.busy_w = ReadEstimate(table, "busy_w", {0, kMostWatts});
    RefuseTwice(reader, facts_.power, facts, "[[power]]", "sm_clock_mhz");
    facts_.power.push_back(facts);
    file_.Keep(reader);
  }

  void ReadEnergyCounter(const toml::table& table) {
    static constexpr std::string_view kKeys[] = {"period_ms", "resolution_j", "bias"};
    TableReader reader(table, name_, "[energy_counter]", kKeys);
    EnergyCounterFacts facts;
    facts.period_ms = RequireEstimate(reader, table, "period_ms", {0, kLongestSwitchMs});
    reader.Require("resolution_j", "resolution_j = 0.001");
    facts.resolution_j = reader.Number("resolution_j", kMostResolutionJ, 0);
    facts.bias = RequireEstimate(reader, table, "bias", {kLeastFraction, kMostFraction});
    facts_.energy_counter = facts;
    file_.Keep(reader);
  }

  void ReadInterference(const toml::table& table) {
    static constexpr std::string_view kKeys[] = {"kind", "changes_per_s", "reads_per_s",
                                                 "slowdown"};
    const auto kinds = InterferenceKinds();
    TableReader reader(table, name_, "[[interference]]", kKeys);
    InterferenceFacts facts;
    facts.kind = ReadLine(reader, "kind", "launch");
    const bool is_retired = facts.kind == kRetiredKind;
    if (reader.Has("kind") && !is_retired && std::ranges::count(kinds, facts.kind) == 0) {
      reader.FailAt("kind", "unknown kind of work {} ({})", Excerpt(facts.kind),
                    DidYouMean(facts.kind, kinds));
    }
    reader.Require("changes_per_s", "changes_per_s = 10");
    facts.changes_per_s = reader.Number("changes_per_s", kMostPerSecond, 0);
    reader.Require("reads_per_s", "reads_per_s = 0");
    facts.reads_per_s = reader.Number("reads_per_s", kMostPerSecond, 0);
    facts.slowdown = RequireEstimate(reader, table, "slowdown", {kLeastFraction, kMostFraction});
    RefuseTwice(reader, facts_.interference, facts, "[[interference]]",
                "kind, changes_per_s and reads_per_s");
    if (!is_retired) facts_.interference.push_back(facts);
    file_.Keep(reader);
  }

  const toml::table& root_;
  std::string_view name_;
  toml_file::FileReader file_;
  HardwareFacts facts_;
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

// The shortest text that reads back as the same number. TOML has no -0 as a whole number.
std::string Number(double number) { return fmt::format("{}", number == 0 ? 0 : number); }

std::string Inline(const Estimate& estimate) {
  return fmt::format("{{value = {}, low = {}, high = {}, samples = {}}}", Number(estimate.value),
                     Number(estimate.low), Number(estimate.high), estimate.samples);
}

}  // namespace

Result<HardwareFacts> Parse(std::string_view text, std::string_view name) {
  PERSEUS_ASSIGN_OR_RETURN(const auto root, toml_file::Parse(text, name));
  return FactsReader(root, name).Read();
}

std::string Format(const HardwareFacts& facts) {
  std::string text;
  const auto add = [&](std::string_view key, std::string_view value) {
    text += fmt::format("{} = {}\n", key, value);
  };
  const auto add_if = [&](std::string_view key, const std::optional<Estimate>& estimate) {
    if (estimate) add(key, Inline(*estimate));
  };
  add("format", Quoted(kFormat));
  add("version", std::to_string(kVersion));
  add("host", Quoted(facts.host));
  add("gpu_name", Quoted(facts.gpu_name));
  add("driver_version", Quoted(facts.driver_version));
  add("measured_at", Quoted(facts.measured_at));
  add("perseus_version", Quoted(facts.perseus_version));
  add("gpu_count", std::to_string(facts.gpu_count));
  add("nodes", std::to_string(facts.nodes));
  add_if("max_changes_per_s", facts.max_changes_per_s);
  if (facts.range_lock_saves) add("range_lock_saves", *facts.range_lock_saves ? "true" : "false");
  if (!facts.limits.empty()) {
    text += "limits = [\n";
    for (const std::string& sentence : facts.limits) text += "  " + Quoted(sentence) + ",\n";
    text += "]\n";
  }
  for (const SwitchFacts& change : facts.switches) {
    text += "\n[[switch]]\n";
    add("direction", Quoted(change.direction == Direction::kUp ? "up" : "down"));
    add("far", change.is_far ? "true" : "false");
    add("all_gpus", change.all_gpus ? "true" : "false");
    add("latency_ms", Inline(change.latency_ms));
    add("p95_latency_ms", Number(change.p95_latency_ms));
    add("call_ms", Inline(change.call_ms));
    add_if("stall_ms", change.stall_ms);
  }
  for (const PowerFacts& power : facts.power) {
    text += "\n[[power]]\n";
    add("sm_clock_mhz", std::to_string(power.sm_clock_mhz));
    add_if("idle_w", power.idle_w);
    add_if("blocked_w", power.blocked_w);
    add_if("busy_w", power.busy_w);
  }
  if (facts.energy_counter) {
    text += "\n[energy_counter]\n";
    add("period_ms", Inline(facts.energy_counter->period_ms));
    add("resolution_j", Number(facts.energy_counter->resolution_j));
    add("bias", Inline(facts.energy_counter->bias));
  }
  for (const InterferenceFacts& interference : facts.interference) {
    text += "\n[[interference]]\n";
    add("kind", Quoted(interference.kind));
    add("changes_per_s", Number(interference.changes_per_s));
    add("reads_per_s", Number(interference.reads_per_s));
    add("slowdown", Inline(interference.slowdown));
  }
  return text;
}

}  // namespace perseus::hardware_facts

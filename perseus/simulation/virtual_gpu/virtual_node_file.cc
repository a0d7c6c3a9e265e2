#include "perseus/simulation/virtual_gpu/virtual_node_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/base/limits.h"
#include "perseus/base/toml_file.h"
#include "perseus/base/units.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/simulation/synthetic/gpu_roofline.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::virtual_gpu {
namespace {

namespace fs = std::filesystem;
using toml_file::TableReader;

constexpr std::size_t kLongestName = 40;
constexpr std::string_view kNumberOfGpu = "{}";
constexpr int kMostSeed = 1'000'000'000;
constexpr double kLeastRate = 0.001;
constexpr double kMostRate = 1000;
constexpr double kLeastCounterPeriodMs = 0.001;
constexpr double kLeastTimeConstantS = 0.001;
constexpr double kLeastHysteresisC = 0.5;
constexpr double kMostNoise = 0.3;
constexpr double kMostSpread = 2;
constexpr double kMostPowerFactor = 4;
// 95 % of a normal distribution are below the mean plus this number of standard deviations.
constexpr double kDeviationsTo95Percent = 1.6449;
constexpr int kUsualStepMhz = 15;
constexpr int kUsualMemoryClockMhz = 1215;

// A GPU that `model` may name.
struct NamedGpu {
  std::string_view name;
  int lowest_mhz, highest_mhz, step_mhz;
  double blocking_power_w, power_limit_w;
};

// "a40" is in both lists. It means the roofline, which has the clocks of the driver.
std::vector<NamedGpu> NamedGpus() {
  std::vector<NamedGpu> gpus;
  const auto add = [&](const auto& gpu) {
    const auto same_name = [&](const NamedGpu& known) { return known.name == gpu.name; };
    if (std::any_of(gpus.begin(), gpus.end(), same_name)) return;
    gpus.push_back({gpu.name, gpu.lowest_frequency_mhz, gpu.highest_frequency_mhz,
                    gpu.frequency_step_mhz, gpu.blocking_power_w, gpu.power_limit_w});
  };
  for (const synthetic::GpuRoofline& gpu : synthetic::GpuRooflines()) add(gpu);
  for (const synthetic::GpuModel& gpu : synthetic::GpuModels()) add(gpu);
  return gpus;
}

// Makes a list of these clocks. Returns nullopt if there are no clocks or too many.
std::optional<ClockList> MakeClocks(const std::set<int>& clocks_mhz) {
  if (clocks_mhz.empty() || clocks_mhz.size() > kMostClocks) return std::nullopt;
  ClockList list;
  for (const int clock_mhz : clocks_mhz)
    list.mhz[static_cast<std::size_t>(list.count++)] = clock_mhz;
  return list;
}

// Makes a list from the highest clock down in steps, as drivers list them.
std::optional<ClockList> MakeClocks(int lowest_mhz, int highest_mhz, int step_mhz) {
  if ((highest_mhz - lowest_mhz) / step_mhz >= kMostClocks) return std::nullopt;
  std::set<int> clocks_mhz;
  for (int mhz = highest_mhz; mhz >= lowest_mhz; mhz -= step_mhz) clocks_mhz.insert(mhz);
  return MakeClocks(clocks_mhz);
}

// The standard deviation of the logarithm of a log-normal latency with this median and 95th
// percentile.
double SpreadOf(const hardware_facts::SwitchFacts& facts) {
  const double ratio = facts.p95_latency_ms / facts.latency_ms.value;
  if (!std::isfinite(ratio) || ratio <= 1) return 0;
  return std::min(std::log(ratio) / kDeviationsTo95Percent, kMostSpread);
}

int ToMilliwatts(double watts) { return static_cast<int>(std::lround(watts * kMilliwattsPerWatt)); }

bool IsNameLetter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' || letter == '.';
}

class NodeReader {
 public:
  NodeReader(const toml::table& root, const fs::path& path)
      : root_(root), path_(path), file_(path.string()) {}

  Result<VirtualNodeSpec> Read() {
    ReadNode();
    ReadTable("gpu", &NodeReader::ReadGpu);
    ReadTable("switch_latency", &NodeReader::ReadSwitchLatency);
    ReadTable("thermal", &NodeReader::ReadThermal);
    if (error_) return tl::unexpected<Error>(*error_);
    return spec_;
  }

 private:
  void Keep(const TableReader& reader) {
    if (!error_ && reader.error()) error_ = reader.error();
  }

  // Calls `read` with the table of this key, or with an empty table, which gives the defaults.
  void ReadTable(std::string_view key, void (NodeReader::*read)(const toml::table&)) {
    static const toml::table kNone;
    const toml::node* node = root_.get(key);
    if (node != nullptr && !node->is_table()) {
      if (!error_) {
        error_ = Error{fmt::format("{}:{}: {} is not a table (write [{}])", file_,
                                   node->source().begin.line, key, key),
                       ErrorKind::kInput};
      }
      return;
    }
    (this->*read)(node == nullptr ? kNone : *node->as_table());
  }

  void ReadNode() {
    static constexpr std::string_view kKeys[] = {"name",           "gpus",   "state",       "clock",
                                                 "rate",           "seed",   "device_file", "gpu",
                                                 "switch_latency", "thermal"};
    TableReader reader(root_, file_, "the virtual node", kKeys);
    spec_.description = path_;
    spec_.name = reader.Has("name") ? reader.Text("name") : path_.stem().string();
    if (spec_.name.empty() || spec_.name.size() > kLongestName ||
        !std::all_of(spec_.name.begin(), spec_.name.end(), IsNameLetter)) {
      const toml::node* name = root_.get("name");
      reader.FailAt((name != nullptr ? *name : root_).source(),
                    "{} cannot be the name of a node (write name = \"box\": 1 to {} letters, "
                    "digits, dots, dashes and underscores)",
                    Excerpt(spec_.name), kLongestName);
    }
    if (!reader.Has("gpus")) reader.FailHere("the virtual node has no gpus (write gpus = 8)");
    spec_.gpus = reader.Count("gpus", kMostVirtualGpus, 1);
    spec_.state = path_;
    spec_.state += ".state";
    if (reader.Has("state")) spec_.state = path_.parent_path() / reader.Text("state");
    if (reader.Has("clock")) spec_.clock = path_.parent_path() / reader.Text("clock");
    spec_.rate = reader.Number("rate", kMostRate, 1);
    if (spec_.rate < kLeastRate) {
      reader.FailAt("rate", "rate is below {} (write rate = 1)", kLeastRate);
    }
    spec_.seed = static_cast<std::uint64_t>(reader.CountFrom("seed", 0, kMostSeed, 1));
    ReadDeviceFile(reader);
    Keep(reader);
  }

  void ReadDeviceFile(TableReader& reader) {
    if (!reader.Has("device_file")) return;
    const std::string name = reader.Text("device_file");
    const std::size_t number = name.find(kNumberOfGpu);
    if (number == std::string::npos || name.find(kNumberOfGpu, number + 1) != std::string::npos) {
      reader.FailAt("device_file",
                    "device_file does not contain {} exactly once "
                    "(write device_file = \"gpu{}\")",
                    kNumberOfGpu, kNumberOfGpu);
    }
    // The agent may run in another directory.
    spec_.device_file = fs::absolute(path_.parent_path() / name).string();
  }

  void ReadGpu(const toml::table& table) {
    static constexpr std::string_view kKeys[] = {"model",
                                                 "profile",
                                                 "facts",
                                                 "lowest_mhz",
                                                 "highest_mhz",
                                                 "step_mhz",
                                                 "idle_power_w",
                                                 "blocking_power_w",
                                                 "power_limit_w",
                                                 "time_noise",
                                                 "power_noise",
                                                 "late_launches",
                                                 "power_limit_wander",
                                                 "power_factors",
                                                 "least_power_limit_w",
                                                 "most_power_limit_w",
                                                 "counter_period_ms",
                                                 "memory_clocks_mhz"};
    TableReader reader(table, file_, "[gpu]", kKeys);
    ReadClocks(reader);
    ReadMemoryClocks(table, reader);
    if (reader.Has("facts")) ReadFacts(reader);
    VirtualGpuModel& gpu = spec_.gpu;
    gpu.idle_power_w = reader.Number("idle_power_w", kMostWatts, gpu.idle_power_w);
    gpu.blocking_power_w = reader.Number("blocking_power_w", kMostWatts, gpu.blocking_power_w);
    ReadPowerLimits(reader);
    const double period_ms = reader.Number("counter_period_ms", kLongestSeconds, usual_period_ms_);
    if (period_ms < kLeastCounterPeriodMs) {
      reader.FailAt("counter_period_ms",
                    "counter_period_ms is below {} (write "
                    "counter_period_ms = 100)",
                    kLeastCounterPeriodMs);
    }
    gpu.counter_period = FromMilliseconds(period_ms);
    gpu.time_noise = reader.Number("time_noise", kMostNoise, 0);
    gpu.power_noise = reader.Number("power_noise", kMostNoise, 0);
    gpu.late_launches = reader.Number("late_launches", 1, 0);
    gpu.power_limit_wander = reader.Number("power_limit_wander", kMostNoise, 0);
    ReadPowerFactors(table, reader);
    Keep(reader);
  }

  void ReadClocks(TableReader& reader) {
    const bool has_range = reader.Has("lowest_mhz") || reader.Has("highest_mhz");
    if (reader.Has("model") + reader.Has("profile") + has_range != 1) {
      reader.FailHere(
          "[gpu] has to state its clocks in exactly one way (write model = \"a100-sxm\", or "
          "profile = \"profile.csv\", or lowest_mhz = 210 and highest_mhz = 1410)");
      return;
    }
    if (reader.Has("model")) {
      ReadModel(reader);
    } else if (reader.Has("profile")) {
      ReadProfile(reader);
    } else {
      ReadRange(reader);
    }
    if (reader.Has("step_mhz") && !has_range) {
      reader.FailAt("step_mhz",
                    "step_mhz needs lowest_mhz and highest_mhz (remove it, or add both)");
    }
  }

  void ReadModel(TableReader& reader) {
    const std::string model = reader.Text("model");
    std::vector<std::string_view> names;
    for (const NamedGpu& gpu : NamedGpus()) {
      names.push_back(gpu.name);
      if (gpu.name != model) continue;
      spec_.gpu_name = fmt::format("Virtual {}", gpu.name);
      spec_.gpu.sm_clocks = *MakeClocks(gpu.lowest_mhz, gpu.highest_mhz, gpu.step_mhz);
      spec_.gpu.blocking_power_w = gpu.blocking_power_w;
      spec_.gpu.default_power_limit_mw = ToMilliwatts(gpu.power_limit_w);
      return;
    }
    reader.FailAt("model", "model {} is unknown ({})", Excerpt(model), DidYouMean(model, names));
  }

  void ReadProfile(TableReader& reader) {
    const fs::path path = path_.parent_path() / reader.Text("profile");
    const auto text = ReadRegularFile(path);
    const auto profile =
        text ? profile::ParseProfile(*text, path.string()) : Result<profile::Profile>(Fail(text));
    if (!profile) {
      reader.FailAt("profile", profile.error());
      return;
    }
    std::set<int> clocks_mhz;
    for (const profile::ProfileEntry& entry : profile->entries()) {
      for (const profile::Option& option : entry.options) clocks_mhz.insert(option.frequency_mhz);
    }
    const auto clocks = MakeClocks(clocks_mhz);
    if (!clocks) {
      reader.FailAt("profile", "{} has {} clocks (a virtual GPU has at most {})", path.string(),
                    clocks_mhz.size(), kMostClocks);
      return;
    }
    spec_.gpu_name = fmt::format("Virtual GPU of {}", path.filename().string());
    spec_.gpu.sm_clocks = *clocks;
  }

  // The facts give defaults, so they are read before the keys.
  void ReadFacts(TableReader& reader) {
    const auto facts = hardware_facts::Read(path_.parent_path() / reader.Text("facts"));
    if (!facts) {
      reader.FailAt("facts", facts.error());
      return;
    }
    VirtualGpuModel& gpu = spec_.gpu;
    if (const auto power = hardware_facts::IdlePower(*facts)) gpu.idle_power_w = power->value;
    if (const auto power = hardware_facts::BlockingPower(*facts)) {
      gpu.blocking_power_w = power->value;
    }
    if (facts->energy_counter) {
      usual_period_ms_ = std::max(facts->energy_counter->period_ms.value, kLeastCounterPeriodMs);
    }
    if (const hardware_facts::SwitchFacts* slowest = hardware_facts::SlowestSwitch(*facts)) {
      gpu.switch_latency_s = slowest->latency_ms.value / kMillisecondsPerSecond;
      gpu.switch_latency_spread = SpreadOf(*slowest);
    }
  }

  void ReadRange(TableReader& reader) {
    if (!reader.Has("lowest_mhz") || !reader.Has("highest_mhz")) {
      reader.FailHere("[gpu] has only one of lowest_mhz and highest_mhz (write both)");
      return;
    }
    const int lowest_mhz = reader.Count("lowest_mhz", kHighestFrequencyMhz, 210);
    const int highest_mhz = reader.Count("highest_mhz", kHighestFrequencyMhz, 1410);
    const int step_mhz = reader.Count("step_mhz", kHighestFrequencyMhz, kUsualStepMhz);
    const auto clocks = MakeClocks(lowest_mhz, highest_mhz, step_mhz);
    if (!clocks) {
      reader.FailAt("lowest_mhz",
                    "{} to {} MHz in steps of {} are not 1 to {} clocks (write for example "
                    "lowest_mhz = 210, highest_mhz = 1410, step_mhz = 15)",
                    lowest_mhz, highest_mhz, step_mhz, kMostClocks);
      return;
    }
    spec_.gpu_name = "Virtual GPU";
    spec_.gpu.sm_clocks = *clocks;
  }

  void ReadMemoryClocks(const toml::table& table, TableReader& reader) {
    spec_.gpu.memory_clocks = *MakeClocks({kUsualMemoryClockMhz});
    const toml::node* node = table.get("memory_clocks_mhz");
    if (node == nullptr) return;
    std::set<int> clocks_mhz;
    const toml::array* list = node->as_array();
    bool is_good = list != nullptr;
    for (std::size_t i = 0; is_good && i < list->size(); ++i) {
      const auto clock_mhz = (*list)[i].value_exact<std::int64_t>();
      is_good = clock_mhz && *clock_mhz >= 1 && *clock_mhz <= kHighestFrequencyMhz;
      if (is_good) clocks_mhz.insert(static_cast<int>(*clock_mhz));
    }
    if (!is_good || clocks_mhz.size() > kMostClocks) {
      reader.FailAt(
          "memory_clocks_mhz",
          "memory_clocks_mhz is not a list of MHz (write memory_clocks_mhz = [810, 1215])");
      return;
    }
    spec_.gpu.memory_clocks = MakeClocks(clocks_mhz).value_or(ClockList{});
  }

  void ReadPowerFactors(const toml::table& table, TableReader& reader) {
    const toml::node* node = table.get("power_factors");
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    bool is_good = list != nullptr && std::ssize(*list) == spec_.gpus;
    for (std::size_t i = 0; is_good && i < list->size(); ++i) {
      const double factor = (*list)[i].value<double>().value_or(0);
      is_good = factor >= 1 / kMostPowerFactor && factor <= kMostPowerFactor;
      spec_.power_factors.push_back(factor);
    }
    if (is_good) return;
    reader.FailAt("power_factors",
                  "power_factors is not a list of {} numbers from {} to {} (write one number for "
                  "each GPU, such as 1.1 for a GPU that draws 10 % more)",
                  spec_.gpus, 1 / kMostPowerFactor, kMostPowerFactor);
  }

  void ReadPowerLimits(TableReader& reader) {
    VirtualGpuModel& gpu = spec_.gpu;
    const double limit_w =
        reader.Number("power_limit_w", kMostWatts, gpu.default_power_limit_mw / kMilliwattsPerWatt);
    const double least_w = reader.Number("least_power_limit_w", kMostWatts, limit_w / 4);
    const double most_w = reader.Number("most_power_limit_w", kMostWatts, limit_w);
    if (least_w > limit_w || most_w < limit_w) {
      reader.FailAt(least_w > limit_w ? "least_power_limit_w" : "most_power_limit_w",
                    "the power limit of {} W is not between {} and {} W (write power_limit_w "
                    "between least_power_limit_w and most_power_limit_w)",
                    limit_w, least_w, most_w);
    }
    gpu.default_power_limit_mw = ToMilliwatts(limit_w);
    gpu.least_power_limit_mw = ToMilliwatts(least_w);
    gpu.most_power_limit_mw = ToMilliwatts(most_w);
  }

  void ReadSwitchLatency(const toml::table& table) {
    static constexpr std::string_view kKeys[] = {"median_ms", "spread"};
    TableReader reader(table, file_, "[switch_latency]", kKeys);
    VirtualGpuModel& gpu = spec_.gpu;
    gpu.switch_latency_s = reader.Number("median_ms", kLongestSwitchMs,
                                         gpu.switch_latency_s * kMillisecondsPerSecond) /
                           kMillisecondsPerSecond;
    gpu.switch_latency_spread = reader.Number("spread", kMostSpread, gpu.switch_latency_spread);
    Keep(reader);
  }

  void ReadThermal(const toml::table& table) {
    static constexpr std::string_view kKeys[] = {"ambient_c",     "resistance_c_per_w",
                                                 "throttle_at_c", "time_constant_s",
                                                 "resume_at_c",   "throttle_mhz"};
    TableReader reader(table, file_, "[thermal]", kKeys);
    ThermalModel& thermal = spec_.gpu.thermal;
    thermal.ambient_c = reader.Number("ambient_c", 1000, thermal.ambient_c);
    thermal.resistance_c_per_w =
        reader.Number("resistance_c_per_w", 1000, thermal.resistance_c_per_w);
    thermal.time_constant_s =
        reader.Number("time_constant_s", kLongestSeconds, thermal.time_constant_s);
    if (thermal.time_constant_s < kLeastTimeConstantS) {
      reader.FailAt("time_constant_s", "time_constant_s is below {} (write time_constant_s = 20)",
                    kLeastTimeConstantS);
    }
    thermal.throttle_at_c = reader.Number("throttle_at_c", 1e6, thermal.throttle_at_c);
    thermal.resume_at_c = reader.Number("resume_at_c", 1e6, thermal.throttle_at_c - 5);
    if (thermal.resume_at_c > thermal.throttle_at_c - kLeastHysteresisC) {
      reader.FailAt("resume_at_c",
                    "resume_at_c is not at least half a degree below "
                    "throttle_at_c (write resume_at_c = {})",
                    thermal.throttle_at_c - 5);
    }
    thermal.throttle_mhz = reader.CountFrom("throttle_mhz", 1, kHighestFrequencyMhz, 0);
    Keep(reader);
  }

  const toml::table& root_;
  const fs::path& path_;
  std::string file_;
  VirtualNodeSpec spec_;
  double usual_period_ms_ = 100;  // The usual period of the energy counter.
  std::optional<Error> error_;
};

}  // namespace

VirtualGpuModel VirtualNodeSpec::ModelOf(int number) const {
  VirtualGpuModel model = gpu;
  if (!power_factors.empty()) model.power_factor = power_factors[static_cast<std::size_t>(number)];
  return model;
}

Result<VirtualNodeSpec> ParseVirtualNode(std::string_view text, const std::filesystem::path& path) {
  PERSEUS_ASSIGN_OR_RETURN(const auto root, toml_file::Parse(text, path.string()));
  return NodeReader(root, path).Read();
}

std::filesystem::path DeviceFileOf(const VirtualNodeSpec& spec, int gpu) {
  std::string file = spec.device_file;
  if (file.empty()) return {};
  // Replaces the last placeholder, because the directory of the description may contain one, too.
  return file.replace(file.rfind(kNumberOfGpu), kNumberOfGpu.size(), std::to_string(gpu));
}

Result<VirtualNodeSpec> ReadVirtualNode(const std::filesystem::path& path) {
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadRegularFile(path));
  return ParseVirtualNode(text, path);
}

}  // namespace perseus::virtual_gpu

// Measured facts about the clock changes of the GPUs of a node: how long a change takes, what it
// costs others, and what a waiting GPU draws. `perseus qualify` measures them and writes the
// hardware facts file (TOML; docs/formats.md, "Hardware facts"). `plan`, `tune`, `job register`,
// `agent` and virtual nodes read the file.
//
// A value is either measured or absent: no reader fills in a default. Each measured value has the
// interval that its samples support (Estimate), so a reader knows how reliable the value is.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"

namespace perseus::hardware_facts {

inline constexpr int kMostSamples = 1'000'000'000;

// A measured value with its 95 % interval: low <= value <= high.
struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;
  int samples = 1;  // 1 to kMostSamples.
  friend bool operator==(const Estimate&, const Estimate&) = default;
};

enum class Direction { kUp, kDown };

// The results for one case of a clock change. In each list below, elements have different keys.
struct SwitchFacts {
  Direction direction = Direction::kUp;
  bool is_far = false;    // Across most clocks of the GPU; otherwise to a neighboring clock.
  bool all_gpus = false;  // All GPUs of the node change at once; otherwise one GPU alone.
  Estimate latency_ms;    // The median, from the start of the call until the GPU has the clock.
  double p95_latency_ms = 0;
  Estimate call_ms;  // The median duration of the driver's call.
  // The mean time for which a change stops the work of a GPU. nullopt in facts of earlier versions,
  // and without a kernel that shows the work.
  std::optional<Estimate> stall_ms = {};
  auto key() const { return std::tuple(direction, is_far, all_gpus); }
  friend bool operator==(const SwitchFacts&, const SwitchFacts&) = default;
};

// The mean power of one GPU, with its SM clock locked.
struct PowerFacts {
  int sm_clock_mhz = 0;
  std::optional<Estimate> idle_w;     // No work.
  std::optional<Estimate> blocked_w;  // A kernel waits for a neighbor: the blocking power.
  std::optional<Estimate> busy_w;     // It computes.
  auto key() const { return sm_clock_mhz; }
  friend bool operator==(const PowerFacts&, const PowerFacts&) = default;
};

// The energy counter of a GPU.
struct EnergyCounterFacts {
  Estimate period_ms;       // The median time between two changes of the counter.
  double resolution_j = 0;  // The smallest step of the counter.
  Estimate bias;            // (counter - integral of the power readings) / integral: a fraction.
  friend bool operator==(const EnergyCounterFacts&, const EnergyCounterFacts&) = default;
};

// How much longer work takes while clocks are changed and read.
struct InterferenceFacts {
  std::string kind;  // One of InterferenceKinds().
  double changes_per_s = 0;
  double reads_per_s = 0;
  Estimate slowdown;  // A fraction of the time without changes and reads. Noise can make it < 0.
  auto key() const { return std::tuple(kind, changes_per_s, reads_per_s); }
  friend bool operator==(const InterferenceFacts&, const InterferenceFacts&) = default;
};

struct HardwareFacts {
  std::string host;
  std::string gpu_name;
  std::string driver_version;
  std::string measured_at;  // RFC 3339, UTC, in seconds: "2026-02-22T17:05:00Z".
  std::string perseus_version;
  int gpu_count = 1;  // GPUs of one node.
  int nodes = 1;      // Above 1: an earlier version merged the facts of `nodes` nodes.
  std::vector<SwitchFacts> switches;
  // The highest rate of clock changes on the whole node that does not harm the work. Measurements
  // show that `value` is harmless. `high` is the lowest rate that was shown to harm, or the highest
  // rate that was tried.
  std::optional<Estimate> max_changes_per_s;
  std::vector<PowerFacts> power;
  std::optional<EnergyCounterFacts> energy_counter;
  std::vector<InterferenceFacts> interference;
  std::vector<std::string> limits;  // Sentences: what else limits the clocks.
  // Whether a lock with min < max allows a waiting GPU to lower its clock.
  std::optional<bool> range_lock_saves;
  friend bool operator==(const HardwareFacts&, const HardwareFacts&) = default;
};

// "launch", "kernel", "copy", "collective".
std::vector<std::string_view> InterferenceKinds();

// ---- The file ----

// Parses a hardware facts file. `name` is the name of the file in messages. Unknown keys, missing
// keys, wrong types, and values out of range are errors (kInput) with the file and the line.
Result<HardwareFacts> Parse(std::string_view text, std::string_view name);

// Returns a text from which Parse returns equal facts. Requires facts that Parse accepts: texts of
// one printable line, finite numbers, samples >= 1, low <= value <= high.
std::string Format(const HardwareFacts& facts);

Result<HardwareFacts> Read(const std::filesystem::path& path);

// Fails (kInput) if Parse would refuse the facts. So if a file exists, it can be read. Replaces the
// whole file or changes nothing.
Result<void> Write(const std::filesystem::path& path, const HardwareFacts& facts);

// ---- Values of many ----

// Returns the median of the values, with an interval that covers all their intervals. Requires at
// least one estimate.
Estimate Combine(const std::vector<Estimate>& estimates);

// Returns the least of the values, with the least of the lower ends and the least of the upper
// ends. Requires at least one estimate.
Estimate LeastOf(const std::vector<Estimate>& estimates);

// ---- Values for planning ----

// The case with the largest median latency. Null if no case was measured.
const SwitchFacts* SlowestSwitch(const HardwareFacts& facts);

// Returns the latency for planning: the median of the slowest case. nullopt if no case was
// measured.
//
// The planner uses one latency for every change of every GPU. It is the latency of the slowest
// case, because a plan changes clocks in both directions, near and far, and often on all GPUs of a
// node at once. For such a change, a sample is the latency of the slowest GPU. This is what counts
// for the GPUs of a stage (tensor parallel), because they wait for each other. The value is the
// median of this case, not the 95th percentile. An iteration has hundreds of changes, so their
// typical latency decides its time and energy. With a latency that 19 of 20 changes do not reach,
// the plan would miss changes that save energy. If each single change has to meet a limit, use
// p95_latency_ms.
std::optional<Nanoseconds> SwitchLatencyForPlanning(const HardwareFacts& facts);

// Returns the stall for planning: the mean of the case with the longest stalls. It is a mean,
// because the stalls of a plan add up. nullopt if no case was measured.
std::optional<Nanoseconds> SwitchStallForPlanning(const HardwareFacts& facts);

// Returns the power of a waiting GPU, in watts: the median over the measured clocks, with an
// interval that covers all these clocks. A job has only one blocking power, but the GPUs of a plan
// wait at many clocks. nullopt if the power was not measured.
std::optional<Estimate> BlockingPower(const HardwareFacts& facts);

// The power of a GPU without work, in watts, in the same way.
std::optional<Estimate> IdlePower(const HardwareFacts& facts);

// The greatest rate of clock changes of one GPU, per second: the rate of the node, shared equally
// by its GPUs. nullopt if the rate was not measured.
std::optional<double> MostChangesOfGpu(const HardwareFacts& facts);

}  // namespace perseus::hardware_facts

// The parts of a qualification, and the data that they share: the node, what is possible on the
// node, and the result so far.
//
// A part returns an error only if the whole qualification has to end. Otherwise, a part leaves out
// what it cannot measure, and adds a sentence to the limits.
//
// Thread safety: use it only on the thread of the node.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/runtime/qualifier/estimates.h"
#include "perseus/runtime/qualifier/measured_node.h"
#include "perseus/runtime/qualifier/qualification.h"

namespace perseus::qualifier {

// A near switch is between top_mhz and near_mhz. A far switch is between top_mhz and far_mhz. The
// clock below top_mhz in the list is below_mhz.
struct SwitchClocks {
  int top_mhz = 0, below_mhz = 0, near_mhz = 0, far_mhz = 0;
};
// The clock of a far switch as a fraction of the top clock. It is above the clocks at which GPUs
// also change the memory clock.
inline constexpr double kFarPart = 0.4;
// Returns the clocks with the highest top_mhz that is at most `most_mhz`, or nullopt if the list
// has fewer than three clocks up to there.
std::optional<SwitchClocks> ChooseSwitchClocks(const std::vector<int>& clocks_mhz, int most_mhz);

// One value of all GPUs of a node, and the GPUs whose values differ from those of their siblings.
//
// A GPU differs if its whole 95 % interval is farther from the median m of all GPUs than
// max(5 * MAD, 10 % of m), where MAD is the median of |value - m|. For fractions, the bound is at
// least 0.01.
//
//  - Median and MAD are robust: less than half of the GPUs differ by this rule, however far their
//    values are from the median. For normal noise, 5 MAD are 3.4 standard deviations. If GPUs are
//    nearly equal, MAD is near 0. Then the 10 % prevent reports of differences that matter to no
//    plan.
//  - Two GPUs have no majority. If they differ from each other, one difference names both GPUs, and
//    both values count.
class Siblings {
 public:
  // The names of the GPUs, in the order of the estimates.
  explicit Siblings(std::vector<std::string> names) : names_(std::move(names)) {}

  // Returns the median of the GPUs that do not differ, with an interval that covers their
  // intervals. Returns nullopt if a GPU has no estimate. `what` completes "its ... is": "busy power
  // at 1410 MHz". `unit`: "ms", "W", or "%" for fractions.
  std::optional<Estimate> Combine(const std::string& what, std::string_view unit,
                                  const std::vector<std::optional<Estimate>>& estimates);

  // One sentence for each GPU that differed, with its first difference.
  const std::vector<std::string>& differences() const { return differences_; }

 private:
  void Add(const std::string& who, std::string difference);

  std::vector<std::string> names_;
  std::vector<std::string> named_;
  std::vector<std::string> differences_;
};

// Whether the driver reports the power of this GPU alone.
inline bool HasPower(const device::Telemetry& telemetry) {
  return telemetry.power_w && telemetry.scope == device::PowerScope::kGpu;
}

struct QualifyRun {
  QualifyRun(MeasuredNode& measured, const QualifyOptions& wanted);

  // Reports that a part begins.
  void Progress(std::string_view label) const;
  // Adds a sentence to the limits, unless they already contain it.
  void Limit(std::string sentence);
  // Fails if the caller requested a stop.
  Result<void> CheckStop() const;
  // Returns kCompute if the node can run this load. Otherwise returns kIdle.
  Load BusyLoad() const;
  // Returns the duration of this fraction of the whole qualification.
  Nanoseconds DurationOf(double fraction) const;
  // All clocks of a GPU, ascending.
  const std::vector<int>& clocks_mhz() const { return node.device(0).info().sm_clocks_mhz; }

  MeasuredNode& node;
  const QualifyOptions& options;
  const Nanoseconds begin;
  bool can_set = false;  // Whether clocks can be set.
  bool can_read = true;  // Whether power and clocks can be read.
  SwitchClocks clocks;   // Only valid if can_set.
  Siblings siblings;
  Qualification result;
};

// `part` is the fraction of the whole duration that a measurement may take.

// Measures the energy counters of all GPUs at once, under load: period, resolution and bias.
// Requires can_read.
Result<void> MeasureCounter(QualifyRun& run, double part);

// Measures the power of all GPUs at once: idle, blocked and busy, at several clocks. Also finds
// whether a waiting GPU draws less with a lock of a range of clocks than with a lock of one clock.
// Requires can_read. Without can_set, measures only at the clock that the driver chooses.
//
// With can_set, lowers the top of `clocks` to the highest clock that all GPUs keep while they
// compute. The power limit of a GPU may not allow the highest clock of its list. Then a change
// between two clocks that the GPU does not reach cannot be seen in its work.
Result<void> MeasurePower(QualifyRun& run, double part);

// Measures the time from the request of a clock to its landing (estimates.h): up and down, near and
// far, one GPU, and all GPUs at once. Also measures how long the call takes. Requires can_set, and
// a node on which a landing can be seen: in a kernel that computes, or in readings.
Result<void> MeasureSwitches(QualifyRun& run, double part);

// Measures how much clock changes and readings slow down the work that runs beside them. From this
// result, finds the greatest rate of changes that harms no operation.
Result<void> MeasureInterference(QualifyRun& run);

}  // namespace perseus::qualifier

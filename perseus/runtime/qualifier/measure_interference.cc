// The part of a qualification that times operations beside clock changes (qualify_run.h).
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "perseus/runtime/qualifier/qualify_run.h"

namespace perseus::qualifier {
namespace {

constexpr Nanoseconds kChangePeriods[] = {
    1000 * kMillisecond, 500 * kMillisecond, 200 * kMillisecond, 100 * kMillisecond,
    50 * kMillisecond,   20 * kMillisecond,  10 * kMillisecond};
constexpr Nanoseconds kQuietBlock = 250 * kMillisecond;
constexpr int kLeastPairs = 4;
constexpr double kUsualPairs = 6;
constexpr double kUsualDuration = 300;
// Neighboring rounds share a quiet block, so their ratios are not independent. If all blocks have
// the same noise, the variance of the mean of n ratios is 2 / n of the variance of a block. For
// independent ratios, it would be 1.5 / n. So an interval is wider by the root of 4 / 3.
constexpr double kSharedBlocks = 1.155;
// A rate counts as tried if the driver reaches this fraction of it.
constexpr double kReachedPart = 0.9;

// One disturbance of an operation, and its comparison with the quiet operation.
//
// Blocks without and with the disturbance alternate, so that a slow drift (heat) affects both kinds
// of blocks. Each pair of blocks gives one ratio of the mean time of an operation, and the ratios
// give an interval. The comparison uses the mean, not the median. Suppose a driver delays one
// launch in a thousand by 10 ms. Then the median does not change, but a collective waits for that
// launch.
struct DisturbedCase {
  Disturbance disturbance;
  bool is_reached = true;   // False: the driver made fewer changes than requested.
  double disturbed_ns = 0;  // The time in the current round.
  std::vector<double> slowdowns = {};
};

class InterferenceMeasurement {
 public:
  explicit InterferenceMeasurement(QualifyRun& run) : run_(run) {}

  Result<void> Measure() {
    std::vector<Estimate> harmless;
    for (const Operation operation : kAllOperations) {
      run_.Progress(fmt::format("interference: {}", NameOf(operation)));
      const std::string why = run_.node.WhyNot(operation);
      if (!why.empty()) {
        run_.Limit(
            fmt::format("The operation \"{}\" was not measured: {}.", NameOf(operation), why));
        continue;
      }
      PERSEUS_ASSIGN_OR_RETURN(const auto rates, MeasureOperation(operation));
      if (rates.empty()) continue;
      harmless.push_back(HarmlessRate(rates));
      if (harmless.back().value == 0) NoteNoHarmlessRate(operation, rates.front());
    }
    if (!harmless.empty()) run_.result.facts.max_changes_per_s = hardware_facts::LeastOf(harmless);
    if (most_changes_per_s_ > 0) {
      run_.Limit(
          fmt::format("The driver managed at most {:.3g} changes a second of the whole node, so "
                      "higher rates were not measured.",
                      most_changes_per_s_));
    }
    return {};
  }

 private:
  void NoteNoHarmlessRate(Operation operation, const RateSlowdown& least) {
    if (least.slowdown.low > kHarmfulSlowdown) {
      run_.Limit(fmt::format("Even {:.3g} changes a second harm the operation \"{}\".",
                             least.changes_per_s, NameOf(operation)));
    } else {
      run_.Limit(fmt::format(
          "No rate is shown to be harmless for the operation \"{}\": at {:.3g} changes "
          "a second, it may take up to {:.2g} % longer (a longer measurement tells more).",
          NameOf(operation), least.changes_per_s, 100 * least.slowdown.high));
    }
  }

  int Pairs() const {
    const double pairs = kUsualPairs * run_.options.duration_s / kUsualDuration;
    return std::max(kLeastPairs, static_cast<int>(std::lround(pairs)));
  }

  // The changes alternate between two neighboring clocks.
  Disturbance Quiet() const {
    if (!run_.can_set) return {};
    return {.change_period = 0,
            .first_mhz = run_.clocks.top_mhz,
            .second_mhz = run_.clocks.below_mhz,
            .reads_per_s = 0};
  }

  // Computes the slowdowns of the cases. A round is one block of each case, between two quiet
  // blocks. The rounds before and after share these quiet blocks.
  Result<void> RunRounds(Operation operation, std::vector<DisturbedCase>& cases) {
    if (cases.empty()) return {};
    const Disturbance quiet = Quiet();
    PERSEUS_ASSIGN_OR_RETURN(auto before, run_.node.Time(operation, quiet, kQuietBlock));
    for (int round = 0; round < Pairs(); ++round) {
      bool is_reached = true;  // Higher rates come later in the list.
      for (DisturbedCase& one : cases) {
        PERSEUS_RETURN_IF_ERROR(run_.CheckStop());
        one.is_reached = one.is_reached && is_reached;
        if (!one.is_reached) continue;
        // A block has an even number of changes. So both clocks have half of the time, and a block
        // ends at the clock at which it began.
        const Nanoseconds period = one.disturbance.change_period;
        const Nanoseconds block =
            period == 0 ? kQuietBlock
                        : 2 * period * std::max<Nanoseconds>(1, kQuietBlock / (2 * period));
        PERSEUS_ASSIGN_OR_RETURN(const auto timed,
                                 run_.node.Time(operation, one.disturbance, block));
        one.disturbed_ns = timed.mean_ns;
        if (timed.changes_per_s < kReachedPart * ChangesPerSecond(period)) {
          most_changes_per_s_ = std::max(most_changes_per_s_, timed.changes_per_s);
          one.is_reached = is_reached = false;
        }
      }
      PERSEUS_RETURN_IF_ERROR(run_.CheckStop());
      PERSEUS_ASSIGN_OR_RETURN(const auto after, run_.node.Time(operation, quiet, kQuietBlock));
      const double quiet_ns = (before.mean_ns + after.mean_ns) / 2;
      for (DisturbedCase& one : cases) {
        if (one.is_reached) one.slowdowns.push_back(one.disturbed_ns / quiet_ns - 1);
      }
      before = after;
    }
    return {};
  }

  // Returns the node's rate: every GPU changes its clock once a period.
  double ChangesPerSecond(Nanoseconds period) const {
    return period == 0 ? 0 : run_.node.gpu_count() / ToSeconds(period);
  }

  // Adds the slowdowns to the facts, and returns the slowdowns of the cases with changes.
  Result<std::vector<RateSlowdown>> MeasureOperation(Operation operation) {
    std::vector<DisturbedCase> cases;
    Disturbance disturbed = Quiet();
    disturbed.reads_per_s = run_.options.reads_per_s;
    if (run_.can_read) cases.push_back({disturbed});
    disturbed.reads_per_s = 0;
    for (const Nanoseconds period : kChangePeriods) {
      if (!run_.can_set) break;
      disturbed.change_period = period;
      cases.push_back({disturbed});
    }
    PERSEUS_RETURN_IF_ERROR(RunRounds(operation, cases));
    std::vector<RateSlowdown> rates;
    for (const DisturbedCase& one : cases) {
      auto slowdown = one.is_reached ? MeanOf(one.slowdowns) : std::nullopt;
      if (!slowdown) continue;
      slowdown->low =
          std::max(-1.0, slowdown->value - kSharedBlocks * (slowdown->value - slowdown->low));
      slowdown->high = slowdown->value + kSharedBlocks * (slowdown->high - slowdown->value);
      const double changes_per_s = ChangesPerSecond(one.disturbance.change_period);
      run_.result.facts.interference.push_back({.kind = std::string(NameOf(operation)),
                                                .changes_per_s = changes_per_s,
                                                .reads_per_s = one.disturbance.reads_per_s,
                                                .slowdown = *slowdown});
      if (changes_per_s > 0) rates.push_back({changes_per_s, *slowdown});
    }
    return rates;
  }

  QualifyRun& run_;
  double most_changes_per_s_ = 0;  // The reached rate, if it is below the requested rate.
};

}  // namespace

Result<void> MeasureInterference(QualifyRun& run) { return InterferenceMeasurement(run).Measure(); }

}  // namespace perseus::qualifier

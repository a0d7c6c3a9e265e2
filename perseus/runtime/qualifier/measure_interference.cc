// The part of a qualification that times operations beside clock changes (qualify_run.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
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
constexpr double kReachedPart = 0.9;  // Of a rate of changes, so that it counts as tried.

// Several disturbances of one operation, each compared with the quiet operation.
struct DisturbedCase {
  Operation operation;
  Disturbance disturbance;
  bool is_reached = true;   // False: the driver did not manage so many changes.
  double disturbed_ns = 0;  // In the current round.
  std::vector<BlockPair> pairs = {};
};

class InterferenceMeasurement {
 public:
  explicit InterferenceMeasurement(QualifyRun& run) : run_(run) {}

  Result<void> Measure(PartOfRun part) {
    double from = part.from;
    std::vector<Estimate> harmless;
    for (const Operation operation : kAllOperations) {
      run_.options.progress(fmt::format("interference: {}", NameOf(operation)), from);
      from += part.length / static_cast<double>(std::size(kAllOperations));
      const std::string why = run_.node.WhyNot(operation);
      if (!why.empty()) {
        run_.Limit(
            fmt::format("The operation \"{}\" was not measured: {}.", NameOf(operation), why));
        continue;
      }
      if (operation == Operation::kHostFunction) {
        PERSEUS_RETURN_IF_ERROR(MeasureHostFunction());
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
          "a second, it may take up to {:.2g} % longer (a longer --duration tells more).",
          NameOf(operation), least.changes_per_s, 100 * least.slowdown.high));
    }
  }

  int Pairs() const {
    const double pairs = kUsualPairs * run_.options.duration_s / kUsualDuration;
    return std::max(kLeastPairs, static_cast<int>(std::lround(pairs)));
  }

  // The clocks between which the changes alternate are neighbors.
  Disturbance Quiet() const {
    if (!run_.can_set) return {};
    const auto& clocks_mhz = run_.clocks_mhz();
    return {.change_period = 0,
            .first_mhz = clocks_mhz.back(),
            .second_mhz = clocks_mhz[clocks_mhz.size() - 2],
            .reads_per_s = 0};
  }

  // Fills in the pairs of the cases. A round is one block of each case, between two quiet blocks of
  // `quiet_operation`, which are shared with the rounds before and after. So a slow drift (heat)
  // affects both sides of a pair.
  Result<void> RunRounds(Operation quiet_operation, std::vector<DisturbedCase>& cases) {
    if (cases.empty()) return {};
    const Disturbance quiet = Quiet();
    PERSEUS_ASSIGN_OR_RETURN(auto before, run_.node.Time(quiet_operation, quiet, kQuietBlock));
    for (int round = 0; round < Pairs(); ++round) {
      bool is_reached = true;  // Higher rates come later.
      for (DisturbedCase& one : cases) {
        PERSEUS_RETURN_IF_ERROR(run_.CheckStop());
        one.is_reached = one.is_reached && is_reached;
        if (!one.is_reached) continue;
        // Whole periods, so that every block has the same number of changes.
        const Nanoseconds period = one.disturbance.change_period;
        const Nanoseconds block =
            period == 0 ? kQuietBlock : period * std::max<Nanoseconds>(2, kQuietBlock / period);
        PERSEUS_ASSIGN_OR_RETURN(const auto timed,
                                 run_.node.Time(one.operation, one.disturbance, block));
        one.disturbed_ns = timed.mean_ns;
        if (timed.changes_per_s < kReachedPart * ChangesPerSecond(period)) {
          most_changes_per_s_ = std::max(most_changes_per_s_, timed.changes_per_s);
          one.is_reached = is_reached = false;
        }
      }
      PERSEUS_RETURN_IF_ERROR(run_.CheckStop());
      PERSEUS_ASSIGN_OR_RETURN(const auto after,
                               run_.node.Time(quiet_operation, quiet, kQuietBlock));
      for (DisturbedCase& one : cases) {
        if (!one.is_reached) continue;
        one.pairs.push_back(
            {.quiet_ns = (before.mean_ns + after.mean_ns) / 2, .disturbed_ns = one.disturbed_ns});
      }
      before = after;
    }
    return {};
  }

  // The node's rate: every GPU changes once a period.
  double ChangesPerSecond(Nanoseconds period) const {
    return period == 0 ? 0 : run_.node.gpu_count() / ToSeconds(period);
  }

  // Adds the result of a case to the facts, and returns it. Empty if the rate was not reached.
  std::optional<Estimate> AddInterference(const DisturbedCase& one) {
    if (!one.is_reached) return std::nullopt;
    auto slowdown = SlowdownOf(one.pairs);
    if (!slowdown) return std::nullopt;
    slowdown->low = std::max(-1.0, slowdown->low);
    const double changes_per_s = ChangesPerSecond(one.disturbance.change_period);
    run_.result.facts.interference.push_back({.kind = std::string(NameOf(one.operation)),
                                              .changes_per_s = changes_per_s,
                                              .reads_per_s = one.disturbance.reads_per_s,
                                              .slowdown = *slowdown});
    return slowdown;
  }

  Result<std::vector<RateSlowdown>> MeasureOperation(Operation operation) {
    std::vector<DisturbedCase> cases;
    Disturbance disturbed = Quiet();
    disturbed.reads_per_s = run_.options.reads_per_s;
    if (run_.can_read) cases.push_back({operation, disturbed});
    disturbed.reads_per_s = 0;
    for (const Nanoseconds period : kChangePeriods) {
      if (!run_.can_set) break;
      disturbed.change_period = period;
      cases.push_back({operation, disturbed});
    }
    PERSEUS_RETURN_IF_ERROR(RunRounds(operation, cases));
    std::vector<RateSlowdown> rates;
    for (const DisturbedCase& one : cases) {
      const auto slowdown = AddInterference(one);
      if (!slowdown || one.disturbance.change_period == 0) continue;
      rates.push_back({ChangesPerSecond(one.disturbance.change_period), *slowdown});
    }
    return rates;
  }

  // What a launch behind a host function costs more than a launch.
  Result<void> MeasureHostFunction() {
    std::vector<DisturbedCase> cases = {{Operation::kHostFunction, Quiet()}};
    PERSEUS_RETURN_IF_ERROR(RunRounds(Operation::kLaunch, cases));
    AddInterference(cases.front());
    return {};
  }

  QualifyRun& run_;
  double most_changes_per_s_ = 0;  // That the driver managed, if it was fewer than asked for.
};

}  // namespace

Result<void> MeasureInterference(QualifyRun& run, PartOfRun part) {
  return InterferenceMeasurement(run).Measure(part);
}

}  // namespace perseus::qualifier

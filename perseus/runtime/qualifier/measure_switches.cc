// The part of a qualification that times clock changes (qualify_run.h).
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "perseus/runtime/qualifier/estimates.h"
#include "perseus/runtime/qualifier/qualify_run.h"

namespace perseus::qualifier {
namespace {

using device::Setting;
using hardware_facts::Direction;

constexpr Nanoseconds kBeforeSwitch = 5 * kMillisecond;
constexpr Nanoseconds kAfterSwitch = 30 * kMillisecond;
constexpr Nanoseconds kLongestSwitch = 2 * kSecond;
constexpr int kLeastRounds = 8;
constexpr int kMostRounds = 80;  // Enough to enclose the 95th percentile (IsEnclosed).
constexpr int kMostUnseen = 2;
// The number of rounds after which a load kernel is started again. A load kernel ends by itself
// after ten minutes (cuda_node.h).
constexpr int kRoundsOfALoad = 10;

double AsMs(Nanoseconds time) { return static_cast<double>(time) / kMillisecond; }

struct SwitchCase {
  Direction direction;
  bool is_far;
  int from_mhz, to_mhz;
  std::vector<double> latencies_ms, calls_ms, stalls_ms;
  int unseen = 0;
};

// The cases in pairs: from the top clock to another clock, and back.
std::vector<SwitchCase> CasesOf(const SwitchClocks& clocks) {
  std::vector<SwitchCase> cases;
  for (const bool is_far : {true, false}) {
    const int other_mhz = is_far ? clocks.far_mhz : clocks.near_mhz;
    cases.push_back({Direction::kDown, is_far, clocks.top_mhz, other_mhz, {}, {}, {}});
    cases.push_back({Direction::kUp, is_far, other_mhz, clocks.top_mhz, {}, {}, {}});
  }
  return cases;
}

// Something else may limit the clock (heat, power). Then some switches cannot be seen. If far
// switches cannot be seen, near switches that are seen are noise.
bool CanSee(const std::vector<SwitchCase>& cases, bool is_far) {
  return std::ranges::all_of(cases, [is_far](const SwitchCase& one) {
    return (is_far && !one.is_far) || one.unseen < kMostUnseen || !one.latencies_ms.empty();
  });
}

// The result of one switch, from the records of all its GPUs.
struct SeenSwitch {
  bool has_landed = true;         // True only if it is certain for every GPU.
  Nanoseconds latency = 0;        // The time from the call to the latest landing of a GPU.
  double stall_ms = 0;            // The mean stall of the GPUs.
  Nanoseconds call = 0;           // The longest call.
  double sample_distance_ms = 0;  // The largest mean distance between two samples of a GPU's work.
};

SeenSwitch Examine(const std::vector<SwitchRecord>& records, double ratio) {
  SeenSwitch seen;
  for (const auto& [call_begin, call_end, samples] : records) {
    const auto landing = FindLanding(samples, {call_begin, ratio});
    // If too little work follows the detected landing, the detection may be noise of the last
    // samples.
    seen.has_landed = seen.has_landed && landing && samples.back().at - landing->at >= kStallWindow;
    if (landing) {
      seen.latency = std::max(seen.latency, landing->at - call_begin);
      seen.stall_ms += AsMs(landing->stall) / static_cast<double>(records.size());
    }
    seen.call = std::max(seen.call, call_end - call_begin);
    if (samples.size() < 2) continue;
    seen.sample_distance_ms =
        std::max(seen.sample_distance_ms, AsMs(samples.back().at - samples.front().at) /
                                              static_cast<double>(samples.size() - 1));
  }
  return seen;
}

class SwitchMeasurement {
 public:
  explicit SwitchMeasurement(QualifyRun& run) : run_(run) {}

  Result<void> MeasureAll(double part) {
    const bool has_several = run_.node.gpu_count() > 1;
    const Nanoseconds budget = run_.DurationOf(has_several ? part / 2 : part);
    PERSEUS_RETURN_IF_ERROR(Measure(1, budget));
    if (has_several) PERSEUS_RETURN_IF_ERROR(Measure(run_.node.gpu_count(), budget));
    if (has_few_switches_) {
      run_.Limit(
          "Some cases have fewer than 72 switches, too few for an upper bound of their 95th "
          "percentile.");
    }
    PERSEUS_RETURN_IF_ERROR(run_.node.LockAll(run_.clocks.top_mhz));
    return run_.node.RunOnAll(Load::kIdle);
  }

 private:
  // Measures switches of the first `gpus` GPUs at once.
  Result<void> Measure(int gpus, Nanoseconds budget) {
    const bool are_all = gpus > 1;
    std::vector<SwitchCase> cases = CasesOf(run_.clocks);
    PERSEUS_RETURN_IF_ERROR(run_.node.LockAll(run_.clocks.top_mhz));
    const Nanoseconds end = run_.node.clock().Now() + budget;
    for (int round = 0; round < kMostRounds; ++round) {
      if (round >= kLeastRounds && run_.node.clock().Now() >= end) break;
      if (round % kRoundsOfALoad == 0) {
        PERSEUS_RETURN_IF_ERROR(run_.node.RunOnAll(run_.BusyLoad()));
        // The previous lock may not be in effect yet.
        if (round == 0) Sleep(run_.node.clock(), kLongestSwitch);
      }
      run_.Progress(are_all ? "switches of all GPUs" : "switches of one GPU");
      if (!CanSee(cases, /*is_far=*/true)) break;
      const bool has_near = CanSee(cases, /*is_far=*/false);
      for (SwitchCase& one : cases) {
        if (one.is_far || has_near) PERSEUS_RETURN_IF_ERROR(MeasureSwitch(gpus, one));
      }
    }
    const bool has_near = CanSee(cases, /*is_far=*/false);
    for (const SwitchCase& one : cases) {
      NoteUnseen(one, are_all);
      if (one.is_far || has_near) AddFacts(one, are_all);
    }
    return {};
  }

  // Measures one switch. If there are several GPUs, the slowest GPU counts, so that samples are
  // independent.
  Result<void> MeasureSwitch(int gpus, SwitchCase& one) {
    PERSEUS_RETURN_IF_ERROR(run_.CheckStop());
    PERSEUS_ASSIGN_OR_RETURN(auto records, run_.node.Record(gpus, Setting{one.to_mhz, one.to_mhz},
                                                            kBeforeSwitch, kAfterSwitch));
    const double ratio = static_cast<double>(one.to_mhz) / one.from_mhz;
    Nanoseconds watched = kAfterSwitch;
    SeenSwitch seen = Examine(records, ratio);
    while (!seen.has_landed && watched < kLongestSwitch) {
      PERSEUS_ASSIGN_OR_RETURN(const auto more, run_.node.Record(gpus, std::nullopt, 0, watched));
      for (std::size_t i = 0; i < records.size(); ++i) {
        records[i].samples.insert(records[i].samples.end(), more[i].samples.begin(),
                                  more[i].samples.end());
      }
      watched *= 2;
      seen = Examine(records, ratio);
    }
    sample_distance_ms_ = std::max(sample_distance_ms_, seen.sample_distance_ms);
    one.calls_ms.push_back(AsMs(seen.call));
    if (seen.has_landed) {
      one.latencies_ms.push_back(AsMs(seen.latency));
      one.stalls_ms.push_back(seen.stall_ms);
    } else {
      ++one.unseen;
    }
    return {};
  }

  void NoteUnseen(const SwitchCase& one, bool are_all) {
    if (one.unseen == 0) return;
    run_.Limit(fmt::format(
        "{} of {} {} switches {} of {} were not seen in the work of the GPU within {:.0f} s.",
        one.unseen, one.calls_ms.size(), one.is_far ? "far" : "near",
        one.direction == Direction::kUp ? "up" : "down", are_all ? "all GPUs" : "one GPU",
        ToSeconds(kLongestSwitch)));
  }

  void AddFacts(const SwitchCase& one, bool are_all) {
    auto latency = MedianOf(one.latencies_ms);
    const auto call = MedianOf(one.calls_ms);
    if (!latency || !call) return;
    // A landing lies between two samples.
    latency->low = std::max(0.0, latency->low - sample_distance_ms_);
    latency->high += sample_distance_ms_;
    if (!IsEnclosed(static_cast<int>(one.latencies_ms.size()), 0.95)) has_few_switches_ = true;
    run_.result.facts.switches.push_back(
        {.direction = one.direction,
         .is_far = one.is_far,
         .all_gpus = are_all,
         .latency_ms = *latency,
         .p95_latency_ms = QuantileOf(one.latencies_ms, 0.95)->value,
         .call_ms = *call,
         .stall_ms = StallOf(one)});
  }

  // Without a kernel, nobody sees whether the GPU stops.
  std::optional<Estimate> StallOf(const SwitchCase& one) const {
    if (run_.BusyLoad() != Load::kCompute) return std::nullopt;
    const auto stall = MeanOf(one.stalls_ms);
    // Less missing work than this is noise.
    const double unsure_ms = kLeastMissing * sample_distance_ms_;
    return Estimate{.value = std::max(0.0, stall->value),
                    .low = std::max(0.0, stall->low - unsure_ms),
                    .high = std::max(0.0, stall->high) + unsure_ms,
                    .samples = stall->samples};
  }

  QualifyRun& run_;
  double sample_distance_ms_ = 0;  // The largest distance so far.
  bool has_few_switches_ = false;  // In at least one case.
};

}  // namespace

Result<void> MeasureSwitches(QualifyRun& run, double part) {
  return SwitchMeasurement(run).MeasureAll(part);
}

}  // namespace perseus::qualifier

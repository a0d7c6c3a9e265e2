// What one GPU of a job has shown, step by step: mean times with intervals, powers with intervals,
// the power of waiting, and what has changed since.
//
//   GpuMeasurements gpu({.switch_latency = 5'000'000});
//   for (const RanStep& step : steps) gpu.Add(step);
//   for (const MeasuredOption& option : gpu.Options(rank)) ...
//
// Times. Mean and Student interval of the instructions of a (chunk, kind, clock): their errors are
// taken to be independent. Where they are not (a machine that is slow for seconds at a time) the
// interval is too narrow; the drift test below goes by how much steps' means really vary.
// Energies. power_fit.h: windows between samples of the counter, all kinds together.
//
// What is left out, and counted:
//   - steps in which heat, power or somebody else held the clock down (`is_limited`), whole;
//   - instructions during which a clock changed: from the request until the driver had applied it
//     and `switch_latency` later the GPU may run at either clock. Such an instruction counts
//     neither for times nor do the windows that it lies in, unless the change covers less than
//     kToleratedPart of it. (A part q of an instruction at a clock that is 30 % faster or slower is
//     off by 0.3 q: 0.06 %.)
//   - instructions that are far from the median of their kind in the step (a thread that was woken
//     late), and of a step that is far off as a whole those kinds that are;
//   - instructions from a clock that was refused until the next that was not;
//   - windows that reach beyond a step: what is between steps is not told.
//
// Drift. If nothing changes, what a step shows of an option differs from all that was seen of it
// before by an error of known size, and these recursive residuals are independent (Brown, Durbin &
// Evans, 1975). Of each, a two-sided CUSUM (Page 1954): S = max(0, S + z - k), alarm at S > h, with
// k = 1 (made for changes of two standard errors of a step) and h from the wanted rate: between
// false alarms lie (e^(2 k b) - 2 k b - 1) / (2 k^2) steps, b = h + 1.166 (Siegmund 1985, for one
// side). h = 4.5 gives 42,000 steps for one side, 21,000 for two: with 100 options under test one
// false alarm in 200 steps, which costs one round of measuring again. A step counts for 2.8
// standard errors at most, so that one or two steps alone, however slow, do not sound it: a large
// change is noticed in the third. An option whose alarm sounds forgets the times, or the power,
// that it had seen before the step that sounded it; the old power is still told until the new one
// can be.
//
// Not thread safe.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/runtime/profiler/measured_option.h"
#include "perseus/runtime/profiler/power_fit.h"
#include "perseus/runtime/protocol/rank_log.h"

namespace perseus::profiler {

struct MeasuringSettings {
  Nanoseconds switch_latency = 0;  // From the driver's answer until the clock is there.
  friend bool operator==(const MeasuringSettings&, const MeasuringSettings&) = default;
};

// Of one GPU.
struct ClockedKind {
  int chunk = 0;
  InstructionKind kind = InstructionKind::kForward;
  int frequency_mhz = 0;
  friend auto operator<=>(const ClockedKind&, const ClockedKind&) = default;
};

struct DriftAlarm {
  ClockedKind what;
  enum class Quantity { kTime, kPower } quantity = Quantity::kTime;
  std::int64_t step = 0;
  double before = 0;             // s or W: the mean until then,
  double now = 0;                // and what the step showed.
  int temperature_before_c = 0;  // 0: not told.
  int temperature_now_c = 0;
};

class GpuMeasurements {
 public:
  static constexpr double kToleratedPart = 0.002;
  static constexpr double kDriftSlack = 1;
  static constexpr double kDriftLimit = 4.5;
  static constexpr double kMostOfAStep = 2.8;

  explicit GpuMeasurements(const MeasuringSettings& settings) : settings_(settings) {}

  // Returns the alarms that the step set off.
  std::vector<DriftAlarm> Add(const protocol::RanStep& step);

  // Computations only, each named as of that rank. A power that cannot be told apart yet is 0, and
  // its interval infinite; so is an interval of one sample.
  std::vector<MeasuredOption> Options(int rank) const;
  // Of waiting; not identified if it never did, or never apart from something else.
  PowerEstimate BlockingPower() const;

  struct Counts {
    std::int64_t steps = 0;
    std::int64_t limited_steps = 0;
    std::int64_t instructions = 0;
    std::int64_t switching_instructions = 0;  // Left out.
    std::int64_t stalled_instructions = 0;    // Left out.
    std::int64_t steps_held_back = 0;         // Of a kind at a clock: left out.
    std::int64_t windows = 0;
    std::int64_t windows_left_out = 0;
    std::int64_t drifts = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  const Counts& counts() const { return counts_; }

  // What is kept of a kind at a clock.
  struct Record {
    std::size_t parameter = 0;         // Of the power fit.
    std::size_t parameter_before = 0;  // What it was before its power drifted; 0: it did not.
    std::int64_t samples = 0;
    double mean_s = 0;
    double squares = 0;  // Sum of squared deviations from the mean (Welford 1962).
    double temperature_sum = 0;
    std::int64_t steps = 0;
    // Of steps' means against all before, each as a variance of one instruction: more than
    // `squares` says where the instructions of a step are slow together.
    std::int64_t residuals = 0;
    double residual_squares = 0;
    std::array<double, 4> sums = {};  // CUSUM: time up, down; power up, down.
    friend bool operator==(const Record&, const Record&) = default;
  };
  // For the state file.
  struct State {
    MeasuringSettings settings;
    std::map<ClockedKind, Record> records;
    Counts counts;
    PowerFit fit;
    std::size_t parameters = 1;
    int last_frequency_mhz = 0;
    bool is_refused = false;
  };
  State state() const;
  static GpuMeasurements Restore(State state);

 private:
  struct Clean;  // A step's instructions, and which of them no clock change touches.

  Clean Sort(const protocol::RanStep& step);
  // `powers`: what is known of parameters already, for the windows' edges. `place`: where in
  // (after, until] edges are put, from 0 to 1.
  std::vector<std::vector<PowerWindow>> Stretches(const protocol::RanStep& step, const Clean& clean,
                                                  const PowerFit::Answer& powers, double place);
  PowerFit FitOf(const protocol::RanStep& step, const Clean& clean);
  Record& RecordOf(const protocol::RanInstruction& instruction);
  void LeaveOutStalled(Clean& clean);
  void TestTimes(const protocol::RanStep& step, Clean& clean, std::vector<DriftAlarm>& alarms);
  void TestPowers(const protocol::RanStep& step, const PowerFit& of_step,
                  std::vector<DriftAlarm>& alarms);
  void AddTimes(const protocol::RanStep& step, const Clean& clean);
  void ForgetTimes(Record& record);
  void ForgetPower(Record& record);

  MeasuringSettings settings_;
  std::map<ClockedKind, Record> records_;
  Counts counts_;
  PowerFit fit_;
  std::size_t parameters_ = 1;  // 0 is waiting.
  int last_frequency_mhz_ = 0;  // Of the last clock change.
  bool is_refused_ = false;     // One was since, and the GPU is at another clock than is recorded.
};

}  // namespace perseus::profiler

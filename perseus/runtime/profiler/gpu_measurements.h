// Evaluates the recorded steps of one GPU of a job. The profiler only computes. The tuner
// (tuner/tuning.h) lets the job run at other clocks, and the job's ranks record the steps. The
// results are mean times and powers of instructions with confidence intervals, the power of
// waiting, and changes of these values (drift).
//
//   GpuMeasurements gpu({.switch_latency = 5'000'000});
//   for (const RanStep& step : steps) gpu.Add(step);
//   for (const MeasuredOption& option : gpu.Options(rank)) ...
//
// Times. For each (chunk, kind, clock), the result is the mean time of its instructions and a
// Student interval. This interval assumes independent errors. If the errors are not independent (a
// machine that is slow for seconds), the interval is too narrow. The drift test below uses the
// actual variation of the means of steps.
//
// Waiting inside of an instruction (RanStep::waits) is no part of its time. The GPU draws the power
// of waiting meanwhile.
//
// Energies. power_fit.h explains them: windows between samples of the counter, all kinds together.
//
// The following steps, instructions and windows are left out, and counted:
//  - Whole steps in which something other than the power limit reduced the clock, such as heat. At
//    its power limit, a GPU is as fast as it can be. So such a step counts, and the clock that the
//    GPU reached is reported with the option.
//  - Instructions during which a clock changed. From the request until `switch_latency` after the
//    driver's answer, the GPU may run at either clock. GPUs that share the work of a stage (tensor
//    parallel) wait for each other inside an instruction, so the changes of all of them count. The
//    instruction's time and all windows that overlap with the instruction are left out, unless the
//    change covers less than kToleratedPart of the instruction. (If a part q runs at a clock that
//    is 30 % faster or slower, the error of the time is 0.3 q = 0.06 %.)
//  - Instructions whose time is far from the median of their kind in the step (a thread that was
//    woken late). If the whole step is far off for a kind, all instructions of this kind in the
//    step.
//  - Instructions between a refused clock and the next clock that is not refused.
//  - Windows that reach beyond a step, because nothing is known about the time between steps.
//
// Drift. If nothing changes, the mean of a step differs from the mean of all earlier steps by an
// error of known size. These recursive residuals are independent (Brown, Durbin & Evans, 1975). A
// two-sided CUSUM (Page 1954) sums the residuals: S = max(0, S + z - k), with an alarm at S > h. z
// is a residual in standard errors. k = 1 suits changes of two standard errors of a step. h follows
// from the rate of false alarms. The mean distance between false alarms is (e^(2 k b) - 2 k b - 1)
// / (2 k^2) steps, with b = h + 1.166 (Siegmund 1985, for one side). h = 4.5 gives 42,000 steps for
// one side and 21,000 for two sides. With 100 options under test, one false alarm occurs in 200
// steps, and costs one round of new measurements. A step counts for at most 2.8 standard errors, so
// that one or two very slow steps raise no alarm. A large change raises the alarm in its third
// step. After an alarm, the option drops the times, or the power, of all earlier steps. The old
// power is still reported until the new power is known. If the power limit moved (heat), the times
// at all clocks that depend on this limit are dropped.
//
// Not thread-safe.
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
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::profiler {

struct MeasuringSettings {
  // The time from the driver's answer until the GPU runs at the clock.
  Nanoseconds switch_latency = 0;
  friend bool operator==(const MeasuringSettings&, const MeasuringSettings&) = default;
};

// A kind of instruction of one chunk at one clock.
struct ClockedKind {
  int chunk = 0;
  InstructionKind kind = InstructionKind::kForward;
  int frequency_mhz = 0;
  friend auto operator<=>(const ClockedKind&, const ClockedKind&) = default;
};

// A part of a step.
struct Period {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  friend bool operator==(const Period&, const Period&) = default;
};

// A change of an option's time or power.
struct DriftAlarm {
  ClockedKind what;
  enum class Quantity { kTime, kPower } quantity = Quantity::kTime;
  std::int64_t step = 0;
  double before = 0;  // The mean of all earlier steps, in s or W.
  double now = 0;     // The value of this step, in s or W.
};

class GpuMeasurements {
 public:
  static constexpr double kToleratedPart = 0.002;  // A fraction of an instruction's time.
  // k, h and the largest z of the drift test above.
  static constexpr double kDriftSlack = 1;
  static constexpr double kDriftLimit = 4.5;
  static constexpr double kMostOfAStep = 2.8;

  explicit GpuMeasurements(const MeasuringSettings& settings) : settings_(settings) {}

  // Returns the periods of the step in which the GPU may run at another clock than the requested
  // one. Call it for each step once, in order.
  std::vector<Period> FindChanges(const protocol::RanStep& step);
  // Adds a step, and returns the alarms that it raises. `changes` are the periods of FindChanges(),
  // of this GPU and of those that share its work, in any order.
  std::vector<DriftAlarm> Add(const protocol::RanStep& step, std::vector<Period> changes);
  // Adds a step of a GPU that shares no work.
  std::vector<DriftAlarm> Add(const protocol::RanStep& step) {
    return Add(step, FindChanges(step));
  }
  // The instructions of the last step whose times counted, sorted by start time, with durations
  // without waits. Empty if the whole step was left out.
  const std::vector<protocol::RanInstruction>& last_counted() const { return last_counted_; }

  // Returns the options of computations, with `rank` as their rank. If a power is not identified
  // yet, or its interval is wider than half of the power, the power is 0 with an infinite interval.
  // The interval of a single sample is infinite, too.
  std::vector<MeasuredOption> Options(int rank) const;
  // The power of waiting. This power is not identified in two cases: the GPU never waited, or it
  // always waited in the same proportion to something else.
  PowerEstimate BlockingPower() const;

  struct Counts {
    std::int64_t steps = 0;
    std::int64_t limited_steps = 0;  // The limited steps, which were left out.
    std::int64_t instructions = 0;
    // The instructions that were left out because of a switch.
    std::int64_t switching_instructions = 0;
    // The instructions that were left out as stalled.
    std::int64_t stalled_instructions = 0;
    // The steps that were left out for a kind at a clock, counted once for each kind at a clock.
    std::int64_t steps_held_back = 0;
    std::int64_t windows = 0;
    std::int64_t windows_left_out = 0;
    std::int64_t drifts = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  const Counts& counts() const { return counts_; }

  // The sums for one kind at one clock.
  struct Record {
    std::size_t parameter = 0;  // The index in the power fit.
    // The index before the power drifted. 0: no drift.
    std::size_t parameter_before = 0;
    std::int64_t samples = 0;
    double mean_s = 0;
    double squares = 0;  // The sum of squared deviations from the mean (Welford 1962).
    // Residuals of the means of steps, each scaled to the variance of one instruction. Their
    // squares are larger than `squares` if the instructions of a step are slow together.
    std::int64_t residuals = 0;
    double residual_squares = 0;
    std::array<double, 4> sums = {};  // CUSUM: time up, time down, power up, power down.
    std::int64_t readings = 0;        // How often the clock was read at the power limit.
    int reached_mhz = 0;              // The highest clock among these readings.
    double usual_mhz = 0;             // The mean of the latest of these readings.
    friend bool operator==(const Record&, const Record&) = default;
  };
  // The content of the state file.
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
  struct Clean;  // A step's instructions, and which of these count.

  Clean Sort(const protocol::RanStep& step, std::vector<Period> changes);
  // `powers` contains the known powers, for the edges of windows. `place` (0 to 1) is the position
  // of an edge in its interval (after, until].
  std::vector<std::vector<PowerWindow>> Stretches(const protocol::RanStep& step, const Clean& clean,
                                                  const PowerFit::Answer& powers, double place);
  PowerFit FitOf(const protocol::RanStep& step, const Clean& clean);
  Record& RecordOf(const protocol::RanInstruction& instruction);
  void LeaveOutStalled(Clean& clean);
  void TestTimes(const protocol::RanStep& step, Clean& clean, std::vector<DriftAlarm>& alarms);
  void TestPowers(const protocol::RanStep& step, const PowerFit& of_step,
                  std::vector<DriftAlarm>& alarms);
  void AddTimes(const Clean& clean);
  static void ReadReached(const protocol::RanStep& step, Clean& clean);
  void AddReached(const Clean& clean);
  void ForgetTimes(Record& record);
  void ForgetAtOtherLimit(const ClockedKind& alarmed, int reached_mhz);
  void ForgetPower(Record& record);

  MeasuringSettings settings_;
  std::map<ClockedKind, Record> records_;
  Counts counts_;
  PowerFit fit_;
  std::size_t parameters_ = 1;  // Parameter 0 is the power of waiting.
  int last_frequency_mhz_ = 0;  // The clock after the last change that was not refused.
  bool is_refused_ = false;     // The last request was refused, so the clock is unknown.
  std::vector<protocol::RanInstruction> last_counted_;
};

}  // namespace perseus::profiler

#include "perseus/runtime/profiler/gpu_measurements.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "perseus/base/statistics.h"

namespace perseus::profiler {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// A factor on the errors of powers. The variances behind such an error are estimates, too (from 75
// windows, for example). Also, the place of the edges is the most likely of five. Both effects make
// errors look smaller than they are. On virtual GPUs, intervals for 95 % covered 90 % without this
// factor, which is 1.96 / 1.645.
constexpr double kEstimatedVariances = 1.19;

// If the interval of a power is wider than this fraction of the power, the power counts as unknown.
// Example: an instruction of a few microseconds, such as a backward_input that computes nothing.
// Errors of edges can make its power seem to be kilowatts. A model of similar instructions is
// better.
constexpr double kWidestPower = 0.5;

// If there are fewer samples than this, their spread is too uncertain to test the next samples.
constexpr std::int64_t kLeastSamplesToTest = 20;
constexpr std::int64_t kLeastResiduals = 3;  // The same limit for steps.
// Clocks at the power limit vary by 1 %. With fewer readings than this, the highest reading may be
// too low.
constexpr std::int64_t kLeastReadings = 10;
// The mean of this many readings is known within 0.5 %.
constexpr std::int64_t kReadingsKept = 100;
// A step is far off if it differs by this many standard errors or more. This is true of one normal
// step in 16,000.
constexpr double kFarOff = 4;

double Overlap(Nanoseconds a_begin, Nanoseconds a_end, Nanoseconds b_begin, Nanoseconds b_end) {
  return ToSeconds(std::max<Nanoseconds>(0, std::min(a_end, b_end) - std::max(a_begin, b_begin)));
}

// Sorts the periods, and makes one period of those that overlap.
void MakeDisjoint(std::vector<Period>& periods) {
  std::ranges::sort(periods, {}, &Period::begin);
  std::size_t kept = 0;
  for (const Period& period : periods) {
    if (kept > 0 && period.begin <= periods[kept - 1].end) {
      periods[kept - 1].end = std::max(periods[kept - 1].end, period.end);
    } else {
      periods[kept++] = period;
    }
  }
  periods.resize(kept);
}

// An instruction is left out if it differs from the median of its step by more than both of these
// limits: a number of standard deviations, and a fraction. Its thread may have been woken late, for
// example. In a normal distribution, one instruction in a million differs by five standard
// deviations. The fraction is for kinds that hardly vary.
constexpr double kStalledDeviations = 5;
constexpr double kStalledPart = 0.05;
constexpr std::size_t kLeastInstructionsToFindStalled = 5;

// The median of instructions, and the largest distance from this median that an instruction may
// have.
struct Usual {
  double median_s = 0;
  double most_s = 0;
};
Usual UsualOf(const std::vector<double>& seconds) {
  Usual usual{Median(seconds), kInfinite};
  if (seconds.size() < kLeastInstructionsToFindStalled) return usual;
  const double deviation = kDeviationsOfMad * MedianDeviation(seconds, usual.median_s);
  usual.most_s = std::max(kStalledDeviations * deviation, kStalledPart * usual.median_s);
  return usual;
}

// Adds a deviation to the two one-sided sums. Returns whether one of them exceeds the limit.
bool Raise(double& up, double& down, double z) {
  // A single step is no drift, even if it is far off.
  z = std::clamp(z, -GpuMeasurements::kMostOfAStep, GpuMeasurements::kMostOfAStep);
  up = std::max(0.0, up + z - GpuMeasurements::kDriftSlack);
  down = std::max(0.0, down - z - GpuMeasurements::kDriftSlack);
  return std::max(up, down) > GpuMeasurements::kDriftLimit;
}

ClockedKind KindOf(const protocol::RanInstruction& instruction) {
  return {instruction.chunk, instruction.kind, instruction.frequency_mhz};
}

}  // namespace

struct GpuMeasurements::Clean {
  std::vector<protocol::RanInstruction> instructions;  // Sorted by begin.
  std::vector<Period> waits;                           // Disjoint, sorted.
  std::vector<double> own_s;                           // The instructions, without waits.
  std::vector<bool> is_clean;
  // Readings of the clock at the power limit.
  struct Readings {
    std::int64_t count = 0;
    double sum_mhz = 0;
    int highest_mhz = 0;
    double usual_mhz() const { return sum_mhz / static_cast<double>(count); }
  };
  std::map<ClockedKind, Readings> readings;  // While such an instruction ran.

  // The time from `begin` to `end` in which the GPU did not wait.
  double WithoutWaits(Nanoseconds begin, Nanoseconds end) const {
    double seconds = Overlap(begin, end, begin, end);
    for (auto wait = std::ranges::upper_bound(waits, begin, {}, &Period::end);
         wait != waits.end() && wait->begin < end; ++wait) {
      seconds -= Overlap(begin, end, wait->begin, wait->end);
    }
    return seconds;
  }
  bool IsWaiting(Nanoseconds at) const {
    const auto wait = std::ranges::upper_bound(waits, at, {}, &Period::end);
    return wait != waits.end() && wait->begin <= at;
  }
};

std::vector<Period> GpuMeasurements::FindChanges(const protocol::RanStep& step) {
  std::vector<Period> changes;
  const Nanoseconds length = step.end - step.begin;
  Nanoseconds refused_from = 0;
  for (const protocol::ClockChange& change : step.clocks) {
    if (change.WasRefused()) {
      // The GPU keeps its previous clock.
      if (!is_refused_) refused_from = change.requested;
      is_refused_ = true;
      continue;
    }
    if (is_refused_) changes.push_back({refused_from, change.requested});
    const bool is_same = !is_refused_ && change.frequency_mhz == last_frequency_mhz_;
    is_refused_ = false;
    if (is_same) continue;
    last_frequency_mhz_ = change.frequency_mhz;
    changes.push_back(
        {change.requested, std::max(change.requested, change.applied) + settings_.switch_latency});
  }
  if (is_refused_) changes.push_back({refused_from, length});
  return changes;
}

GpuMeasurements::Clean GpuMeasurements::Sort(const protocol::RanStep& step,
                                             std::vector<Period> changes) {
  Clean clean;
  clean.instructions = step.instructions;
  std::ranges::stable_sort(clean.instructions, {}, &protocol::RanInstruction::begin);
  for (const protocol::Wait& wait : step.waits) {
    clean.waits.push_back({wait.begin, wait.begin + wait.duration});
  }
  MakeDisjoint(clean.waits);
  MakeDisjoint(changes);
  for (const protocol::RanInstruction& instruction : clean.instructions) {
    clean.own_s.push_back(
        clean.WithoutWaits(instruction.begin, instruction.begin + instruction.duration));
    double changing_s = 0;
    for (const auto& [begin, end] : changes) {
      changing_s +=
          Overlap(instruction.begin, instruction.begin + instruction.duration, begin, end);
    }
    const bool is_clean = changing_s <= kToleratedPart * ToSeconds(instruction.duration);
    clean.is_clean.push_back(is_clean && clean.own_s.back() > 0);
    ++counts_.instructions;
    if (!is_clean) ++counts_.switching_instructions;
  }
  LeaveOutStalled(clean);
  ReadReached(step, clean);
  return clean;
}

// A reading belongs to the instruction that ran at its time.
void GpuMeasurements::ReadReached(const protocol::RanStep& step, Clean& clean) {
  std::size_t i = 0;
  for (const protocol::ReachedClock& reading : step.reached) {
    const auto has_ended = [&](const protocol::RanInstruction& ran) {
      return ran.begin + ran.duration <= reading.at;
    };
    while (i < clean.instructions.size() && has_ended(clean.instructions[i])) ++i;
    if (i == clean.instructions.size()) return;
    if (!clean.is_clean[i] || clean.instructions[i].begin > reading.at) continue;
    auto& [count, sum_mhz, highest_mhz] = clean.readings[KindOf(clean.instructions[i])];
    ++count;
    sum_mhz += reading.frequency_mhz;
    highest_mhz = std::max(highest_mhz, reading.frequency_mhz);
  }
}

void GpuMeasurements::LeaveOutStalled(Clean& clean) {
  std::map<ClockedKind, std::vector<std::size_t>> kinds;
  for (std::size_t i = 0; i < clean.instructions.size(); ++i) {
    if (clean.is_clean[i]) kinds[KindOf(clean.instructions[i])].push_back(i);
  }
  for (const auto& [what, places] : kinds) {
    std::vector<double> seconds;
    for (const std::size_t i : places) seconds.push_back(clean.own_s[i]);
    const Usual usual = UsualOf(seconds);
    for (std::size_t k = 0; k < places.size(); ++k) {
      if (std::abs(seconds[k] - usual.median_s) <= usual.most_s) continue;
      clean.is_clean[places[k]] = false;
      ++counts_.stalled_instructions;
    }
  }
}

GpuMeasurements::Record& GpuMeasurements::RecordOf(const protocol::RanInstruction& instruction) {
  const auto [place, is_new] = records_.try_emplace(KindOf(instruction));
  if (is_new) place->second.parameter = parameters_++;
  return place->second;
}

// Returns the windows between samples. A new stretch begins after each window that is left out.
std::vector<std::vector<PowerWindow>> GpuMeasurements::Stretches(const protocol::RanStep& step,
                                                                 const Clean& clean,
                                                                 const PowerFit::Answer& powers,
                                                                 double place) {
  const auto edge_of = [&](const protocol::EnergySample& sample) {
    return sample.after +
           static_cast<Nanoseconds>(place * static_cast<double>(sample.until - sample.after));
  };
  const auto power_at = [&](std::size_t parameter) {
    const bool is_known =
        parameter < powers.powers.size() && powers.powers[parameter].is_identified;
    return is_known ? std::max(0.0, powers.powers[parameter].power_w) : 0;
  };
  std::vector<std::vector<PowerWindow>> stretches(1);
  const Nanoseconds length = step.end - step.begin;
  std::size_t first = 0;  // The first instruction that may reach into the window.
  for (std::size_t k = 0; k + 1 < step.energy.size(); ++k) {
    const protocol::EnergySample& from = step.energy[k];
    const protocol::EnergySample& to = step.energy[k + 1];
    const Nanoseconds begin = edge_of(from);
    const Nanoseconds end = edge_of(to);
    PowerWindow window;
    window.energy_j = to.energy_j - from.energy_j;
    window.seconds = ToSeconds(end - begin);
    window.begin_error_s = ToSeconds(from.until - from.after) / std::sqrt(12.0);
    window.end_error_s = ToSeconds(to.until - to.after) / std::sqrt(12.0);
    bool is_usable = from.after >= 0 && to.until <= length && end > begin && window.energy_j > 0;
    double busy_s = 0;
    window.begin_power_w = window.end_power_w = power_at(0);
    for (std::size_t i = first; i < clean.instructions.size(); ++i) {
      const protocol::RanInstruction& instruction = clean.instructions[i];
      const Nanoseconds instruction_end = instruction.begin + instruction.duration;
      if (instruction.begin >= to.until) break;
      if (instruction_end <= from.after) {
        if (i == first) ++first;
        continue;
      }
      is_usable = is_usable && clean.is_clean[i];
      const double seconds =
          clean.WithoutWaits(std::max(instruction.begin, begin), std::min(instruction_end, end));
      if (seconds <= 0) continue;
      const std::size_t parameter = RecordOf(instruction).parameter;
      if (instruction.begin <= begin) window.begin_power_w = power_at(parameter);
      if (instruction_end >= end) window.end_power_w = power_at(parameter);
      window.parts.push_back({parameter, seconds, static_cast<int>(i)});
      busy_s += seconds;
    }
    if (clean.IsWaiting(begin)) window.begin_power_w = power_at(0);
    if (clean.IsWaiting(end)) window.end_power_w = power_at(0);
    if (busy_s < window.seconds) window.parts.push_back({0, window.seconds - busy_s, -1});
    if (is_usable) {
      stretches.back().push_back(std::move(window));
    } else {
      if (!stretches.back().empty()) stretches.emplace_back();
    }
  }
  return stretches;
}

// Kinds that are new in this step are fitted twice, because the powers at the edges of windows are
// known only after the first fit. The common shift of edges in power_fit.h is linear. So it fails
// if it would move edges across the end of an instruction. So the edges are first put at the most
// likely of five places.
PowerFit GpuMeasurements::FitOf(const protocol::RanStep& step, const Clean& clean) {
  const auto fit_with = [&](const PowerFit::Answer& powers, double place) {
    PowerFit fit;
    for (const std::vector<PowerWindow>& stretch : Stretches(step, clean, powers, place)) {
      if (!stretch.empty()) fit.Add(stretch);
    }
    return fit;
  };
  const PowerFit::Answer known = fit_.Solve();
  PowerFit best = fit_with(known, 0.5);
  const bool knows_all = known.powers.size() >= best.parameters() &&
                         std::ranges::all_of(known.powers, [](const PowerEstimate& power) {
                           return power.is_identified;
                         });
  double greatest = -kInfinite;
  for (const double place : {0.5, 0.1, 0.3, 0.7, 0.9}) {
    PowerFit fit = fit_with(known, place);
    if (!knows_all) fit = fit_with(fit_with(fit.Solve(), place).Solve(), place);
    const PowerFit::Answer answer = fit.Solve();
    if (answer.degrees_of_freedom < 1 || answer.likelihood <= greatest) continue;
    greatest = answer.likelihood;
    best = std::move(fit);
  }
  return best;
}

void GpuMeasurements::ForgetTimes(Record& record) {
  Record fresh;
  fresh.parameter = record.parameter;
  fresh.parameter_before = record.parameter_before;
  fresh.sums[2] = record.sums[2];
  fresh.sums[3] = record.sums[3];
  record = fresh;
  ++counts_.drifts;
}

// After the power limit moved, the GPU has other times at two kinds of clocks: clocks above the
// clock that it reaches now, and clocks that the old limit held down. The sweep may measure these
// clocks late or never again, so an alarm at one clock is enough.
void GpuMeasurements::ForgetAtOtherLimit(const ClockedKind& alarmed, int reached_mhz) {
  for (auto& [what, record] : records_) {
    if (what.chunk != alarmed.chunk || what.kind != alarmed.kind || what == alarmed) continue;
    const bool was_held_down = IsHeldDown(record.usual_mhz, what.frequency_mhz);
    if (what.frequency_mhz > reached_mhz || was_held_down) ForgetTimes(record);
  }
}

// The old parameter stays in the fit. The old power is reported until the new parameter is
// identified.
void GpuMeasurements::ForgetPower(Record& record) {
  record.parameter_before = record.parameter;
  record.parameter = parameters_++;
  record.sums[2] = record.sums[3] = 0;
  ++counts_.drifts;
}

// For each kind and clock, tests the step's mean time against all earlier steps. If a kind is far
// off, it raises an alarm, or its times in this step are left out. Such a step may be the first
// step after a change, or a step that stalled.
void GpuMeasurements::TestTimes(const protocol::RanStep& step, Clean& clean,
                                std::vector<DriftAlarm>& alarms) {
  std::map<ClockedKind, std::pair<int, double>> of_step;  // Count, sum.
  for (std::size_t i = 0; i < clean.instructions.size(); ++i) {
    if (!clean.is_clean[i]) continue;
    auto& [count, sum] = of_step[KindOf(clean.instructions[i])];
    ++count;
    sum += clean.own_s[i];
  }
  for (const auto& [what, sums] : of_step) {
    const auto found = records_.find(what);
    if (found == records_.end() || found->second.samples < kLeastSamplesToTest) continue;
    Record& record = found->second;
    const double before = static_cast<double>(record.samples);
    double variance = record.squares / (before - 1);
    if (record.residuals >= kLeastResiduals) {
      variance =
          std::max(variance, record.residual_squares / static_cast<double>(record.residuals));
    }
    if (variance <= 0) continue;
    const double mean_s = sums.second / sums.first;
    const double z =
        (mean_s - record.mean_s) / std::sqrt(variance * (1.0 / sums.first + 1 / before));
    record.residual_squares += std::min(z * z, kMostOfAStep * kMostOfAStep) * variance;
    ++record.residuals;
    if (Raise(record.sums[0], record.sums[1], z)) {
      alarms.push_back({what, DriftAlarm::Quantity::kTime, step.step, record.mean_s, mean_s});
      const bool was_held_down = IsHeldDown(record.usual_mhz, what.frequency_mhz);
      ForgetTimes(record);
      const auto reading = clean.readings.find(what);
      const bool is_held_down = reading != clean.readings.end() &&
                                IsHeldDown(reading->second.usual_mhz(), what.frequency_mhz);
      if (was_held_down || is_held_down) {
        ForgetAtOtherLimit(what, is_held_down ? reading->second.highest_mhz : what.frequency_mhz);
      }
    } else if (std::abs(z) > kFarOff) {
      ++counts_.steps_held_back;
      for (std::size_t i = 0; i < clean.instructions.size(); ++i) {
        if (KindOf(clean.instructions[i]) == what) clean.is_clean[i] = false;
      }
      clean.readings.erase(what);
    }
  }
}

// Tests the step's windows against the powers of all earlier steps. The test uses the score of each
// power, which has the variance A + A V A. A is the matrix of the step's normal equations, and V is
// the covariance of the earlier powers. The diagonal of V bounds the second term well enough.
void GpuMeasurements::TestPowers(const protocol::RanStep& step, const PowerFit& of_step,
                                 std::vector<DriftAlarm>& alarms) {
  const PowerFit::Answer known = fit_.Solve();
  const PowerFit::Sums& sums = of_step.sums()[known.chosen];
  const PowerFit::Sums& all = fit_.sums()[known.chosen];
  // The place and the shift of a stretch's edges are fitted to its windows. A stretch of a short
  // step has only two or three windows.
  constexpr double kFittedToAStretch = 2;
  const double degrees = known.degrees_of_freedom - kFittedToAStretch * fit_.stretches();
  if (degrees < kLeastSamplesToTest) return;
  double residual_squares = all.squares;
  for (std::size_t i = 0; i < known.powers.size(); ++i) {
    residual_squares -= known.powers[i].power_w * all.right[i];
  }
  const double factor = std::max(residual_squares, 0.0) / degrees;
  if (factor <= 0) return;
  // The standard errors are those of a factor with all degrees of freedom.
  const double wider = known.degrees_of_freedom / degrees;
  for (auto& [what, record] : records_) {
    const std::size_t p = record.parameter;
    if (p >= known.powers.size() || p >= of_step.parameters() || sums.normal.At(p, p) <= 0 ||
        !known.powers[p].is_identified) {
      continue;
    }
    double score = sums.right[p];
    double variance = factor * sums.normal.At(p, p);
    bool is_known = true;
    for (std::size_t q = 0; q < of_step.parameters(); ++q) {
      const double shared = sums.normal.At(p, q);
      if (shared == 0) continue;
      is_known = is_known && q < known.powers.size() && known.powers[q].is_identified;
      if (!is_known) break;
      score -= shared * known.powers[q].power_w;
      variance += wider * std::pow(shared * known.powers[q].standard_error_w, 2);
    }
    if (!is_known || !Raise(record.sums[2], record.sums[3], score / std::sqrt(variance))) continue;
    const double before_w = known.powers[p].power_w;
    alarms.push_back({what, DriftAlarm::Quantity::kPower, step.step, before_w,
                      before_w + score / sums.normal.At(p, p)});
    ForgetPower(record);
  }
}

void GpuMeasurements::AddTimes(const Clean& clean) {
  for (std::size_t i = 0; i < clean.instructions.size(); ++i) {
    if (!clean.is_clean[i]) continue;
    last_counted_.push_back(clean.instructions[i]);
    last_counted_.back().duration = ToNanoseconds(clean.own_s[i]);
    Record& record = RecordOf(clean.instructions[i]);
    const double seconds = clean.own_s[i];
    ++record.samples;
    const double from_mean = seconds - record.mean_s;
    record.mean_s += from_mean / static_cast<double>(record.samples);
    record.squares += from_mean * (seconds - record.mean_s);
  }
}

void GpuMeasurements::AddReached(const Clean& clean) {
  for (const auto& [what, readings] : clean.readings) {
    Record& record = records_[what];
    record.readings += readings.count;
    // Older readings lose their weight, so that the mean follows a limit that moves.
    const double kept =
        static_cast<double>(std::max(readings.count, std::min(record.readings, kReadingsKept)));
    record.usual_mhz +=
        static_cast<double>(readings.count) * (readings.usual_mhz() - record.usual_mhz) / kept;
    record.reached_mhz = std::max(record.reached_mhz, readings.highest_mhz);
  }
}

std::vector<DriftAlarm> GpuMeasurements::Add(const protocol::RanStep& step,
                                             std::vector<Period> changes) {
  std::vector<DriftAlarm> alarms;
  last_counted_.clear();
  ++counts_.steps;
  Clean clean = Sort(step, std::move(changes));
  if (step.IsDisturbed()) {
    ++counts_.limited_steps;
    return alarms;
  }
  TestTimes(step, clean, alarms);
  const PowerFit of_step = FitOf(step, clean);
  TestPowers(step, of_step, alarms);
  // After an alarm, this step's windows belong to the new parameter of the kind that drifted.
  fit_.Add(alarms.empty() ? of_step : FitOf(step, clean));
  counts_.windows += std::max<std::int64_t>(0, std::ssize(step.energy) - 1);
  counts_.windows_left_out += std::max<std::int64_t>(0, std::ssize(step.energy) - 1) -
                              static_cast<std::int64_t>(of_step.windows());
  AddTimes(clean);
  AddReached(clean);
  return alarms;
}

std::vector<MeasuredOption> GpuMeasurements::Options(int rank) const {
  const PowerFit::Answer answer = fit_.Solve();
  const double width = StudentHalfWidth(answer.degrees_of_freedom);
  std::vector<MeasuredOption> options;
  for (const auto& [what, record] : records_) {
    if (!IsComputation(what.kind) || what.frequency_mhz <= 0 || record.samples == 0) continue;
    MeasuredOption option;
    option.group = {rank, what.chunk, what.kind};
    option.frequency_mhz = what.frequency_mhz;
    option.samples = static_cast<int>(std::min<std::int64_t>(record.samples, 1'000'000'000));
    option.time_s = record.mean_s;
    if (record.readings >= kLeastReadings) {
      option.reached_mhz = record.reached_mhz;
      option.usual_mhz = record.usual_mhz;
    }
    const double samples = static_cast<double>(record.samples);
    option.time_ci_s = record.samples < 2 ? kInfinite
                                          : StudentHalfWidth(samples - 1) *
                                                std::sqrt(record.squares / (samples - 1) / samples);
    option.power_ci_w = kInfinite;
    for (const std::size_t parameter : {record.parameter, record.parameter_before}) {
      // Parameter 0 as parameter_before means that the power has not drifted.
      if (option.power_w > 0 || parameter == 0 || parameter >= answer.powers.size()) continue;
      const PowerEstimate& power = answer.powers[parameter];
      if (!power.is_identified || !(power.power_w > 0)) continue;
      const double ci_w = kEstimatedVariances * width * power.standard_error_w;
      if (ci_w > kWidestPower * power.power_w) continue;
      option.power_w = power.power_w;
      option.power_ci_w = ci_w;
    }
    options.push_back(option);
  }
  return options;
}

PowerEstimate GpuMeasurements::BlockingPower() const {
  const PowerFit::Answer answer = fit_.Solve();
  return answer.powers.empty() ? PowerEstimate{} : answer.powers.front();
}

GpuMeasurements::State GpuMeasurements::state() const {
  return {settings_, records_, counts_, fit_, parameters_, last_frequency_mhz_, is_refused_};
}

GpuMeasurements GpuMeasurements::Restore(State state) {
  GpuMeasurements restored(state.settings);
  restored.records_ = std::move(state.records);
  restored.counts_ = state.counts;
  restored.fit_ = std::move(state.fit);
  restored.parameters_ = state.parameters;
  restored.last_frequency_mhz_ = state.last_frequency_mhz;
  restored.is_refused_ = state.is_refused;
  return restored;
}

}  // namespace perseus::profiler

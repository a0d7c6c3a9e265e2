// Running averages of repeated measurements: what ParseProfile keeps of the rows it has read.
//
// Memory is proportional to the number of distinct options, not of rows. A row costs one hash
// lookup, and none where it measures the same option as the row before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/profile/profile.h"

namespace perseus::profile {

// One row of a profile.
struct Measurement {
  int stage = 0;
  int chunk = 0;
  InstructionKind kind = InstructionKind::kForward;
  std::span<const double> knobs;  // The frequency (MHz), then the other knobs. No NaN.
  double time_s = 0;
  double energy_j = 0;
  std::int64_t line = 0;
  int samples = 1;         // >= 1; its weight.
  double time_ci_s = 0;    // Half-width of the 95 % confidence interval; 0: there is none.
  double energy_ci_j = 0;  // The same.
};

class OptionSums {
 public:
  // Rows have `knobs` knobs each, and repeats differ by no more than this factor. `part` is what
  // messages call a stage; it must outlive this.
  OptionSums(std::size_t knobs, double largest_repeat_ratio, std::string_view part = "stage");
  OptionSums(const OptionSums&) = delete;  // The index refers to its owner.
  OptionSums& operator=(const OptionSums&) = delete;

  // Fails, with a message that names the other line but lacks the file, if the row cannot be a
  // measurement of the same thing as each row of its option so far.
  Result<void> Add(const Measurement& row);

  // A knob besides the frequency whose values look measured rather than set, and two rows of one
  // entry and frequency that differ in it. Where frequencies of an entry are measured repeatedly, a
  // setting comes up again and again; a power, a temperature or a row's number hardly ever does. As
  // a knob it would make an option of each row, and the planner would pick the luckiest.
  struct Suspect {
    std::size_t knob = 0;  // As in Measurement::knobs.
    double value = 0;
    std::int64_t line = 0;
    double earlier_value = 0;
    std::int64_t earlier_line = 0;
  };
  std::optional<Suspect> FindMeasuredKnob() const;

  // The averages, by entry. Times are rounded to nanoseconds after averaging.
  std::vector<ProfileEntry> Entries() const;

 private:
  // Of an option's rows so far, which the next one is compared with.
  struct Range {
    struct End {
      double value = 0;
      std::int64_t line = 0;
    };
    End least;
    End most;

    // The end that is further from `value`, as a factor.
    const End& Furthest(double value) const;
    void Include(double value, std::int64_t line);
  };
  // Combines the intervals of an option's rows. Values are counted from the first row's value, so
  // that the sums of squares do not cancel.
  class IntervalSum {
   public:
    void Add(double value, double half_width, double weight);
    // Of the weighted mean of rows that weigh `weights` together; 0 if some row had none.
    double HalfWidth(double weights) const;

   private:
    double first_ = 0;
    double squares_ = 0;          // Sum of (weight * half-width)^2.
    double inverse_squares_ = 0;  // Sums of value^0, value^1, value^2 over half-width^2.
    double scaled_values_ = 0;
    double scaled_squares_ = 0;
    int rows_ = 0;
    bool is_complete_ = true;
  };
  struct Sum {
    int stage = 0;
    int chunk = 0;
    InstructionKind kind = InstructionKind::kForward;
    double time_s = 0;  // Totals, by weight.
    double energy_j = 0;
    double samples = 0;
    IntervalSum time_interval;
    IntervalSum energy_interval;
    std::int64_t first_line = 0;
    Range times_s;
    Range energies_j;
    int rows = 0;
  };
  static double MeanOf(double total, const Range& range, const Sum& sum);
  // Options are looked up by their place in sums_ and knobs_.
  struct Hash {
    const OptionSums* owner;
    std::size_t operator()(std::size_t index) const;
  };
  struct Equal {
    const OptionSums* owner;
    bool operator()(std::size_t a, std::size_t b) const;
  };

  std::span<const double> KnobsOf(std::size_t index) const {
    return std::span(knobs_).subspan(index * knob_count_, knob_count_);
  }
  std::vector<std::size_t> ByEntryAndFrequency() const;
  std::optional<Suspect> FindMeasuredKnob(std::span<const std::size_t> entry,
                                          std::size_t knob) const;
  bool Matches(std::size_t index, const Measurement& row) const;
  std::size_t FindOrAppend(const Measurement& row);

  std::size_t knob_count_;
  double largest_repeat_ratio_;
  std::string_view part_;
  std::vector<Sum> sums_;
  std::vector<double> knobs_;  // knob_count_ values an option.
  std::unordered_set<std::size_t, Hash, Equal> index_;
  std::size_t last_ = 0;
};

}  // namespace perseus::profile

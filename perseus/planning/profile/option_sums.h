// OptionSums averages repeated measurements of the same option while ParseProfile reads rows.
//
// Memory is proportional to the number of distinct options, not to the number of rows. A row needs
// one hash lookup, or none if it measures the same option as the previous row. Not thread safe.
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
  int pp_rank = 0;
  int chunk = 0;
  InstructionKind kind = InstructionKind::kForward;
  std::span<const double> knobs;  // The frequency (MHz), then the other knobs. No NaN.
  double time_s = 0;
  double energy_j = 0;
  std::int64_t line = 0;
  int samples = 1;         // >= 1; the weight of the row.
  double time_ci_s = 0;    // Half-width of the 95 % confidence interval of time_s; 0 if unknown.
  double energy_ci_j = 0;  // The same for energy_j.
};

class OptionSums {
 public:
  // Every row has `knobs` knobs. Repeated measurements of one option may differ by at most the
  // factor `largest_repeat_ratio`. `part` is the word for a pp_rank in messages. The text of `part`
  // must outlive this object.
  OptionSums(std::size_t knobs, double largest_repeat_ratio, std::string_view part = "stage");
  OptionSums(const OptionSums&) = delete;  // The index refers to its owner.
  OptionSums& operator=(const OptionSums&) = delete;

  // Adds a row to its option. Fails (kInput) if its time or energy differs too much from an earlier
  // row of the same option. The message has the line of the earlier row, but not the file.
  Result<void> Add(const Measurement& row);

  // A knob (other than the frequency) that is probably not a knob but a measurement, with two rows
  // of the same entry and frequency in which the knob differs. If an entry has repeated rows at its
  // frequencies, the values of a real knob repeat, too. The values of a power, a temperature or a
  // row number hardly ever repeat. As a knob, such a column would make every row a separate option,
  // and the planner would choose the row with the luckiest measurement.
  struct Suspect {
    std::size_t knob = 0;  // As in Measurement::knobs.
    double value = 0;
    std::int64_t line = 0;
    double earlier_value = 0;
    std::int64_t earlier_line = 0;
  };
  // Texts are no measurements: `labels` says which knobs have texts.
  std::optional<Suspect> FindMeasuredKnob(const KnobLabels& labels) const;

  // The repeats of an option that differ most, if they differ by at least kDoubtfulRepeat.
  static constexpr double kDoubtfulRepeat = 1.2;
  struct Doubt {
    double ratio = kDoubtfulRepeat;
    std::int64_t line = 0;
    std::string text;  // What differs, and the remedy. Empty if nothing differs so much.
  };
  const Doubt& widest_repeat() const { return widest_repeat_; }

  // The averages, ordered by entry. Times are rounded to nanoseconds after averaging.
  std::vector<ProfileEntry> Entries() const;

 private:
  // The range of the values of an option so far. Add compares the next row with it.
  struct Range {
    struct End {
      double value = 0;
      std::int64_t line = 0;
    };
    End least;
    End most;

    // The end with the larger ratio to `value`.
    const End& Furthest(double value) const;
    void Include(double value, std::int64_t line);
  };
  // Combines the confidence intervals of the rows of an option. Values are stored relative to the
  // first row, so that the sums of squares do not cancel.
  class IntervalSum {
   public:
    void Add(double value, double half_width, double weight);
    // The half-width of the weighted mean. `weights` is the sum of the weights. Returns 0 if a row
    // has no interval.
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
    int pp_rank = 0;
    int chunk = 0;
    InstructionKind kind = InstructionKind::kForward;
    double time_s = 0;  // Sum of weight * time.
    double energy_j = 0;
    double samples = 0;  // Sum of the weights.
    IntervalSum time_interval;
    IntervalSum energy_interval;
    std::int64_t first_line = 0;
    Range times_s;
    Range energies_j;
    int rows = 0;
  };
  static double MeanOf(double total, const Range& range, const Sum& sum);
  // The index holds positions in sums_ and knobs_, and hashes the values at these positions.
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
  Doubt widest_repeat_;
  std::string_view part_;
  std::vector<Sum> sums_;
  std::vector<double> knobs_;  // knob_count_ values for each option.
  std::unordered_set<std::size_t, Hash, Equal> index_;
  std::size_t last_ = 0;
};

}  // namespace perseus::profile

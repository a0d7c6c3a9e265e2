#include "perseus/planning/profile/option_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <tuple>

#include "perseus/base/units.h"

namespace perseus::profile {
namespace {

// The mixing step of SplitMix64. It spreads neighboring clocks over all buckets.
std::uint64_t Mix(std::uint64_t state, std::uint64_t value) {
  state = (state ^ value) + 0x9E3779B97F4A7C15;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EB;
  return state ^ (state >> 31);
}

constexpr double kMostSamplesOfAverage = 2e9;  // An int can hold this number.
// The half-width of a 95 % interval of a normal distribution, in standard deviations.
constexpr double kDeviations = 1.959964;

double Ratio(double a, double b) { return a > b ? a / b : b / a; }

template <typename Sum>
auto EntryKey(const Sum& sum) {
  return std::tuple(sum.pp_rank, sum.chunk, sum.kind);
}

}  // namespace

OptionSums::OptionSums(std::size_t knobs, double largest_repeat_ratio, std::string_view part)
    : knob_count_(knobs),
      largest_repeat_ratio_(largest_repeat_ratio),
      part_(part),
      index_(16, Hash{this}, Equal{this}) {}

std::size_t OptionSums::Hash::operator()(std::size_t index) const {
  const Sum& sum = owner->sums_[index];
  std::uint64_t state =
      Mix(static_cast<std::uint64_t>(sum.pp_rank),
          static_cast<std::uint64_t>(sum.chunk) << 8 | static_cast<std::uint64_t>(sum.kind));
  for (const double value : owner->KnobsOf(index)) {
    state = Mix(state, std::bit_cast<std::uint64_t>(value + 0.0));  // -0 + 0 is 0.
  }
  return state;
}

bool OptionSums::Equal::operator()(std::size_t a, std::size_t b) const {
  return EntryKey(owner->sums_[a]) == EntryKey(owner->sums_[b]) &&
         std::ranges::equal(owner->KnobsOf(a), owner->KnobsOf(b));
}

bool OptionSums::Matches(std::size_t index, const Measurement& row) const {
  return EntryKey(sums_[index]) == EntryKey(row) && std::ranges::equal(KnobsOf(index), row.knobs);
}

std::size_t OptionSums::FindOrAppend(const Measurement& row) {
  if (!sums_.empty() && Matches(last_, row)) return last_;
  // The index hashes a row in place. So the row is appended first, and removed if it is known.
  const std::size_t appended = sums_.size();
  const Range::End time_s{row.time_s, row.line};
  const Range::End energy_j{row.energy_j, row.line};
  Sum sum;
  sum.pp_rank = row.pp_rank;
  sum.chunk = row.chunk;
  sum.kind = row.kind;
  sum.first_line = row.line;
  sum.times_s = {time_s, time_s};
  sum.energies_j = {energy_j, energy_j};
  sums_.push_back(sum);
  knobs_.insert(knobs_.end(), row.knobs.begin(), row.knobs.end());
  const auto [place, is_new] = index_.insert(appended);
  if (!is_new) {
    sums_.pop_back();
    knobs_.resize(appended * knob_count_);
  }
  return *place;
}

const OptionSums::Range::End& OptionSums::Range::Furthest(double value) const {
  return Ratio(value, least.value) > Ratio(value, most.value) ? least : most;
}

void OptionSums::Range::Include(double value, std::int64_t line) {
  if (value < least.value) least = {value, line};
  if (value > most.value) most = {value, line};
}

void OptionSums::IntervalSum::Add(double value, double half_width, double weight) {
  if (rows_++ == 0) first_ = value;
  is_complete_ = is_complete_ && half_width > 0;
  if (!is_complete_) return;
  const double from_first = value - first_;
  const double precision = 1 / (half_width * half_width);
  squares_ += weight * half_width * weight * half_width;
  inverse_squares_ += precision;
  scaled_values_ += precision * from_first;
  scaled_squares_ += precision * from_first * from_first;
}

double OptionSums::IntervalSum::HalfWidth(double weights) const {
  if (!is_complete_ || rows_ == 0) return 0;
  const double independent = std::sqrt(squares_) / weights;
  if (rows_ == 1) return independent;
  // The Birge ratio (profile.h): chi-squared around the mean that makes it least, divided by the
  // degrees of freedom. It only ever widens the interval.
  const double chi_squared =
      kDeviations * kDeviations *
      std::max(0.0, scaled_squares_ - scaled_values_ * scaled_values_ / inverse_squares_);
  return independent * std::sqrt(std::max(1.0, chi_squared / (rows_ - 1)));
}

Result<void> OptionSums::Add(const Measurement& row) {
  last_ = FindOrAppend(row);
  Sum& sum = sums_[last_];
  const auto check = [&](std::string_view quantity, double value, const Range& range,
                         std::string_view unit) -> Result<void> {
    const Range::End& other = range.Furthest(value);
    const double ratio = Ratio(value, other.value);
    if (ratio <= largest_repeat_ratio_) {
      if (ratio < widest_repeat_.ratio) return {};
      widest_repeat_ = {ratio, row.line,
                        fmt::format("the {} of {} {} {} at {} MHz is {} {} here and {} {} on line "
                                    "{}, {:.0f} % more or less; plans use the mean (measure it "
                                    "again, or remove the wrong row)",
                                    quantity, part_, row.pp_rank, Name(row.kind), row.knobs.front(),
                                    value, unit, other.value, unit, other.line, 100 * (ratio - 1))};
      return {};
    }
    return Fail(
        "the {} of {} {} {} at {} MHz is {} {} here and {} {} on line {} (remove the wrong row; "
        "repeats of one option may differ by a factor of {})",
        quantity, part_, row.pp_rank, Name(row.kind), row.knobs.front(), value, unit, other.value,
        unit, other.line, largest_repeat_ratio_);
  };
  if (auto near = check("time", row.time_s, sum.times_s, "s"); !near) return near;
  if (auto near = check("energy", row.energy_j, sum.energies_j, "J"); !near) return near;
  sum.times_s.Include(row.time_s, row.line);
  sum.energies_j.Include(row.energy_j, row.line);
  const double weight = row.samples;
  sum.time_s += weight * row.time_s;
  sum.energy_j += weight * row.energy_j;
  sum.samples += weight;
  sum.time_interval.Add(row.time_s, row.time_ci_s, weight);
  sum.energy_interval.Add(row.energy_j, row.energy_ci_j, weight);
  ++sum.rows;
  return {};
}

std::vector<std::size_t> OptionSums::ByEntryAndFrequency() const {
  std::vector<std::size_t> order(sums_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [this](std::size_t index) {
    return std::tuple_cat(EntryKey(sums_[index]), std::tuple(KnobsOf(index).front()));
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  return order;
}

std::optional<OptionSums::Suspect> OptionSums::FindMeasuredKnob(const KnobLabels& labels) const {
  const std::vector<std::size_t> order = ByEntryAndFrequency();
  for (auto first = order.begin(); first != order.end();) {
    const auto last = std::find_if(first, order.end(), [&](std::size_t index) {
      return EntryKey(sums_[index]) != EntryKey(sums_[*first]);
    });
    for (std::size_t knob = 1; knob < knob_count_; ++knob) {
      if (!labels[knob - 1].empty()) continue;
      if (auto suspect = FindMeasuredKnob({first, last}, knob)) return suspect;
    }
    first = last;
  }
  return std::nullopt;
}

// Requires the options of `entry` in order of frequency.
std::optional<OptionSums::Suspect> OptionSums::FindMeasuredKnob(std::span<const std::size_t> entry,
                                                                std::size_t knob) const {
  const auto value_of = [&](std::size_t index) { return KnobsOf(index)[knob]; };
  std::vector<double> values;  // The knob's values at the frequencies that have several rows.
  std::int64_t rows = 0;       // All rows at these frequencies.
  int frequencies = 0;
  std::optional<Suspect> example;
  for (auto first = entry.begin(); first != entry.end();) {
    std::int64_t rows_here = 0;
    auto last = first;
    for (; last != entry.end() && KnobsOf(*last).front() == KnobsOf(*first).front(); ++last) {
      rows_here += sums_[*last].rows;
      if (!example && value_of(*last) != value_of(*first)) {
        example = {knob, value_of(*last), sums_[*last].first_line, value_of(*first),
                   sums_[*first].first_line};
      }
    }
    if (rows_here > 1) {
      ++frequencies;
      rows += rows_here;
      for (auto index = first; index != last; ++index) values.push_back(value_of(*index));
    }
    first = last;
  }
  // With rows at only one frequency, a setting may also differ on every row, such as in a sweep.
  if (frequencies < 2) return std::nullopt;
  std::sort(values.begin(), values.end());
  const auto distinct = std::unique(values.begin(), values.end()) - values.begin();
  return 4 * distinct > 3 * rows ? example : std::nullopt;
}

// A single row keeps its exact value, whatever its weight.
double OptionSums::MeanOf(double total, const Range& range, const Sum& sum) {
  return sum.rows == 1 ? range.least.value : total / sum.samples;
}

std::vector<ProfileEntry> OptionSums::Entries() const {
  std::vector<ProfileEntry> entries;
  for (const std::size_t index : ByEntryAndFrequency()) {
    const Sum& sum = sums_[index];
    if (entries.empty() || EntryKey(entries.back()) != EntryKey(sum)) {
      entries.push_back({sum.pp_rank, sum.chunk, sum.kind, {}});
    }
    const std::span<const double> knobs = KnobsOf(index);
    entries.back().options.push_back(
        {static_cast<int>(knobs.front()),
         {knobs.begin() + 1, knobs.end()},
         ToNanoseconds(MeanOf(sum.time_s, sum.times_s, sum)),
         MeanOf(sum.energy_j, sum.energies_j, sum),
         static_cast<int>(std::min(sum.samples, kMostSamplesOfAverage)),
         sum.time_interval.HalfWidth(sum.samples),
         sum.energy_interval.HalfWidth(sum.samples)});
  }
  return entries;
}

}  // namespace perseus::profile

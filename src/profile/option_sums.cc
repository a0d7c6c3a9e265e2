#include "perseus/profile/option_sums.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>

#include "perseus/base/units.h"

namespace perseus {
namespace {

// The mixing step of SplitMix64: neighbouring clocks must not land in neighbouring buckets.
std::uint64_t Mix(std::uint64_t state, std::uint64_t value) {
  state = (state ^ value) + 0x9E3779B97F4A7C15;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EB;
  return state ^ (state >> 31);
}

double Ratio(double a, double b) { return a > b ? a / b : b / a; }

template <typename Sum>
auto EntryKey(const Sum& sum) {
  return std::tuple(sum.stage, sum.chunk, sum.kind);
}

}  // namespace

OptionSums::OptionSums(std::size_t knobs, double largest_repeat_ratio)
    : knob_count_(knobs),
      largest_repeat_ratio_(largest_repeat_ratio),
      index_(16, Hash{this}, Equal{this}) {}

std::size_t OptionSums::Hash::operator()(std::size_t index) const {
  const Sum& sum = owner->sums_[index];
  std::uint64_t state =
      Mix(static_cast<std::uint64_t>(sum.stage),
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
  // The row is appended first, so that the index can hash it in place, and taken back if known.
  const std::size_t appended = sums_.size();
  sums_.push_back({row.stage, row.chunk, row.kind, 0, 0, row.time_s, row.energy_j, row.line, 0});
  knobs_.insert(knobs_.end(), row.knobs.begin(), row.knobs.end());
  const auto [place, is_new] = index_.insert(appended);
  if (!is_new) {
    sums_.pop_back();
    knobs_.resize(appended * knob_count_);
  }
  return *place;
}

Result<void> OptionSums::Add(const Measurement& row) {
  last_ = FindOrAppend(row);
  Sum& sum = sums_[last_];
  const double time_ratio = Ratio(row.time_s, sum.first_time_s);
  const double energy_ratio = Ratio(row.energy_j, sum.first_energy_j);
  if (sum.samples > 0 && std::max(time_ratio, energy_ratio) > largest_repeat_ratio_) {
    const bool is_time = time_ratio > largest_repeat_ratio_;
    const std::string_view unit = is_time ? "s" : "J";
    return Fail(
        "the {} of stage {} {} at {} MHz is {} {} here and {} {} on line {} (remove the wrong row; "
        "repeats of one option may differ by a factor of {})",
        is_time ? "time" : "energy", row.stage, Name(row.kind), row.knobs.front(),
        is_time ? row.time_s : row.energy_j, unit, is_time ? sum.first_time_s : sum.first_energy_j,
        unit, sum.first_line, largest_repeat_ratio_);
  }
  sum.time_s += row.time_s;
  sum.energy_j += row.energy_j;
  ++sum.samples;
  return {};
}

std::vector<ProfileEntry> OptionSums::Entries() const {
  std::vector<std::size_t> order(sums_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
    return EntryKey(sums_[a]) < EntryKey(sums_[b]);
  });
  std::vector<ProfileEntry> entries;
  for (const std::size_t index : order) {
    const Sum& sum = sums_[index];
    if (entries.empty() || EntryKey(entries.back()) != EntryKey(sum)) {
      entries.push_back({sum.stage, sum.chunk, sum.kind, {}});
    }
    const std::span<const double> knobs = KnobsOf(index);
    entries.back().options.push_back({knobs.front(),
                                      {knobs.begin() + 1, knobs.end()},
                                      ToNanoseconds(sum.time_s / sum.samples),
                                      sum.energy_j / sum.samples,
                                      sum.samples});
  }
  return entries;
}

}  // namespace perseus

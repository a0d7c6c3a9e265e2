#include "perseus/runtime/qualifier/siblings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "perseus/base/wording.h"
#include "perseus/planning/hardware_facts/combine.h"

namespace perseus::qualifier {
namespace {

std::string ValueText(double value, Siblings::Unit unit) {
  switch (unit) {
    case Siblings::Unit::kWatts:
      return fmt::format("{:.4g} W", value);
    case Siblings::Unit::kMilliseconds:
      return fmt::format("{:.4g} ms", value);
    case Siblings::Unit::kFraction:
      return fmt::format("{:.3g} %", 100 * value);
  }
  return {};
}

}  // namespace

std::optional<hardware_facts::Estimate> Siblings::Combine(
    const std::string& what, Unit unit,
    const std::vector<std::optional<hardware_facts::Estimate>>& estimates) {
  std::vector<hardware_facts::Estimate> all;
  for (const auto& estimate : estimates) {
    if (!estimate) return std::nullopt;
    all.push_back(*estimate);
  }
  if (all.empty()) return std::nullopt;
  const double least_bound = unit == Unit::kFraction ? hardware_facts::kLeastFractionBound : 0;
  const auto comparison = hardware_facts::Compare(all, least_bound);
  if (all.size() == 2 && comparison.has_differences()) {
    Note(fmt::format("{} and {} differ", names_[0], names_[1]),
         fmt::format("the {} is {} on the one and {} on the other", what,
                     ValueText(all[0].value, unit), ValueText(all[1].value, unit)));
  }
  for (std::size_t i = 0; i < all.size() && all.size() > 2; ++i) {
    if (!comparison.differs[i]) continue;
    Note(
        fmt::format("{} differs from its siblings", names_[i]),
        fmt::format("its {} is {}, and the median of {} GPUs is {}", what,
                    ValueText(all[i].value, unit), all.size(), ValueText(comparison.median, unit)));
  }
  return hardware_facts::Combine(hardware_facts::UsualOf(all, comparison));
}

void Siblings::Note(std::string who, std::string what) {
  const auto known = std::find_if(differences_.begin(), differences_.end(),
                                  [&](const Difference& other) { return other.who == who; });
  if (known == differences_.end()) {
    differences_.push_back({std::move(who), std::move(what), 1});
  } else {
    ++known->count;
  }
}

std::vector<std::string> Siblings::Differences() const {
  std::vector<std::string> sentences;
  for (const Difference& one : differences_) {
    const int others = one.count - 1;
    sentences.push_back(
        fmt::format("{}: {}{}.", one.who, one.what,
                    others == 0 ? "" : fmt::format(" (and {})", Counted(others, "other value"))));
  }
  return sentences;
}

}  // namespace perseus::qualifier
